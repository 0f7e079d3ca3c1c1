"""`preflight`, `lineage` and `schedule`: a query's test, inputs and outputs, and planned times."""

from typing import Annotated

import typer

from headgate_cli.following import ProgressLine, TimeLimit, code_of, followed
from headgate_cli.output import (
    Columns,
    CommandEnded,
    ExitCode,
    OutputForm,
    Row,
    note,
    plain,
    print_result,
    show_document,
    show_table,
)
from headgate_cli.server import Json
from headgate_cli.sets import Output, QueryName, Timeout, server


def preflight(
    context: typer.Context,
    query: QueryName,
    strict: Annotated[
        bool,
        typer.Option(
            help="Also fail if Spark would silently accept a change that affects results, or if "
            "the checkpoint could not be tested."
        ),
    ] = False,
    spark: Annotated[
        str, typer.Option(help="Test with this Spark version, such as 4.2.", metavar="VERSION")
    ] = "",
    timeout: Timeout = "15m",
    output: Output = OutputForm.TABLE,
) -> int:
    """Test a query's newest revision on a copy of its checkpoint, and wait for the outcome.

    Running queries are not affected. `headgate apply` stores a revision without running it.
    """
    api, limit = server(context), TimeLimit(timeout)
    body = {"spark": spark} if spark else {}
    started_operation = api.post("queries", query, "preflight", body=body)
    operation = followed(api, started_operation, limit, ProgressLine())
    judged: Json = (operation.get("result") or {}).get("preflight") or {}
    if output.is_document:
        show_document(operation, output)
    elif output is OutputForm.NAME:
        print_result(f"operation/{operation['id']}")
    else:
        _show(query, operation, judged)
    code = code_of(operation["outcome"])
    doubtful = judged.get("verdict") in ("differs", "incomplete")
    return ExitCode.FAILED if strict and doubtful and code is ExitCode.DONE else code


def _show(query: str, operation: Json, judged: Json) -> None:
    print_result(f"{query}: {judged.get('verdict') or operation['outcome']}")
    for trial in judged.get("tries", []):
        title = f": {plain(trial['title'])}" if trial.get("title") else ""
        print_result(f"  {plain(trial.get('label'))}: {plain(trial.get('end'))}{title}")
        if trial.get("way_out"):
            print_result(f"    What to do: {plain(trial['way_out'])}")
    for difference in (*judged.get("differences", []), *judged.get("pinned", [])):
        print_result(f"  differs: {_difference(difference)}")
    if change := judged.get("spark"):
        doubts = " ".join(plain(doubt) for doubt in change.get("back_doubts", []))
        way = plain(change.get("no_way_back")) or doubts or "rollback possible"
        print_result(f"  Spark {plain(change.get('from'))} → {plain(change.get('to'))}: {way}")
        for sentence in change.get("changes", []):
            print_result(f"  differs: {plain(sentence)}")
    for check in judged.get("not_tried", []):
        print_result(f"  not tested: {plain(check)}")
    if not judged and operation.get("detail"):
        note(plain(operation["detail"]))


def _difference(difference: Json) -> str:
    old, new = (plain(difference.get(name) or None) for name in ("old", "new"))
    return f"{plain(difference.get('what'))}: {old} → {new}"


_COLUMNS: Columns = {
    "QUERY": lambda edge: edge["query"],
    "USE": lambda edge: "writes" if edge["writes"] else "reads",
    "KIND": lambda edge: edge["kind"],
    "DATASET": lambda edge: edge["dataset"],
    "KNOWN FROM": lambda edge: _origin(edge),
}


def lineage(context: typer.Context, query: QueryName, output: Output = OutputForm.TABLE) -> int:
    """Show the queries upstream and downstream of a query, and the data between them."""
    graph: Json = server(context).get("queries", query, "lineage")
    if output.is_document:
        show_document(graph, output)
    elif output is OutputForm.NAME:
        for name in graph["downstream"]:
            print_result(f"query/{name}")
    else:
        print_result(f"Upstream:    {_names(graph, 'upstream')}")
        print_result(f"Downstream:  {_names(graph, 'downstream')}")
        if graph["edges"]:
            print_result("")
            show_table(graph["edges"], _COLUMNS)
        if graph["left_out"]:
            print_result(f"{graph['left_out']:,} more.")
        for unknown_line in graph["unknown"]:
            print_result(f"{plain(unknown_line['query'])}: {plain(' '.join(unknown_line['says']))}")
    return ExitCode.DONE


def _names(graph: Json, direction: str) -> str:
    names = ", ".join(map(plain, graph[direction])) or "no known query"
    unsure = graph.get(f"unsure_{direction}")  # an older server does not send it
    if not unsure:
        return names
    reason = f"not all reads and writes are known of {', '.join(map(plain, unsure))}"
    return f"{names} (may be incomplete: {reason})"


def _origin(edge: Row) -> str:
    if edge["known_from"] == "spark":
        return f"Spark, {edge['as_of']}" if edge["as_of"] else "Spark"
    return str(edge["known_from"])


#: Planned runs that are shown.
_SHOWN = 20
_TIMES_COLUMNS: Columns = {
    "DUE": lambda run: run["due_at"],
    "STATE": lambda run: f"{run['state']} {run['skipped']}".strip(),
    "STARTED": lambda run: run["started_at"] or "-",
    "SECONDS": lambda run: "-" if run["duration_s"] is None else f"{run['duration_s']:.0f}",
    "REASON": lambda run: run["reason"],
}


def schedule(
    context: typer.Context,
    query: QueryName,
    pause: Annotated[bool, typer.Option("--pause", help="Skip planned times from now on.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="End the pause.")] = False,
    output: Output = OutputForm.TABLE,
) -> int:
    """Show a query's schedule with its next times and planned runs; pause or resume it."""
    if pause and resume:
        raise CommandEnded(
            ExitCode.USAGE, "--pause and --resume exclude each other.", "Use one of them."
        )
    api = server(context)
    if pause or resume:
        state: Json = api.post("queries", query, "schedule", "pause" if pause else "resume")
    else:
        state = api.get("queries", query, "schedule")
    runs = list(api.rows("queries", query, "schedule", "runs", most=_SHOWN))
    if output.is_document:
        show_document({**state, "runs": runs}, output)
        return ExitCode.DONE
    if output is OutputForm.NAME:
        print_result(f"query/{query}")
        return ExitCode.DONE
    print_result(f"Schedule:  {plain(state['when'])}")
    if state["problem"]:
        print_result(f"Problem:   {plain(state['problem'])}")
    if state["paused_at"]:
        print_result(f"Paused:    since {state['paused_at']} by {plain(state['paused_by'])}")
    if state["cron"]:
        print_result(f"Next:      {', '.join(state['next_times']) or 'none'}")
    if state["overdue"]:
        print_result("Overdue:   not checked in time. Is a worker running?")
    if runs:
        print_result("")
        show_table(runs, _TIMES_COLUMNS)
    return ExitCode.DONE
