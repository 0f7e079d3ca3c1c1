"""`logs`: the log of the driver that runs a query or a script."""

from typing import Annotated

import typer

from headgate_cli.following import TimeLimit
from headgate_cli.output import CommandEnded, ExitCode, is_closed, note, print_result, refused
from headgate_cli.server import Server
from headgate_cli.sets import OfScript, Timeout, query_name, server

#: Maximum lines that the API returns.
MOST_LINES = 5000
#: Phases in which nothing is running or will start by itself.
_AT_REST = ("STOPPED", "COMPLETED", "FAILED")
#: Number of lines requested repeatedly, to find the new ones.
WINDOW = 1000


def logs(
    context: typer.Context,
    query: Annotated[str | None, typer.Argument(parser=query_name, help="Query name.")] = None,
    application: OfScript = "",
    run: Annotated[int | None, typer.Option(help="Run number; default: the newest.")] = None,
    tail: Annotated[
        int, typer.Option(min=1, max=MOST_LINES, help="Number of lines to print, from the end.")
    ] = 200,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow until the run ends.")
    ] = False,
    timeout: Timeout = "1h",
) -> None:
    """Print the driver log of a query's run or of an application, with secrets masked.

    With --follow, the command continues with the next run or driver, and ends when nothing is
    running any longer.
    """
    if bool(query) == bool(application) or (application and run):
        raise CommandEnded(
            ExitCode.USAGE, "Exactly one log is required.", "Name a query, or use --application."
        )
    api, limit = server(context), TimeLimit(timeout)
    log = _Driver(api, application) if application else _Run(api, query or "")
    number = run or log.newest()
    if number is None:
        raise refused(f"{log.name} has not run yet.", log.start)
    shown = log.lines(number, max(tail, WINDOW) if follow else tail)
    for line in shown[-tail:]:
        print_result(line)
    while follow and not is_closed():
        ended = log.has_ended(number)
        lines = log.lines(number, WINDOW)
        fresh, gap = new_lines(shown[-WINDOW:], lines)
        if gap:
            note("(some lines were skipped because the log grew too fast)")
        for line in fresh:
            print_result(line)
        if fresh:
            limit.moved()
            shown = lines
        if ended:
            newer = None if run else log.newest()
            if newer == number or newer is None:
                if run or not log.is_wanted():
                    return
            else:
                note(f"({log.what} {newer})")
                number, shown = newer, []
        limit.pause(f"following {log.name}", reads=True)


class _Run:
    """The logs of a query's runs, by number."""

    what = "run"

    def __init__(self, api: Server, name: str) -> None:
        self.api, self.name = api, name
        self.start = f"headgate start {name} --wait"

    def newest(self) -> int | None:
        """Return the newest number; None if there is none."""
        rows = list(self.api.rows("queries", self.name, "runs", most=1))
        return int(rows[0]["id"]) if rows else None

    def lines(self, number: int, tail: int) -> list[str]:
        """Return the end of a log."""
        return self.api.text("runs", number, "log", tail=tail).splitlines()

    def has_ended(self, number: int) -> bool:
        """Return whether a log is complete."""
        return self.api.get("runs", number)["outcome"] is not None

    def is_wanted(self) -> bool:
        """Return whether another run will follow automatically."""
        return self.api.get("queries", self.name)["phase"] not in _AT_REST


class _Driver(_Run):
    """The logs of an application's drivers, by epoch."""

    what = "driver"

    def __init__(self, api: Server, name: str) -> None:
        super().__init__(api, name)
        self.start = f"headgate start --application {name} --wait"

    def newest(self) -> int | None:
        """Return the newest epoch; None if there is none."""
        rows = list(self.api.rows("applications", self.name, "drivers", most=1))
        return int(rows[0]["epoch"]) if rows else None

    def lines(self, number: int, tail: int) -> list[str]:
        """Return the end of a log."""
        path = ("applications", self.name, "drivers", number, "log")
        return self.api.text(*path, tail=tail).splitlines()

    def has_ended(self, number: int) -> bool:
        """Return whether that driver is no longer running."""
        living = self.api.get("applications", self.name)["driver"]
        return living is None or living["epoch"] != number

    def is_wanted(self) -> bool:
        """Return whether another driver will follow automatically."""
        body = self.api.get("applications", self.name)
        if body["script"] is not None:
            return body["script"]["phase"] not in _AT_REST
        rows = self.api.rows("queries", most=WINDOW, application=self.name)
        return any(row["phase"] not in _AT_REST for row in rows)


def new_lines(shown: list[str], lines: list[str]) -> tuple[list[str], bool]:
    """Return the lines added since a log's end was last read, and whether any are missing."""
    if not shown:
        return lines, False
    for start in range(len(shown)):
        common = len(shown) - start
        if common <= len(lines) and shown[start:] == lines[:common]:
            return lines[common:], False
    return lines, bool(lines)
