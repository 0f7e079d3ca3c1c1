"""The batches of a checkpoint, read from its logs a page at a time, without Spark.

Works under every trigger: micro-batches have a time and a watermark of their own, epochs of
continuous processing only their files' times, async progress tracking leaves gaps.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from queries.checkpoints import source_logs
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.replayable import pinned_configuration
from queries.checkpoints.source_files import exists
from queries.domain.checkpoints.logs import Unreadable
from queries.domain.kafka.offset_ranges import Range, ranges, records

#: "uncommitted": begun without a commit, though later batches have one (async progress).
State = Literal["committed", "in flight", "uncommitted", "unreadable"]
#: Files of a batch that are listed; beyond it only their count is shown.
FILES_AT_MOST = 500


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as the logs tell it."""

    number: int
    state: State
    begun_at: datetime | None
    committed_at: datetime | None
    watermark: datetime | None  # that held in it
    sources: dict[str, Any]  # place or name -> end offset as Spark wrote it
    ranges: tuple[Range, ...]  # Kafka: what it read of each partition
    records: int | None  # Kafka: their sum, where every start is known
    left_out_before: int  # batches before it that the log does not hold, above the oldest it does
    problem: str = ""

    @property
    def took_s(self) -> float | None:
        """Seconds from its offsets to its commit, by the files' times."""
        if self.begun_at is None or self.committed_at is None:
            return None
        return max(0.0, (self.committed_at - self.begun_at).total_seconds())


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file that a batch read."""

    source: str
    path: str
    modified_at: datetime
    there: bool | None  # still there; None: not on a local file system


@dataclass(frozen=True, slots=True)
class Difference:
    """Two batches compared; `one` is the earlier."""

    one: Batch
    other: Batch
    ranges: tuple[Range, ...]  # what was read after `one`, up to and with `other`
    records: int | None
    conf: tuple[tuple[str, str, str], ...]  # (key, then, later): what the log pins differently


def page(logs: CheckpointLogs, *, before: int | None = None, limit: int = 50) -> list[Batch]:
    """Return batches, newest first, those below `before` where it is given."""
    begun = logs.begun()
    committed = set(logs.committed())
    upto = len(begun) if before is None else bisect.bisect_left(begun, before)
    chosen = range(max(0, upto - limit), upto)
    return [_batch(logs, begun, place, committed) for place in reversed(chosen)]


def one(logs: CheckpointLogs, number: int) -> Batch | None:
    """Return one batch; None where the log does not hold it."""
    begun = logs.begun()
    place = bisect.bisect_left(begun, number)
    if place == len(begun) or begun[place] != number:
        return None
    return _batch(logs, begun, place, set(logs.committed()))


def files_of(logs: CheckpointLogs, number: int) -> list[BatchFile]:
    """Return the files that a batch read, of all its file sources, at most `FILES_AT_MOST`."""
    begun = logs.begun()
    place = bisect.bisect_left(begun, number)
    earlier = begun[place - 1] if place > 0 else None
    if earlier is None and number > 0:
        return []  # where it began is purged: what stands there is not this batch's alone
    return files_between(logs, earlier, number)


def read_nothing(logs: CheckpointLogs, number: int) -> bool:
    """Return whether a batch ended at the offsets of the one before it.

    Such a batch moves the watermark on. False where one of the two cannot be read.
    """
    before, after = logs.readable_offsets(number - 1), logs.readable_offsets(number)
    return before is not None and after is not None and before.sources == after.sources


def files_between(logs: CheckpointLogs, earlier: int | None, number: int) -> list[BatchFile]:
    """Return the files read after batch `earlier`, up to and with batch `number`.

    None for `earlier` is the beginning; at most `FILES_AT_MOST`.
    """
    after = logs.readable_offsets(number)
    before = logs.readable_offsets(earlier) if earlier is not None else None
    if after is None or (before is None and earlier is not None):
        return []
    found: list[BatchFile] = []
    for source, end in after.sources.items():
        upto = source_logs.log_offset(end)
        if upto is None:
            continue
        start = source_logs.log_offset(before.sources.get(source)) if before else None
        read = source_logs.entries(
            logs.root / "sources" / source,
            -1 if start is None else start,
            upto,
            limit=FILES_AT_MOST - len(found),
        )
        found += [
            BatchFile(source, each.path, _moment(each.modified_ms), exists(each.path))
            for each in read
        ]
    return found


def compare(logs: CheckpointLogs, first: int, second: int) -> Difference | None:
    """Return two batches and what is between; None where the log lacks one of them."""
    low, high = sorted((first, second))
    one_, other = one(logs, low), one(logs, high)
    before, after = logs.readable_offsets(low), logs.readable_offsets(high)
    if one_ is None or other is None or before is None or after is None:
        return None
    found = tuple(ranges(before.sources, after.sources))
    return Difference(
        one=one_,
        other=other,
        ranges=found,
        records=records(found),
        conf=tuple(
            (key, before.conf.get(key, ""), after.conf.get(key, ""))
            for key in sorted(before.conf.keys() | after.conf.keys())
            if before.conf.get(key) != after.conf.get(key)
        ),
    )


def pinned(logs: CheckpointLogs) -> dict[str, str]:
    """Return the configuration that the newest batch pins; {} where there is none."""
    newest = max(logs.begun(), default=None)
    return {} if newest is None else pinned_configuration(logs, newest)


def _batch(logs: CheckpointLogs, begun: Sequence[int], place: int, committed: set[int]) -> Batch:
    number = begun[place]
    earlier = begun[place - 1] if place > 0 else None
    problem = ""
    offsets = None
    try:
        offsets = logs.offsets(number)
    except Unreadable as error:
        problem = str(error)
    before = logs.readable_offsets(earlier) if earlier is not None else None
    sources = offsets.sources if offsets else {}
    known = before.sources if before else {}
    found = tuple(ranges(known, sources)) if before or number == 0 else ()
    state: State = "in flight" if number > max(committed, default=-1) else "uncommitted"
    if number in committed:
        state = "committed"
    stamp = offsets.timestamp_ms if offsets else None
    mark = offsets.watermark_ms if offsets else None
    return Batch(
        number=number,
        state="unreadable" if problem else state,
        begun_at=_moment(stamp) if stamp else logs.written_at("offsets", number),
        committed_at=logs.written_at("commits", number) if number in committed else None,
        watermark=_moment(mark) if mark else None,
        sources=sources,
        ranges=found,
        records=records(found),
        left_out_before=number - earlier - 1 if earlier is not None else 0,
        problem=problem,
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
