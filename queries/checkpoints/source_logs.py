"""The log that a file source keeps in `sources/<i>`: which files were read as which entry.

An entry's number is the source's own `logOffset`, not a batch: after a crash they differ. The
log is compacted now and then (`19.compact` holds all entries up to 19). Other sources keep
their first offsets there, one file, and nothing else.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One file that a source has taken."""

    path: str
    modified_ms: int  # the file's own time when it was found
    entry: int  # the log's own number of it, as the line says ("batchId")


def log_offset(end: Any) -> int | None:
    """Return the `logOffset` of a file source's offset; None for any other source's."""
    if isinstance(end, dict) and set(end) == {"logOffset"} and isinstance(end["logOffset"], int):
        return end["logOffset"]
    return None


def numbered(name: str) -> int | None:
    """Return the number of an entry or of a compacted one; None for any other file."""
    number = name.removesuffix(".compact")
    return int(number) if number.isdigit() else None


def kept_names(folder: Path, names: list[str], end: Any) -> list[str]:
    """Return which of a source's files belong to a batch that ends at `end`, newest first.

    A file source's entries beyond `end` would be read as one batch, so they are left out; of
    any other source all is kept.
    """
    visible = [name for name in names if not name.startswith(".")]
    upto = log_offset(end)
    if upto is None:
        if end is not None or not _is_file_log(folder, visible):
            return visible
        upto = -1
    found = [(number, name) for name in visible if (number := numbered(name)) is not None]
    return [name for number, name in sorted(found, reverse=True) if number <= upto]


def is_whole(names: list[str], upto: int) -> bool:
    """Return whether the entries reach from the newest compacted one (or 0) to `upto`."""
    have = {number for name in names if (number := numbered(name)) is not None}
    compacted = [numbered(name) for name in names if name.endswith(".compact")]
    base = max((number for number in compacted if number is not None and number <= upto), default=0)
    return all(number in have for number in range(base, upto + 1))


def entries(folder: Path, after: int, upto: int, *, limit: int) -> list[ReadFile]:
    """Return the files of the entries in (after, upto], at most `limit` of them.

    What has been compacted away is looked up in the compacted file above it.
    """
    found: list[ReadFile] = []
    for number in range(after + 1, upto + 1):
        for read in _entry(folder, number):
            found.append(read)
            if len(found) >= limit:
                return found
    return found


def _entry(folder: Path, number: int) -> Iterator[ReadFile]:
    text = _text(folder / str(number)) or _text(folder / f"{number}.compact")
    if text is None:
        text = _text(_compacted_above(folder, number))
    for read in _lines(text or ""):
        if read.entry == number:
            yield read


def _compacted_above(folder: Path, number: int) -> Path | None:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    above = [found for name in names if name.endswith(".compact") if (found := numbered(name))]
    best = min((found for found in above if found >= number), default=None)
    return folder / f"{best}.compact" if best is not None else None


def _lines(text: str) -> Iterator[ReadFile]:
    for line in text.split("\n")[1:]:
        if not line.strip():
            continue
        about = json.loads(line)
        yield ReadFile(about["path"], about.get("timestamp", 0), about.get("batchId", -1))


def _is_file_log(folder: Path, names: list[str]) -> bool:
    """Tell a file source's log by its first line with content."""
    for name in names:
        lines = (_text(folder / name) or "").split("\n")
        if len(lines) > 1 and lines[1].strip():
            return lines[1].startswith('{"path":')
    return False


def _text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
