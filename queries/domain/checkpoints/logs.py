"""Parse the text of a checkpoint's log files, in every log version that Spark 4.3 reads.

The first line of every file is the log's version. In an offset log, one line of JSON follows (blank
for continuous processing), then one line per source: its offset, or "-" for none. Version 2 puts a
name and a colon before the offset. A commit log has one line of JSON. An offset is JSON, or any
other text that the source writes.

Source: Spark 4.3's OffsetSeqLog (versions 1 and 2) and CommitLog (1 to 3), verified with
checkpoints that it wrote.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from headgate_ground.tolerant.values import count
from queries.domain.errors import NotAllowed

_OFFSET_VERSIONS = ("v1", "v2")
_COMMIT_VERSIONS = ("v1", "v2", "v3")
#: A source's name, which is also a folder name in `sources/`, so it is never a path.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
#: Scala maps keep up to this many entries in order, and with them the plan's order.
_IN_ORDER = 4


class UnreadableLog(NotAllowed, ValueError):
    """The text is not a log file of this kind; the message says what was found."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """One started batch: how far each source is read."""

    batch: int
    version: str  # "v1" or "v2"
    sources: dict[str, Any]  # place ("0", "1"…) or name -> end offset as Spark writes it
    timestamp_ms: int | None = None  # the batch's own time; None for continuous
    watermark_ms: int | None = None  # the watermark during the batch; 0: none yet
    conf: dict[str, str] = field(default_factory=dict)  # configuration pinned by the log


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One committed batch."""

    batch: int
    version: str
    next_watermark_ms: int | None = None
    state_ids: dict[str, Any] = field(default_factory=dict)  # version 2: operator -> unique ids


def read_offsets(batch: int, text: str) -> Offsets:
    """Return the contents of `offsets/BATCH`; raise `UnreadableLog` if it is not an offset log."""
    version, lines = _lines(batch, text, _OFFSET_VERSIONS)
    about = _object(batch, lines[0]) if lines and lines[0].strip() else {}
    if len(lines) < 2:
        raise UnreadableLog(f"batch {batch}: the log is truncated: it does not contain any source")
    conf = about.get("conf") or {}
    if not isinstance(conf, dict) or not all(isinstance(value, str) for value in conf.values()):
        raise UnreadableLog(f"batch {batch}: conf is not an object whose values are strings")
    return Offsets(
        batch=batch,
        version=version,
        sources=dict(
            _named(batch, line) if version == "v2" else (str(index), _offset(batch, line))
            for index, line in enumerate(lines[1:])
        ),
        timestamp_ms=_number(batch, about, "batchTimestampMs"),
        watermark_ms=_number(batch, about, "batchWatermarkMs"),
        conf=conf,
    )


def first_offsets(text: str) -> Any:
    """Return a Kafka source's first offset, from `sources/PLACE/0`; None for other sources.

    The format is a zero byte, the version, and JSON. Source: Spark's
    KafkaSourceInitialOffsetWriter.
    """
    version, _, offset = text.lstrip("\0").partition("\n")
    if not version.startswith("v"):
        return None
    try:
        return orjson.loads(offset)
    except ValueError:
        return None  # another source's log, or truncated


def read_commit(batch: int, text: str) -> CommittedBatch:
    """Return the contents of `commits/BATCH`; raise `UnreadableLog` if it is not a commit log."""
    version, lines = _lines(batch, text, _COMMIT_VERSIONS)
    about = _object(batch, lines[0]) if lines and lines[0].strip() else {}
    ids = about.get("stateUniqueIds") or {}
    if not isinstance(ids, dict):
        raise UnreadableLog(f"batch {batch}: stateUniqueIds is not an object")
    return CommittedBatch(
        batch=batch,
        version=version,
        next_watermark_ms=_number(batch, about, "nextBatchWatermarkMs"),
        state_ids=ids,
    )


def is_upgrade(before: Offsets | None, after: Offsets | None) -> bool:
    """Return whether the log was upgraded from places to named sources between two batches."""
    return (
        before is not None
        and after is not None
        and (before.version, after.version)
        == (
            "v1",
            "v2",
        )
    )


def begun_at(before: Offsets | None, after: Offsets) -> dict[str, Any]:
    """Return the offsets at which a batch begins (the previous one's end), by its source names.

    After the log has been upgraded to named sources, place N is the Nth name, provided that there
    are as many names as places, and few enough for the log to keep their order. Return {} if this
    cannot be determined.
    """
    if before is None:
        return {}
    if not is_upgrade(before, after) or before.sources.keys() & after.sources.keys():
        return before.sources
    if len(before.sources) != len(after.sources) or len(after.sources) > _IN_ORDER:
        return {}
    return dict(zip(after.sources, before.sources.values(), strict=True))


def _lines(batch: int, text: str, versions: tuple[str, ...]) -> tuple[str, list[str]]:
    version, *lines = text.rstrip("\n").split("\n")
    if version not in versions:
        expected = f"{', '.join(versions[:-1])} or {versions[-1]}"
        raise UnreadableLog(f"batch {batch}: the log begins with {version[:40]!r}, not {expected}")
    return version, lines


def _object(batch: int, line: str) -> dict[str, Any]:
    value = _json(batch, line)
    if not isinstance(value, dict):
        raise UnreadableLog(f"batch {batch}: {line[:80]!r} is not an object")
    return value


def _json(batch: int, line: str) -> Any:
    """Return a line's value; orjson accepts only what can be written and stored again."""
    try:
        return orjson.loads(line)
    except ValueError as error:
        raise UnreadableLog(f"batch {batch}: {line[:80]!r} is not JSON: {error}") from error


def _number(batch: int, about: dict[str, Any], name: str) -> int | None:
    value = about.get(name)
    if value is not None and count(value) is None:
        raise UnreadableLog(f"batch {batch}: {name} is {str(value)[:40]!r}, not milliseconds")
    return count(value)


def _named(batch: int, line: str) -> tuple[str, Any]:
    name, colon, offset = line.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise UnreadableLog(f"batch {batch}: {line[:80]!r} does not begin with a source's name")
    return name, _offset(batch, offset)


def _offset(batch: int, text: str) -> Any:
    """Return an offset: parsed if it looks like JSON, otherwise the text that the source wrote."""
    if text.strip() in ("-", ""):
        return None
    if text.lstrip()[0] in '{["':
        return _json(batch, text)
    try:
        return orjson.loads(text)
    except ValueError:
        return text  # from a source that does not write JSON
