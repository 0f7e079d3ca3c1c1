"""`logs`: the log of the driver that a query, or a script, runs in."""

from typing import Annotated

import typer

from headgate_cli.asked import OfScript, Timeout, query_name, server
from headgate_cli.ends import Code, Ended, refused
from headgate_cli.following import Limit
from headgate_cli.output import note, say
from headgate_cli.server import Server

#: Lines that the API gives at most.
MOST_LINES = 5000
#: Phases in which nothing runs, and nothing will by itself.
_AT_REST = ("STOPPED", "COMPLETED", "FAILED")
#: Lines that are asked for again and again, to see which of them are new.
WINDOW = 1000


def logs(
    context: typer.Context,
    query: Annotated[str | None, typer.Argument(parser=query_name, help="Name of a query.")] = None,
    application: OfScript = "",
    run: Annotated[int | None, typer.Option(help="A run's number; without it, the newest.")] = None,
    tail: Annotated[int, typer.Option(min=1, max=MOST_LINES, help="Last lines to print.")] = 200,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends.")
    ] = False,
    timeout: Timeout = "1h",
) -> None:
    """Print the log of the driver of a query's run, or of an application, secrets masked.

    With --follow it goes on to the next run, or driver, and ends when nothing runs any more.
    """
    if bool(query) == bool(application) or (application and run):
        raise Ended(Code.USAGE, "Say whose log.", "Name a query, or --application.")
    there, limit = server(context), Limit(timeout)
    log = _Driver(there, application) if application else _Run(there, query or "")
    number = run or log.newest()
    if number is None:
        raise refused(f"{log.name} has not run yet.", log.start)
    seen = log.lines(number, max(tail, WINDOW) if follow else tail)
    for line in seen[-tail:]:
        say(line)
    while follow:
        ended = log.has_ended(number)
        lines = log.lines(number, WINDOW)
        fresh, gap = new_lines(seen[-WINDOW:], lines)
        if gap:
            note("(some lines came too fast to be followed)")
        for line in fresh:
            say(line)
        if fresh:
            limit.moved()
            seen = lines
        if ended:
            newer = None if run else log.newest()
            if newer == number or newer is None:
                if run or not log.is_wanted():
                    return
            else:
                note(f"({log.what} {newer})")
                number, seen = newer, []
        try:
            limit.pause(f"following {log.name}")
        except Ended as end:
            raise Ended(
                Code.TIMED_OUT, end.message, "Follow it for longer with --timeout."
            ) from None


class _Run:
    """The logs of a query's runs, by their numbers."""

    what = "run"

    def __init__(self, there: Server, name: str) -> None:
        self.there, self.name = there, name
        self.start = f"headgate start {name} --wait"

    def newest(self) -> int | None:
        """Return the newest number; None: there is none."""
        rows = list(self.there.rows("queries", self.name, "runs", most=1))
        return int(rows[0]["id"]) if rows else None

    def lines(self, number: int, tail: int) -> list[str]:
        """Return the end of a log."""
        return self.there.text("runs", number, "log", tail=tail).splitlines()

    def has_ended(self, number: int) -> bool:
        """Tell whether nothing is written to a log any more."""
        return self.there.get("runs", number)["outcome"] is not None

    def is_wanted(self) -> bool:
        """Tell whether another one will follow by itself."""
        return self.there.get("queries", self.name)["phase"] not in _AT_REST


class _Driver(_Run):
    """The logs of an application's drivers, by their epochs."""

    what = "driver"

    def __init__(self, there: Server, name: str) -> None:
        super().__init__(there, name)
        self.start = f"headgate start --application {name} --wait"

    def newest(self) -> int | None:
        """Return the newest epoch; None: there is none."""
        rows = list(self.there.rows("applications", self.name, "drivers", most=1))
        return int(rows[0]["epoch"]) if rows else None

    def lines(self, number: int, tail: int) -> list[str]:
        """Return the end of a log."""
        path = ("applications", self.name, "drivers", number, "log")
        return self.there.text(*path, tail=tail).splitlines()

    def has_ended(self, number: int) -> bool:
        """Tell whether that driver is not the living one."""
        living = self.there.get("applications", self.name)["driver"]
        return living is None or living["epoch"] != number

    def is_wanted(self) -> bool:
        """Tell whether another driver will follow by itself."""
        body = self.there.get("applications", self.name)
        if body["script"] is not None:
            return body["script"]["phase"] not in _AT_REST
        rows = self.there.rows("queries", most=WINDOW, application=self.name)
        return any(row["phase"] not in _AT_REST for row in rows)


def new_lines(seen: list[str], lines: list[str]) -> tuple[list[str], bool]:
    """Return what a later look at the end of a log adds, and whether lines between are missing."""
    if not seen:
        return lines, False
    for start in range(len(seen)):
        common = len(seen) - start
        if common <= len(lines) and seen[start:] == lines[:common]:
            return lines[common:], False
    return lines, bool(lines)
