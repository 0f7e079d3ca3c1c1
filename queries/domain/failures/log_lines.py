"""Lines of a driver's log: where each begins in the file, and how severe its entry is.

Spark, Python and users' code write to one file. Entries from the first two begin with a time and a
level; lines without these (a stack trace, printed output) belong to the preceding entry.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How severe an entry is."""

    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40


#: "26/11/23 16:13:16.212 WARN Utils: …" of log4j, "2026-11-23 16:13:16,341 ERROR x: …" of Python.
_ENTRY = re.compile(
    rb"(?:\d\d/\d\d/\d\d|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
    rb" (TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\b"
)
_LEVELS = {
    b"TRACE": Level.DEBUG,
    b"DEBUG": Level.DEBUG,
    b"INFO": Level.INFO,
    b"WARN": Level.WARN,
    b"WARNING": Level.WARN,
    b"ERROR": Level.ERROR,
    b"FATAL": Level.ERROR,
    b"CRITICAL": Level.ERROR,
}
#: Maximum characters shown of one line; nobody reads the rest of a plan on one line.
LINE_LIMIT = 8_000
#: Maximum characters read of one line: it is masked before it is cut, or half a secret would show.
_READ = 65_536


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log."""

    at: int  # byte offset at which it begins; it stays the same while the file grows
    level: Level | None  # of its entry; None: unknown
    text: str


def lines_of(data: bytes, start: int, *, whole: bool = False) -> Iterator[LogLine]:
    """Yield the lines of the part of a file that begins at `start`.

    The first is left out unless `whole` is true, because it may be the end of an earlier line.
    """
    at, level = start, None
    for number, raw in enumerate(data.split(b"\n")):
        if entry := _ENTRY.match(raw):
            level = _LEVELS[entry[1]]
        if (number or whole) and (raw or at + 1 < start + len(data)):
            text = raw[:_READ].decode("utf-8", errors="replace").replace("\0", "\ufffd")
            yield LogLine(at, level, text.rstrip("\r"))
        at += len(raw) + 1


def select(
    lines: Sequence[LogLine],
    *,
    words: str,
    least: Level | None,
    most: int,
    most_masked: int,
    mask: Callable[[str], str],
) -> tuple[list[LogLine], int | None]:
    """Return the newest masked lines that match, and the offset before which none was looked at.

    The offset is None if these are all of them. Matching lines contain the words and belong to
    entries of at least this level. They must also contain the words after masking, so that a search
    never reveals a secret. It ends after `most` lines, or before more than `most_masked` characters
    are masked, but masks at least one line.
    """
    wanted = words.casefold()
    selected: list[LogLine] = []
    masked = 0
    after: int | None = None  # the last line that was masked
    for line in reversed(lines):
        if least is not None and (line.level is None or line.level < least):
            continue
        if wanted and wanted not in line.text.casefold():
            continue
        masked += len(line.text)
        if len(selected) == most or (after is not None and masked > most_masked):
            return selected[::-1], after
        after = line.at
        shown = mask(line.text)
        if wanted and wanted not in shown.casefold():
            continue
        shown = f"{shown[:LINE_LIMIT]}…" if len(shown) > LINE_LIMIT else shown
        selected.append(LogLine(line.at, line.level, shown))
    return selected[::-1], None
