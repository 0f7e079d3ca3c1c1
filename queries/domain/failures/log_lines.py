"""Lines of a driver's log: where each begins in the file, and how grave its entry is.

Spark, Python and users' code write into one file. Entries of the first two begin with a time and a
level; what follows without one (a stack trace, what was printed) belongs to the entry before it.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How grave an entry is."""

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
#: Of a longer line so many characters are shown; nobody reads the rest of a plan on one line.
LINE_LIMIT = 8_000
#: So many bytes of it are read: it is masked whole before it is cut, or half a secret would show.
_READ = 65_536


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line."""

    at: int  # where it begins in the file, in bytes: it stays the same while the file grows
    level: Level | None  # of its entry; None: not known
    text: str


def lines_of(data: bytes, start: int, *, whole: bool = False) -> Iterator[LogLine]:
    """Yield the lines of a part of a file that begins at `start`.

    The first is left out unless `whole` says that it begins there: it is the end of a line.
    """
    at, level = start, None
    for number, raw in enumerate(data.split(b"\n")):
        if found := _ENTRY.match(raw):
            level = _LEVELS[found[1]]
        if (number or whole) and (raw or at + 1 < start + len(data)):
            text = raw[:_READ].decode("utf-8", errors="replace").replace("\0", "\ufffd")
            yield LogLine(at, level, text.rstrip("\r"))
        at += len(raw) + 1


def select(
    lines: Iterable[LogLine],
    *,
    words: str,
    least: Level | None,
    most: int,
    mask: Callable[[str], str],
) -> tuple[list[LogLine], bool]:
    """Return the newest lines with the words, of entries that grave, masked; and whether all.

    A line must hold the words once it is masked, too: a search never tells what a secret is.
    """
    wanted = words.casefold()
    kept: deque[LogLine] = deque(maxlen=most)
    count = 0
    for line in lines:
        if least is not None and (line.level is None or line.level < least):
            continue
        if wanted and wanted not in line.text.casefold():
            continue
        shown = mask(line.text)
        if wanted and wanted not in shown.casefold():
            continue
        shown = f"{shown[:LINE_LIMIT]}…" if len(shown) > LINE_LIMIT else shown
        kept.append(LogLine(line.at, line.level, shown))
        count += 1
    return list(kept), count <= most
