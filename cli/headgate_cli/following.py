"""Waits: each with a limit, asking more rarely as time goes on, and told as they go on."""

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from headgate_cli.ends import Code, Ended, worst
from headgate_cli.output import clean, note, plain
from headgate_cli.server import Json, Server

#: Pauses between two questions, seconds: the first, and the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 5.0
#: The server's own limit of one wait for an operation.
LONGEST_POLL_S = 60
#: What a poll's answer may take beyond its wait.
GRACE_S = 30.0

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
#: The longest wait: a day.
MOST_S = 86_400.0

_CODES = {
    "DONE": Code.DONE,
    "TIMED_OUT": Code.TIMED_OUT,
    "SUCCEEDED": Code.DONE,  # of a deploy
}


def seconds(text: str) -> float:
    """Return a duration as 90, 90s, 10m or 2h has it, in seconds; at most a day."""
    found = _DURATION.fullmatch(text.strip())
    held = float(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < held <= MOST_S:
        raise Ended(Code.USAGE, f"{text} is not a duration up to 24h.", "Write 90s, 10m or 2h.")
    return held


class Limit:
    """A time that a command may wait, all in all."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ends = time.monotonic() + seconds(text)
        self._pause = FIRST_PAUSE_S

    def left(self) -> float:
        """Return the seconds that are left, 0 at the end."""
        return max(0.0, self._ends - time.monotonic())

    def pause(self, what: str) -> None:
        """Wait before the next question; raise `Ended` where the limit is over."""
        if not self.left():
            raise self.over(what)
        time.sleep(min(self._pause, self.left()))
        self._pause = min(self._pause * 1.5, LONGEST_PAUSE_S)

    def moved(self) -> None:
        """Ask often again: something has changed."""
        self._pause = FIRST_PAUSE_S

    def over(self, what: str) -> Ended:
        """Return the end of a wait that was too long."""
        way_out = "It goes on by itself. Wait again, or for longer with --timeout."
        return Ended(Code.TIMED_OUT, f"Not done within {self.text}: {what}.", way_out)


class Progress:
    """How far something is: a line that changes in a terminal, elsewhere a line for each change."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = ""

    def tell(self, text: str) -> None:
        """Say how far it is, where that has changed."""
        if text == self._shown:
            return
        self._shown = text
        if self._live:
            sys.stderr.write(f"\r\x1b[K{clean(' '.join(text.split()))[:100]}")
            sys.stderr.flush()
        else:
            note(text)

    def end(self) -> None:
        """Remove the line of a terminal, so that what follows stands by itself."""
        if self._live and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._shown = ""


@contextmanager
def told_if_interrupted(name: str, progress: Progress) -> Iterator[None]:
    """On Ctrl-C, say that what is followed goes on, and how to cancel it."""
    try:
        yield
    except KeyboardInterrupt:
        progress.end()
        note(f"{name} goes on. Cancel it: headgate cancel {name}")
        raise


def about(operation: Json) -> str:
    """Return "start of delays", as people call an operation."""
    of = operation.get("query") or operation.get("application") or ""
    return f"{operation['verb']} of {of}" if of else str(operation["verb"])


def followed(server: Server, operation: Json, limit: Limit, progress: Progress) -> Json:
    """Return an operation as it ended; raise `Ended` where the limit is over before."""
    name = f"operation/{operation['id']}"
    with told_if_interrupted(name, progress) if operation["cancellable"] else nullcontext():
        while operation["outcome"] is None:
            progress.tell(f"{about(operation)}: {_stage(operation)}")
            wait = int(min(limit.left(), LONGEST_POLL_S))
            operation = server.get("operations", operation["id"], limit_s=wait + GRACE_S, wait=wait)
            if operation["outcome"] is None and limit.left() < 1:
                raise limit.over(f"{about(operation)}: {_stage(operation)}")
    progress.end()
    return operation


def follow(server: Server, operations: Iterable[Json], limit: Limit) -> int:
    """Wait for each operation, and say how it ended; return the exit code of all of them."""
    progress, codes = Progress(), []
    for operation in operations:
        ended = followed(server, operation, limit, progress)
        tell_end(ended)
        codes.append(code_of(ended["outcome"]))
    return worst(codes)


def tell_end(operation: Json) -> None:
    """Say how an operation ended, with the outcome of each query where it has several."""
    detail = f": {plain(operation['detail'])}" if operation.get("detail") else ""
    note(f"{about(operation)}: {operation['outcome']}{detail}")
    for one in outcomes(operation):
        said = f": {plain(one['detail'])}" if one.get("detail") else ""
        note(f"  {one.get('query') or one.get('name')}: {one.get('outcome')}{said}")
        if one.get("way_out"):
            note(f"    Way out: {plain(one['way_out'])}")
    if operation.get("failure"):
        note(f"  Failure {operation['failure']}: headgate describe failure {operation['failure']}")


def outcomes(operation: Json) -> list[Json]:
    """Return the outcome of each query of an operation that has several."""
    result = operation.get("result")
    held = result.get("queries") if isinstance(result, dict) else None
    return [one for one in held if isinstance(one, dict)] if isinstance(held, list) else []


def code_of(outcome: str) -> Code:
    """Return the exit code of an operation's or a deploy's end."""
    return _CODES.get(outcome, Code.FAILED)


def _stage(operation: Json) -> str:
    steps: list[Json] = operation.get("steps") or []
    under_way = [step for step in steps if step["state"] not in ("DONE", "PENDING", "SKIPPED")]
    words: list[Any] = [under_way[0]["name"], under_way[0]["detail"]] if under_way else []
    return ", ".join(plain(word) for word in (*words, operation.get("detail")) if word) or "waiting"
