"""A checkpoint's logs: how their text is parsed, the offsets in them, and a driver's report of
them.

The first line of every file is the log's version. In an offset log, one line of JSON follows (blank
for continuous processing), then one line per source: its offset, or "-" for none. Version 2 puts a
name and a colon before the offset. A commit log has one line of JSON. An offset is JSON, or any
other string that the source writes.

Source: Spark 4.3's OffsetSeqLog (versions 1 and 2) and CommitLog (1 to 3), verified with
checkpoints that it wrote.

Spark 4.3 reads the offsets of the batch before the newest one it finds; with async progress
tracking it uses whichever batch precedes that one in the log.

The driver writes one such file for each checkpoint that is not local, next to its status, and
replaces it atomically. Users' code runs in the driver and can write anything there: `parse` accepts
only a report of a bounded size whose every value has the right type.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import orjson

from headgate_ground.tolerant import at_ms, count, time_of
from queries.domain.errors import NotAllowed

_OFFSET_VERSIONS = ("v1", "v2")
_COMMIT_VERSIONS = ("v1", "v2", "v3")
#: A source's name, which is also a folder name in `sources/`, so it is never a path.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_S3_FILE = re.compile(r'"path":"s3://([^"]*)"', re.IGNORECASE)
_WILDCARD = re.compile(r"[*?\[{]")
#: Scala maps keep up to this many entries in order, and with them the plan's order.
_IN_ORDER = 4


class UnreadableLog(NotAllowed, ValueError):
    """The content is not a log file of this kind; the message says what was found."""


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
        expected_versions = f"{', '.join(versions[:-1])} or {versions[-1]}"
        raise UnreadableLog(
            f"batch {batch}: the log begins with {version[:40]!r}, not {expected_versions}"
        )
    return version, lines


def _object(batch: int, line: str) -> dict[str, Any]:
    value = _json(batch, line)
    if not isinstance(value, dict):
        raise UnreadableLog(f"batch {batch}: {line[:80]!r} is not an object")
    return value


def _json(batch: int, line: str) -> Any:
    """Return a line's value; orjson accepts only values that can be written and stored again."""
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
    """Return an offset: parsed if it looks like JSON, otherwise the string the source wrote."""
    if text.strip() in ("-", ""):
        return None
    if text.lstrip()[0] in '{["':
        return _json(batch, text)
    try:
        return orjson.loads(text)
    except ValueError:
        return text  # from a source that does not write JSON


def missing_batch(begun: Sequence[int]) -> int | None:
    """Return the missing batch whose offsets Spark would need without async tracking.

    `begun` are the batches in `offsets/`, in order. The result is the batch before the newest if
    that one is missing; None if a start without async tracking would work.
    """
    if not begun or begun[-1] == 0:
        return None
    before = begun[-1] - 1
    return before if before not in begun[-2:] else None


def resumed_after(
    begun: Sequence[int], committed: Sequence[int], *, in_gaps: bool = True
) -> int | None:
    """Return the batch whose end offsets a start would resume from; None for the beginning.

    Spark resumes after the newest batch that has offsets, if that batch was committed too.
    Otherwise it reruns that batch, starting from the end of the previous batch in the log
    (`in_gaps`) or of the batch with the previous ID.
    """
    if not begun:
        return None
    newest = begun[-1]
    if newest in committed:
        return newest
    if in_gaps:
        return begun[-2] if len(begun) > 1 else None
    return newest - 1 if newest else None


def beyond(end: Any, start: Any) -> bool:
    """Return whether an offset is beyond another offset of the same source, in any partition."""
    between = records_between(start, end)
    if between is not None:
        return between > 0
    return bool(end != start)


def records_between(start: Any, end: Any) -> int | None:
    """Return the number of offsets between `start` and `end`; None if they cannot be counted.

    Numbers and Kafka's objects of topics and partitions can be counted. A partition missing from
    `start` is counted from 0; a partition whose value is not a number cannot be counted.
    """
    if _offset_number(start) and _offset_number(end):
        return max(0, int(end) - int(start))
    if start is None or not isinstance(start, Mapping) or not isinstance(end, Mapping):
        return None
    total = 0
    for topic, partitions in end.items():
        before = start.get(topic, {})
        if not isinstance(partitions, Mapping) or not isinstance(before, Mapping):
            return None
        for partition, offset in partitions.items():
            first = before.get(partition, 0)
            if not _offset_number(offset) or not _offset_number(first):
                return None
            total += max(0, int(offset) - int(first))
    return total


def _offset_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


