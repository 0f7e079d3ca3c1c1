"""How a command ends: its exit code, and what is said where it is not 0."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from headgate_cli.output import clean, note, plain


class Code(IntEnum):
    """The exit codes, as docs/cli.md has them."""

    DONE = 0
    REFUSED = 1  # nothing was begun
    FAILED = 2  # what was begun has failed
    TIMED_OUT = 3  # a wait's limit is over; what was begun goes on
    DIFFERENT = 4  # diff: something would change
    NO_ANSWER = 5  # the server was not reached, or could not answer
    USAGE = 64  # the command line is wrong (EX_USAGE of sysexits.h)
    INTERRUPTED = 130  # by Ctrl-C, as shells have it


class Ended(Exception):
    """The end of a command, with what to tell about it."""

    def __init__(
        self,
        code: Code,
        message: str,
        way_out: str = "",
        problems: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.way_out = code, message, way_out
        self.problems = list(problems)


def refused(message: str, way_out: str = "") -> Ended:
    """Return the end of a command that begins nothing."""
    return Ended(Code.REFUSED, message, way_out)


def tell(ended: Ended) -> None:
    """Say why a command ends, with each problem's field, value and way out."""
    note(f"Error: {ended.message}")
    for line in problem_lines(ended.problems):
        note(line)
    if ended.way_out:
        note(f"Way out: {ended.way_out}")


def problem_lines(problems: Iterable[Mapping[str, Any]], indent: str = "") -> list[str]:
    """Return problems as lines: field, value, message, and below it the way out."""
    lines = []
    for problem in problems:
        value = problem.get("value")
        held = f" = {plain(value)}" if value not in (None, "") else ""
        said = f"{problem.get('field', '')}{held}: {problem.get('message', '')}"
        lines.append(f"{indent}- {clean(said)}")
        if problem.get("way_out"):
            lines.append(f"{indent}  Way out: {clean(str(problem['way_out']))}")
    return lines


def worst(codes: Iterable[int]) -> int:
    """Return the code of several acts: the lowest that is not 0, 0 where all are done."""
    return min((int(code) for code in codes if code), default=int(Code.DONE))
