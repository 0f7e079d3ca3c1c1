"""Read the log of a file source in `sources/<i>`: which files were read in which entry.

An entry's number is the source's own `logOffset`, not a batch number: after a crash, the two
differ. The log is compacted from time to time (`19.compact` contains all entries up to 19). Other
sources store only their first offsets in `sources/<i>`, in one file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headgate_ground.files import NotPlain, read_bytes, read_file
from headgate_ground.tolerant import count, whole
from queries.checkpoints.logs import names_in
from queries.domain.kafka.offsets import is_kafka


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One file that a source has read."""

    path: str
    modified_ms: int | None  # the file's own time when it was found; None: missing in the line
    entry: int  # its number in the log, from the line ("batchId")
    problem: str = ""  # why the line cannot be read; `path` identifies the line


def first_offsets(folder: Path) -> dict[str, dict[str, int]]:
    """Return a Kafka source's first offsets, topic -> partition -> offset; {} if not stored.

    The format is defined by Spark's KafkaSourceInitialOffsetWriter: a zero byte, a version, then
    the offsets as JSON.
    """
    try:
        offsets = orjson.loads(read_bytes(folder / "0", within=folder).decode().partition("\n")[2])
    except (OSError, ValueError):
        return {}
    return offsets if is_kafka(offsets) else {}


def log_offset(end: Any) -> int | None:
    """Return the `logOffset` in a file source's offset; None for other sources."""
    return count(end["logOffset"]) if isinstance(end, dict) and set(end) == {"logOffset"} else None


def numbered(name: str) -> int | None:
    """Return the number in the name of a plain or compacted entry; None for any other file."""
    number = name.removesuffix(".compact")
    return whole(number)


def newest_entries(names: Iterable[str]) -> list[str]:
    """Return the files that contain all entries of a log: the newest compacted, and later ones."""
    files = sorted(
        (number, name.endswith(".compact"), name)
        for name in names
        if (number := numbered(name)) is not None
    )
    compacted = (at for at, (_, is_compacted, _) in enumerate(files) if is_compacted)
    return [name for _, _, name in files[max(compacted, default=0) :]]


def names_up_to(folder: Path, names: list[str], end: Any) -> list[str]:
    """Return those of a source's files that belong to a batch that ends at `end`, newest first.

    A file source's entries after `end` would be read as one batch, so they are omitted; for other
    sources, all files belong to the batch.
    """
    visible = [name for name in names if not name.startswith(".")]
    upto = log_offset(end)
    if upto is None:
        if end is not None or not _is_file_log(folder, visible):
            return visible
        upto = -1
    numbered_names = [(number, name) for name in visible if (number := numbered(name)) is not None]
    return [name for number, name in sorted(numbered_names, reverse=True) if number <= upto]


def is_whole(folder: Path, upto: int) -> bool:
    """Return whether the entries are complete from the newest compacted one (or 0) to `upto`."""
    names = names_in(folder)
    have = {number for name in names if (number := numbered(name)) is not None}
    compacted = [numbered(name) for name in names if name.endswith(".compact")]
    base = max((number for number in compacted if number is not None and number <= upto), default=0)
    if not all(number in have for number in range(base, upto + 1)):
        return False
    entries_needed = (
        f"{n}.compact" if f"{n}.compact" in names else str(n) for n in range(base, upto + 1)
    )
    return not any(read.problem for name in entries_needed for read in _lines(folder, name))


def entries(folder: Path, after: int, upto: int, *, limit: int) -> list[ReadFile]:
    """Return the files in the entries in (after, upto], at most `limit` of them.

    Entries that were compacted away are looked up in the next compacted file, which is read only
    once.
    """
    names = set(names_in(folder))
    compacted = sorted(number for name in names if (number := _compacted(name)) is not None)
    files: list[ReadFile] = []
    number = after + 1
    while number <= upto and len(files) < limit:
        if str(number) in names:
            files += _lines(folder, str(number))
            number += 1
            continue
        above = next((entry_number for entry_number in compacted if entry_number >= number), None)
        if above is None:
            break
        last = min(upto, above)
        lines = _lines(folder, f"{above}.compact")
        files += [read for read in lines if read.problem or number <= read.entry <= last]
        number = last + 1
    return files[:limit]


def _compacted(name: str) -> int | None:
    return numbered(name) if name.endswith(".compact") else None


def _lines(folder: Path, name: str) -> Iterator[ReadFile]:
    """Yield the files in an entry, with a problem for each unreadable line."""
    version, *lines = _text(folder / name).rstrip("\n").split("\n")
    if version != "v1":
        yield ReadFile(
            f"entry {name}", None, -1, ("The entry is truncated, or not a version 1 log.")
        )
        return
    for line_number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        try:
            about = orjson.loads(line)
        except ValueError:
            about = None
        if isinstance(about, dict) and isinstance(path := about.get("path"), str):
            entry = count(about.get("batchId"))
            yield ReadFile(path, count(about.get("timestamp")), -1 if entry is None else entry)
        else:
            yield ReadFile(
                f"entry {name}, line {line_number}",
                None,
                -1,
                ("The entry is truncated or corrupted."),
            )


def _text(path: Path) -> str:
    """Return an entry's text; "" if the entry is gone, is a link, or is not text."""
    try:
        return read_file(path, within=path.parent) or ""
    except (NotPlain, UnicodeDecodeError):
        return ""


def _is_file_log(folder: Path, names: list[str]) -> bool:
    """Recognize a file source's log by its first non-empty line."""
    for name in names:
        lines = _text(folder / name).split("\n")
        if len(lines) > 1 and lines[1].strip():
            return lines[1].startswith('{"path":')
    return False
