"""The report of a driver on the logs of a checkpoint that only it can read.

The driver writes one such file for each checkpoint that is not local, next to its status, and
replaces it as a whole. Users' code runs in the driver and can write anything there: `parse` accepts
only a report of a bounded size whose every value has the right type.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any

from headgate_ground.tolerant.values import at_ms, count, time_of
from queries.domain.checkpoints.logs import UnreadableLog, read_offsets

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

    (None, None) if the text is not an offset log.
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
    """Return entries with the texts of the newest ones only, `MOST_OFFSETS` characters in all."""
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
