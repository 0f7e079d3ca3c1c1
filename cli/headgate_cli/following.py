"""Waits: each has a limit, polls less often as time passes, and reports its progress."""

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from headgate_cli.output import CommandEnded, ExitCode, clean, note, plain, worst
from headgate_cli.server import Json, Server

#: Pauses between two requests, in seconds: the first, and the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 5.0
#: The server's own limit for one wait for an operation.
LONGEST_POLL_S = 60
#: Seconds that a poll's response may take beyond its wait.
GRACE_S = 30.0

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
#: The longest wait, in seconds: a day.
MOST_S = 86_400.0

_CODES = {
    "DONE": ExitCode.DONE,
    "TIMED_OUT": ExitCode.TIMED_OUT,
    "SUCCEEDED": ExitCode.DONE,  # of a deploy
}


def seconds(text: str) -> float:
    """Return a duration such as 90, 90s, 10m or 2h in seconds; at most a day."""
    match = _DURATION.fullmatch(text.strip())
    duration = float(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < duration <= MOST_S:
        raise CommandEnded(
            ExitCode.USAGE, f"{text} is not a duration up to 24h.", "Write 90s, 10m or 2h."
        )
    return duration


class TimeLimit:
    """The total time that a command may wait."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ends = time.monotonic() + seconds(text)
        self._pause = FIRST_PAUSE_S

    def left(self) -> float:
        """Return the remaining seconds, 0 at the end."""
        return max(0.0, self._ends - time.monotonic())

    def pause(self, what: str, *, reads: bool = False) -> None:
        """Wait before the next request; raise `CommandEnded` if the limit has expired.

        `reads` is for a command that only reads: nothing continues when it ends.
        """
        if not self.left():
            raise self.over(what, reads=reads)
        time.sleep(min(self._pause, self.left()))
        self._pause = min(self._pause * 1.5, LONGEST_PAUSE_S)

    def moved(self) -> None:
        """Poll frequently again, because something has changed."""
        self._pause = FIRST_PAUSE_S

    def over(self, what: str, *, reads: bool = False) -> CommandEnded:
        """Return the end of a wait that took too long."""
        goes_on = "" if reads else "It continues in the background. "
        way_out = f"{goes_on}To wait longer, use --timeout."
        return CommandEnded(ExitCode.TIMED_OUT, f"Not done within {self.text}: {what}.", way_out)


class ProgressLine:
    """Reports progress: as an updated line in a terminal, otherwise each line once."""

    def __init__(self) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._shown = ""
        self._noted: set[str] = set()

    def report(self, text: str) -> None:
        """Report the progress if it has changed.

        The progress may alternate between two messages; a log contains each of them only once.
        """
        if text == self._shown:
            return
        self._shown = text
        if self._live:
            sys.stderr.write(f"\r\x1b[K{clean(' '.join(text.split()))[:100]}")
            sys.stderr.flush()
        elif text not in self._noted:
            self._noted.add(text)
            note(text)

    def end(self) -> None:
        """Clear the terminal's line, so that further output starts on a new line."""
        if self._live and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._shown = ""


@contextmanager
def hint_if_interrupted(name: str, progress: ProgressLine) -> Iterator[None]:
    """On Ctrl-C, report that the operation or deploy continues, and how to cancel it."""
    try:
        yield
    except KeyboardInterrupt:
        progress.end()
        note(f"{name} continues. To cancel it: headgate cancel {name}")
        raise


def about(operation: Json) -> str:
    """Return an operation's description, such as "start of delays"."""
    of = operation.get("query") or operation.get("application") or ""
    return f"{operation['verb']} of {of}" if of else str(operation["verb"])


def followed(server: Server, operation: Json, limit: TimeLimit, progress: ProgressLine) -> Json:
    """Return an operation once it has ended; raise `CommandEnded` if the timeout expires first."""
    name = f"operation/{operation['id']}"
    with hint_if_interrupted(name, progress) if operation["cancellable"] else nullcontext():
        while operation["outcome"] is None:
            progress.report(f"{about(operation)}: {_stage(operation)}")
            wait = int(min(limit.left(), LONGEST_POLL_S))
            operation = server.get("operations", operation["id"], limit_s=wait + GRACE_S, wait=wait)
            if operation["outcome"] is None and limit.left() < 1:
                raise limit.over(f"{about(operation)}: {_stage(operation)}")
    progress.end()
    return operation


def completed(server: Server, operation: Json, limit: TimeLimit) -> str:
    """Return how a query's start has ended; raise `CommandEnded` if the timeout expires first.

    If a query failed and is being restarted automatically, the wait continues.
    """
    progress = ProgressLine()
    while operation.get("completion") is None:
        if limit.left() < 1:
            progress.end()
            raise limit.over(f"{operation['query']} has not completed")
        progress.report(f"{about(operation)}: {_stage(operation)}")
        wait = int(min(limit.left(), LONGEST_POLL_S))
        parameters: Json = {"wait": wait, "completed": "true"}
        operation = server.get("operations", operation["id"], limit_s=wait + GRACE_S, **parameters)
    progress.end()
    return str(operation["completion"])


def follow(server: Server, operations: Iterable[Json], limit: TimeLimit) -> int:
    """Wait for each operation, and report how it ended; return the combined exit code."""
    progress, codes = ProgressLine(), []
    for operation in operations:
        ended = followed(server, operation, limit, progress)
        report_end(ended)
        codes.append(code_of(ended["outcome"]))
    return worst(codes)


def report_end(operation: Json) -> None:
    """Report how an operation ended, with the outcome for each query if it has several."""
    detail = f": {plain(operation['detail'])}" if operation.get("detail") else ""
    note(f"{about(operation)}: {operation['outcome']}{detail}")
    for query_outcome in outcomes(operation):
        suffix = f": {plain(query_outcome['detail'])}" if query_outcome.get("detail") else ""
        name = query_outcome.get("query") or query_outcome.get("name")
        note(f"  {name}: {query_outcome.get('outcome')}{suffix}")
        if query_outcome.get("way_out"):
            note(f"    What to do: {plain(query_outcome['way_out'])}")
    if operation.get("failure"):
        note(f"  Failure {operation['failure']}: headgate describe failure {operation['failure']}")


def outcomes(operation: Json) -> list[Json]:
    """Return the outcome for each query in an operation on several."""
    result = operation.get("result")
    rows = result.get("queries") if isinstance(result, dict) else None
    return (
        [query_outcome for query_outcome in rows if isinstance(query_outcome, dict)]
        if isinstance(rows, list)
        else []
    )


def code_of(outcome: str) -> ExitCode:
    """Return the exit code for an operation's or a deploy's outcome."""
    return _CODES.get(outcome, ExitCode.FAILED)


def _stage(operation: Json) -> str:
    steps: list[Json] = operation.get("steps") or []
    under_way = [step for step in steps if step["state"] not in ("DONE", "PENDING", "SKIPPED")]
    words: list[Any] = [under_way[0]["name"], under_way[0]["detail"]] if under_way else []
    return ", ".join(plain(word) for word in (*words, operation.get("detail")) if word) or "waiting"
