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

from queries.checkpoints.logs import names_in
from queries.domain.kafka.offset_ranges import is_kafka
from queries.files import read_bytes, read_file


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One file that a source has taken."""

    path: str
    modified_ms: int  # the file's own time when it was found
    entry: int  # the log's own number of it, as the line says ("batchId")


def first_offsets(folder: Path) -> dict[str, dict[str, int]]:
    """Return where a Kafka source began, topic -> partition -> offset; {} where it is not kept.

    Spark's KafkaSourceInitialOffsetWriter: a zero byte, a version, then the offsets as JSON.
    """
    try:
        found = json.loads(read_bytes(folder / "0").decode().partition("\n")[2])
    except (OSError, ValueError):
        return {}
    return found if is_kafka(found) else {}


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
    any other source all belong.
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

    What has been compacted away is looked up in the compacted file above it, read once.
    """
    names = set(names_in(folder))
    compacted = sorted(number for name in names if (number := _compacted(name)) is not None)
    found: list[ReadFile] = []
    number = after + 1
    while number <= upto and len(found) < limit:
        if str(number) in names:
            found += _lines(read_file(folder / str(number)) or "")
            number += 1
            continue
        above = next((each for each in compacted if each >= number), None)
        if above is None:
            break
        last = min(upto, above)
        text = read_file(folder / f"{above}.compact") or ""
        found += [read for read in _lines(text) if number <= read.entry <= last]
        number = last + 1
    return found[:limit]


def _compacted(name: str) -> int | None:
    return numbered(name) if name.endswith(".compact") else None


def _lines(text: str) -> Iterator[ReadFile]:
    for line in text.split("\n")[1:]:
        if not line.strip():
            continue
        about = json.loads(line)
        yield ReadFile(about["path"], about.get("timestamp", 0), about.get("batchId", -1))


def _is_file_log(folder: Path, names: list[str]) -> bool:
    """Tell a file source's log by its first line with content."""
    for name in names:
        lines = (read_file(folder / name) or "").split("\n")
        if len(lines) > 1 and lines[1].strip():
            return lines[1].startswith('{"path":')
    return False
