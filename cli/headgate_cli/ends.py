"""How a command ends: its exit code, and the message if it is not 0."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from headgate_cli.output import clean, note, plain


class ExitCode(IntEnum):
    """The exit codes, as documented in docs/cli.md."""

    DONE = 0
    REFUSED = 1  # nothing was started
    FAILED = 2  # what was started has failed
    TIMED_OUT = 3  # a wait's limit has expired; what was started continues
    DIFFERENT = 4  # diff: something would change
    NO_ANSWER = 5  # the server could not be reached, or could not answer
    USAGE = 64  # the command line is wrong (EX_USAGE of sysexits.h)
    INTERRUPTED = 130  # by Ctrl-C, as in shells


class CommandEnded(Exception):
    """The end of a command, with its message."""

    def __init__(
        self,
        code: ExitCode,
        message: str,
        way_out: str = "",
        problems: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.way_out = code, message, way_out
        self.problems = list(problems)


def refused(message: str, way_out: str = "") -> CommandEnded:
    """Return the end of a command that did not start anything."""
    return CommandEnded(ExitCode.REFUSED, message, way_out)


def print_end(ended: CommandEnded) -> None:
    """Print why a command ends, with each problem's field, value and remedy."""
    note(f"Error: {ended.message}")
    for line in problem_lines(ended.problems):
        note(line)
    if ended.way_out:
        note(f"What to do: {ended.way_out}")


def problem_lines(problems: Iterable[Mapping[str, Any]], indent: str = "") -> list[str]:
    """Return problems as lines: field, value, message, and the remedy below."""
    lines = []
    for problem in problems:
        value = problem.get("value")
        value_text = f" = {plain(value)}" if value not in (None, "") else ""
        text = f"{problem.get('field', '')}{value_text}: {problem.get('message', '')}"
        lines.append(f"{indent}- {clean(text)}")
        if problem.get("way_out"):
            lines.append(f"{indent}  What to do: {clean(str(problem['way_out']))}")
    return lines


def worst(codes: Iterable[int]) -> int:
    """Return the code for several actions: the lowest that is not 0, or 0 if all succeeded."""
    return min((int(code) for code in codes if code), default=int(ExitCode.DONE))
