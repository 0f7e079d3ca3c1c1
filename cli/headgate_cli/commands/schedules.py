"""`schedule`: a query's next times and its planned runs; pause and resume."""

from typing import Annotated

import typer

from headgate_cli.asked import Output, QueryName, server
from headgate_cli.ends import Code, Ended
from headgate_cli.output import Columns, Form, plain, say, show_document, show_table
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
    output: Output = Form.TABLE,
) -> int:
    """Show a query's schedule with its next times and planned runs; pause or resume it."""
    if pause and resume:
        raise Ended(Code.USAGE, "--pause and --resume exclude each other.", "Use one of them.")
    there = server(context)
    if pause or resume:
        found: Json = there.post("queries", query, "schedule", "pause" if pause else "resume")
    else:
        found = there.get("queries", query, "schedule")
    runs = list(there.rows("queries", query, "schedule", "runs", most=_SHOWN))
    if output.is_document:
        show_document({**found, "runs": runs}, output)
        return Code.DONE
    if output is Form.NAME:
        say(f"query/{query}")
        return Code.DONE
    say(f"Schedule:  {plain(found['when'])}")
    if found["problem"]:
        say(f"Problem:   {plain(found['problem'])}")
    if found["paused_at"]:
        say(f"Paused:    since {found['paused_at']} by {plain(found['paused_by'])}")
    if found["cron"]:
        say(f"Next:      {', '.join(found['next_times']) or 'none'}")
    if found["overdue"]:
        say("Overdue:   nothing has looked at it in time. Does a worker run?")
    if runs:
        say("")
        show_table(runs, _COLUMNS)
    return Code.DONE
