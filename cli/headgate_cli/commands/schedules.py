"""`schedule`: a query's next times and its planned runs; pause and resume."""

from typing import Annotated

import typer

from headgate_cli.asked import Output, QueryName, server
from headgate_cli.ends import CommandEnded, ExitCode
from headgate_cli.output import Columns, OutputForm, plain, print_result, show_document, show_table
from headgate_cli.server import Json

#: Planned runs that are shown.
_SHOWN = 20
_COLUMNS: Columns = {
    "DUE": lambda run: run["due_at"],
    "STATE": lambda run: f"{run['state']} {run['skipped']}".strip(),
    "STARTED": lambda run: run["started_at"] or "-",
    "SECONDS": lambda run: "-" if run["duration_s"] is None else f"{run['duration_s']:.0f}",
    "REASON": lambda run: run["reason"],
}


def schedule(
    context: typer.Context,
    query: QueryName,
    pause: Annotated[bool, typer.Option("--pause", help="Skip its times from now on.")] = False,
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
        print_result("Overdue:   nothing has looked at it in time. Does a worker run?")
    if runs:
        print_result("")
        show_table(runs, _COLUMNS)
    return ExitCode.DONE
