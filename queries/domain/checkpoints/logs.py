"""Read the text of a checkpoint's log files, of both log versions.

Line 1 of every file is the log's version. In an offset log one line of JSON follows (blank
for continuous processing), then one line per source: JSON, "-" for none, or "name:JSON" where
the log names its sources (version 2). A commit log has one line of JSON.
Source: Spark 4.3's OffsetSeqLog and CommitLog, seen on checkpoints that it wrote.
"""

import json
from dataclasses import dataclass, field
from typing import Any


class Unreadable(ValueError):
    """The text is not such a log file; the message says what was found."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """One batch that was started: up to where each source is read."""

    batch: int
    version: str  # "v1", "v2"
    sources: dict[str, Any]  # place ("0", "1"…) or name -> end offset as Spark writes it
    timestamp_ms: int | None = None  # the batch's own time; None for continuous
    watermark_ms: int | None = None  # that held in the batch; 0: none yet
    conf: dict[str, str] = field(default_factory=dict)  # configuration that the log pins


@dataclass(frozen=True, slots=True)
class Commit:
    """One batch that is done."""

    batch: int
    version: str
    next_watermark_ms: int | None = None
    state_ids: dict[str, Any] = field(default_factory=dict)  # version 2: operator -> unique ids


def read_offsets(batch: int, text: str) -> Offsets:
    """Return what `offsets/BATCH` says; raise `Unreadable` if it is truncated or another file."""
    version, lines = _lines(batch, text)
    about = _object(batch, lines[0]) if lines and lines[0].strip() else {}
    return Offsets(
        batch=batch,
        version=version,
        sources=dict(_source(place, line) for place, line in enumerate(lines[1:])),
        timestamp_ms=about.get("batchTimestampMs"),
        watermark_ms=about.get("batchWatermarkMs"),
        conf=about.get("conf") or {},
    )


def first_offsets(text: str) -> Any:
    """Return the offset that a Kafka source begins at, as `sources/PLACE/0` keeps it; else None.

    A zero byte, the version, and JSON. Source: Spark's KafkaSourceInitialOffsetWriter.
    """
    version, _, offset = text.lstrip("\0").partition("\n")
    if not version.startswith("v"):
        return None
    try:
        return json.loads(offset)
    except ValueError:
        return None  # another source's log, or truncated


def read_commit(batch: int, text: str) -> Commit:
    """Return what `commits/BATCH` says; raise `Unreadable` if it is truncated or another file."""
    version, lines = _lines(batch, text)
    about = _object(batch, lines[0]) if lines and lines[0].strip() else {}
    return Commit(
        batch=batch,
        version=version,
        next_watermark_ms=about.get("nextBatchWatermarkMs"),
        state_ids=about.get("stateUniqueIds") or {},
    )


def _lines(batch: int, text: str) -> tuple[str, list[str]]:
    version, *lines = text.rstrip("\n").split("\n")
    if version not in ("v1", "v2"):
        raise Unreadable(f"batch {batch}: the log begins with {version[:40]!r}, not v1 or v2")
    return version, lines


def _object(batch: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise Unreadable(f"batch {batch}: {line[:80]!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable(f"batch {batch}: {line[:80]!r} is not an object")
    return found


def _source(place: int, line: str) -> tuple[str, Any]:
    if line.strip() in ("-", ""):
        return str(place), None
    try:
        return str(place), json.loads(line)
    except ValueError:
        name, _, rest = line.partition(":")
        try:
            return name, json.loads(rest)
        except ValueError:
            return str(place), line  # an offset of a source that writes no JSON
