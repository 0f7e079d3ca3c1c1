"""`logs`: the log of the driver that a query runs in."""

from typing import Annotated

import typer

from headgate_cli.asked import QueryName, Timeout, server
from headgate_cli.ends import Code, Ended, refused
from headgate_cli.following import Limit
from headgate_cli.output import note, say
from headgate_cli.server import Server

#: Lines that the API gives at most.
MOST_LINES = 5000
#: Lines that are asked for again and again, to see which of them are new.
WINDOW = 1000


def logs(
    context: typer.Context,
    query: QueryName,
    run: Annotated[int | None, typer.Option(help="A run's number; without it, the newest.")] = None,
    tail: Annotated[int, typer.Option(min=1, max=MOST_LINES, help="Last lines to print.")] = 200,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends.")
    ] = False,
    timeout: Timeout = "1h",
) -> None:
    """Print the log of the driver of a query's run, secrets masked.

    With --follow it goes on to the next run where the query is restarted, and ends when the query
    runs no more.
    """
    there, limit = server(context), Limit(timeout)
    number = run or _newest(there, query)
    if number is None:
        raise refused(f"{query} has not run yet.", f"headgate start {query} --wait")
    seen = _lines(there, number, max(tail, WINDOW) if follow else tail)
    for line in seen[-tail:]:
        say(line)
    while follow:
        ended = there.get("runs", number)["outcome"] is not None
        lines = _lines(there, number, WINDOW)
        fresh, gap = new_lines(seen[-WINDOW:], lines)
        if gap:
            note("(some lines came too fast to be followed)")
        for line in fresh:
            say(line)
        if fresh:
            limit.moved()
            seen = lines
        if ended:
            newer = None if run else _newest(there, query)
            if newer == number or newer is None:
                if run or not _wanted(there, query):
                    return
            else:
                note(f"(run {newer})")
                number, seen = newer, []
        try:
            limit.pause(f"following {query}")
        except Ended as end:
            raise Ended(
                Code.TIMED_OUT, end.message, "Follow it for longer with --timeout."
            ) from None


def new_lines(seen: list[str], lines: list[str]) -> tuple[list[str], bool]:
    """Return what a later look at the end of a log adds, and whether lines between are missing."""
    if not seen:
        return lines, False
    for start in range(len(seen)):
        common = len(seen) - start
        if common <= len(lines) and seen[start:] == lines[:common]:
            return lines[common:], False
    return lines, bool(lines)


def _lines(there: Server, run: int, tail: int) -> list[str]:
    return there.text("runs", run, "log", tail=tail).splitlines()


def _newest(there: Server, query: str) -> int | None:
    rows = list(there.rows("queries", query, "runs", most=1))
    return int(rows[0]["id"]) if rows else None


def _wanted(there: Server, query: str) -> bool:
    """Tell whether another run will follow by itself."""
    phase = there.get("queries", query)["phase"]
    return phase not in ("STOPPED", "COMPLETED", "FAILED")
