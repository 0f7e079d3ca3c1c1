"""`preflight`: try a definition on a copy of its query's checkpoint, before it runs."""

from typing import Annotated

import typer

from headgate_cli.asked import Output, QueryName, Timeout, server
from headgate_cli.ends import ExitCode
from headgate_cli.following import ProgressLine, TimeLimit, code_of, followed
from headgate_cli.output import OutputForm, note, plain, print_result, show_document
from headgate_cli.server import Json


def preflight(
    context: typer.Context,
    query: QueryName,
    strict: Annotated[
        bool,
        typer.Option(
            help="Also fail if Spark would silently accept a change that affects results, or if "
            "the checkpoint could not be tried."
        ),
    ] = False,
    spark: Annotated[
        str, typer.Option(help="Test with this version of Spark, such as 4.2.", metavar="VERSION")
    ] = "",
    timeout: Timeout = "15m",
    output: Output = OutputForm.TABLE,
) -> int:
    """Test a query's newest revision on a copy of its checkpoint, and wait for the outcome.

    Running queries are not affected. `headgate apply` stores a revision without running it.
    """
    api, limit = server(context), TimeLimit(timeout)
    body = {"spark": spark} if spark else {}
    started = api.post("queries", query, "preflight", body=body)
    operation = followed(api, started, limit, ProgressLine())
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
    for entry in judged.get("tries", []):
        title = f": {plain(entry['title'])}" if entry.get("title") else ""
        print_result(f"  {plain(entry.get('label'))}: {plain(entry.get('end'))}{title}")
        if entry.get("way_out"):
            print_result(f"    What to do: {plain(entry['way_out'])}")
    for entry in (*judged.get("differences", []), *judged.get("pinned", [])):
        print_result(f"  differs: {_difference(entry)}")
    if change := judged.get("spark"):
        doubts = " ".join(plain(entry) for entry in change.get("back_doubts", []))
        way = plain(change.get("no_way_back")) or doubts or "there is a way back"
        print_result(f"  Spark {plain(change.get('from'))} → {plain(change.get('to'))}: {way}")
    for entry in judged.get("not_tried", []):
        print_result(f"  not tested: {plain(entry)}")
    if not judged and operation.get("detail"):
        note(plain(operation["detail"]))


def _difference(difference: Json) -> str:
    old, new = (plain(difference.get(name) or None) for name in ("old", "new"))
    return f"{plain(difference.get('what'))}: {old} → {new}"