#: Newest entries of each log in a report: as many batches as Spark retains by default.
MOST_ENTRIES = 100
#: Characters of offsets in a report, newest batches first. The offsets of a batch of 1,000 Kafka
#: partitions have about 15,000 characters.
MOST_OFFSETS = 256 * 1024
#: Characters of a report: twice its offsets, because JSON text within JSON is escaped.
MOST_OF_REPORT = 4 * MOST_OFFSETS


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One file of a log."""

    batch: int
    written_ms: int  # modification time
    text: str | None = None  # of `offsets/BATCH`, shortened; None: left out, or a commit
    began_ms: int | None = None  # the batch's own time; None: not in the log, or unknown


@dataclass(frozen=True, slots=True)
class LogReport:
    """The newest entries of both logs of a checkpoint, oldest first."""

    location: str
    at: str  # ISO 8601 UTC, before the logs were read
    ended: bool = False  # the query had ended before: its run has written nothing later
    offsets: tuple[LogEntry, ...] = ()
    commits: tuple[LogEntry, ...] = ()

    @property
    def seen_at(self) -> datetime | None:
        """Return when the logs were read."""
        return time_of(self.at)


def report_file(location: str) -> str:
    """Return the name of the report's file in the driver's own folder."""
    return f"checkpoint-log-{sha256(location.encode()).hexdigest()[:16]}.json"


def shortened(batch: int, text: str) -> tuple[str | None, int | None]:
    """Return an offset log without the pinned configuration, and the batch's time.

    (None, None) if it is not an offset log.
    """
    try:
        offsets = read_offsets(batch, text)
    except UnreadableLog:
        return None, None
    version, _, *sources = text.rstrip("\n").split("\n")
    about = {"batchTimestampMs": offsets.timestamp_ms, "batchWatermarkMs": offsets.watermark_ms}
    metadata = json.dumps({name: value for name, value in about.items() if value is not None})
    return "\n".join((version, metadata, *sources)), offsets.timestamp_ms


def within_limit(entries: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
    """Return the entries, with text for the newest only, up to `MOST_OFFSETS` characters."""
    shortened_entries, left = [], MOST_OFFSETS
    for entry in reversed(entries):
        left -= len(entry.text or "")
        shortened_entries.append(
            entry if left >= 0 else LogEntry(entry.batch, entry.written_ms, None, entry.began_ms)
        )
    return tuple(reversed(shortened_entries))


def parse(text: str, location: str) -> LogReport:
    """Return the report on a checkpoint in `text`; raise ValueError if it is not a valid one."""
    try:
        raw = json.loads(text) if len(text) <= MOST_OF_REPORT else None
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(raw, dict) or raw.get("location") != location or not time_of(raw.get("at")):
        raise ValueError("it is not a report on this checkpoint")
    return LogReport(
        location=location,
        at=raw["at"],
        ended=raw.get("ended") is True,
        offsets=_entries(raw.get("offsets")),
        commits=_entries(raw.get("commits")),
    )


def _entries(raw: Any) -> tuple[LogEntry, ...]:
    if not isinstance(raw, list) or len(raw) > MOST_ENTRIES:
        raise ValueError(f"a log is not a list of at most {MOST_ENTRIES} entries")
    entries = tuple(_entry(entry) for entry in raw)
    if any(entry.batch >= after.batch for entry, after in pairwise(entries)):
        raise ValueError("the batches of a log are not in order")
    return entries


def _entry(raw: Any) -> LogEntry:
    fields: Mapping[str, Any] = raw if isinstance(raw, dict) else {}
    batch, written = count(fields.get("batch")), count(fields.get("written_ms"))
    text, began = fields.get("text"), fields.get("began_ms")
    if batch is None or written is None or at_ms(written) is None:
        raise ValueError("an entry has no batch, or no time")
    if not isinstance(text, str | None) or (began is not None and at_ms(count(began)) is None):
        raise ValueError(f"the entry of batch {batch} has a value of the wrong type")
    return LogEntry(batch, written, text, began)


def file_named_s3(log: str, paths: Iterable[str]) -> str:
    """Return a file under its `s3://` name from an entry of a file source's or file sink's log.

    "" if no such file is in one of `paths`, which begin with `s3a://` and may contain wildcards:
    EMR wrote these names, and Spark does not recognize the same files under the names with `s3a`.
    """
    folders = tuple(_fixed(path) for path in paths)
    names = (match[1] for match in _S3_FILE.finditer(log))
    return next((f"s3://{one}" for one in names if f"{_plain(one)}/".startswith(folders)), "")


def _fixed(path: str) -> str:
    """Return an `s3a://` path without its scheme, up to the last folder before a wildcard.

    It ends with "/": a folder `in` does not contain the files of `in2`.
    """
    name = _plain(path.strip()[len("s3a://") :])
    wildcard = _WILDCARD.search(name)
    return name[: name.rfind("/", 0, wildcard.start()) + 1] if wildcard else name.rstrip("/") + "/"


def _plain(name: str) -> str:
    return re.sub("/+", "/", unquote(name))
