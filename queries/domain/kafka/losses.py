"""Find records that a query never read, from Spark's messages, offsets and row counts.

There are three signs of loss. Spark's own failure reports partitions and offsets. A committed
offset below the broker's earliest is a gap. With `failOnDataLoss=false`, where Spark reports
nothing, a batch has skipped a gap if it read fewer rows than its offsets span and began below the
broker's earliest offset.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate_ground.tolerant import count
from queries.domain.failures.error_text import bounded
from queries.domain.kafka.lag import PartitionLook, deleted_unread, is_new, kafka_offsets

Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, order=True)
class OffsetGap:
    """Offsets [first, until) of one partition that can no longer be read."""

    topic: str
    partition: int
    first: int
    until: int

    @property
    def offsets(self) -> int:
        """Return the number of offsets in the gap."""
        return self.until - self.first


@dataclass(frozen=True, slots=True)
class SkippedOffsets:
    """What one batch skipped silently in a source."""

    topic: str
    gaps: tuple[OffsetGap, ...]  # empty if the offsets are unknown
    records: int  # number of records not read


def gaps_of(looks: Iterable[PartitionLook]) -> list[OffsetGap]:
    """Return the offsets that were deleted before they were read, by topic and partition.

    Topics that were replaced are left out, because their offsets cannot be compared.
    """
    return sorted(
        OffsetGap(look.topic, look.partition, look.committed, look.earliest)
        for look in looks
        if look.committed is not None
        and look.earliest is not None
        and deleted_unread(look.committed, look.earliest)
        and not is_new(look)
    )


# --- what Spark reports ----------------------------------------------------------------

#: "Could not read records in offset [93635, 104204) for topic partition in-0".
_RANGE = re.compile(r"offset \[(\d+), (\d+)\) for topic partition (\S+)-(\d+)")
#: "Partition flights-0 offset was changed from 500 to 1200", when a batch is planned.
_CHANGED = re.compile(r"Partition (\S+)-(\d+)(?:'s)? offset was changed from (\d+) to (\d+)")
#: "Cannot fetch offset 500 (GroupId: …, TopicPartition: flights-0)", when a task reads.
_FETCH = re.compile(
    r"Cannot fetch offset (\d+) \(GroupId: .{0,400}?, TopicPartition: (\S+)-(\d+)\)"
)


def named_in(text: str) -> list[OffsetGap]:
    """Return the offsets that Spark's message reports as lost, by topic and partition.

    An offset that could not be fetched and has no end is a gap of one offset.
    """
    gaps: dict[tuple[str, int], OffsetGap] = {}

    def note(topic: str, partition: str, first: int, until: int) -> None:
        former = gaps.get((topic, int(partition)))
        if former is not None:
            first, until = min(first, former.first), max(until, former.until)
        if until > first:
            gaps[topic, int(partition)] = OffsetGap(topic, int(partition), first, until)

    text = bounded(text)
    for match in _FETCH.finditer(text):
        note(match[2], match[3], int(match[1]), int(match[1]) + 1)
    for match in _CHANGED.finditer(text):
        note(match[1], match[2], int(match[3]), int(match[4]))
    for match in _RANGE.finditer(text):
        note(match[3], match[4], int(match[1]), int(match[2]))
    return sorted(gaps.values())


def touch(gaps: Iterable[OffsetGap], read: Sequence[OffsetGap]) -> bool:
    """Return whether gaps overlap a failed batch's offsets; True if that is unknown."""
    return not read or any(
        (gap.topic, gap.partition) == (range_read.topic, range_read.partition)
        and max(gap.first, range_read.first) < min(gap.until, range_read.until)
        for gap in gaps
        for range_read in read
    )


# --- what Spark does not report ---------------------------------------------------------


def shortfall(source: Mapping[str, Any]) -> tuple[Offsets, Offsets, int] | None:
    """Return (start, end, missing) for a source that read fewer rows than offsets.

    `source` is an entry of Spark's progress. None for other sources, for a first batch, and for a
    source that read a row for every offset. A source that the plan reads twice counts its rows
    twice.
    """
    start, end = kafka_offsets(source.get("startOffset")), kafka_offsets(source.get("endOffset"))
    rows = source.get("numInputRows")
    if not start or not end or not isinstance(rows, int):
        return None
    missing = span_of(start, end) - rows
    return (start, end, missing) if missing > 0 else None


def read_whole(source: Mapping[str, Any]) -> tuple[Offsets, Offsets] | None:
    """Return (start, end) for a source that read exactly one row per offset.

    `source` is an entry of Spark's progress. None for all other sources: a source that the plan
    reads twice counts its rows twice, which does not prove anything.
    """
    start, end = kafka_offsets(source.get("startOffset")), kafka_offsets(source.get("endOffset"))
    rows = source.get("numInputRows")
    return (start, end) if start and end and rows and rows == span_of(start, end) else None


def span_of(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets between two states; a new partition begins at 0."""
    return sum(
        max(0, until - start.get(topic, {}).get(partition, 0))
        for topic, partitions in end.items()
        for partition, until in partitions.items()
    )


def skipped(
    start: Offsets,
    end: Offsets,
    missing: int,
    *,
    earliest: Offsets,
    ledger: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
) -> list[SkippedOffsets]:
    """Return the deleted offsets that a batch, `missing` rows short, skipped.

    This applies only to topics in which each offset is a record. `earliest` are the broker's first
    offsets after the batch; `ledger` are the ranges [first, until) already in the ledger. At most
    `missing` records count as lost: records deleted after they were read do not.
    """
    rest = missing - _covered(start, end, ledger)
    left = [
        piece
        for gap in _below(start, end, earliest)
        for piece in without(gap, ledger.get((gap.topic, gap.partition), ()))
    ]
    possible = sum(piece.offsets for piece in left)
    if rest <= 0 or not possible:
        return []
    if rest >= possible:
        return _exact(left)
    if len({(piece.topic, piece.partition) for piece in left}) == 1:
        return _exact(_first(left, rest))
    # Records were deleted while it was reading: their number is certain, their offsets are not.
    topics = ", ".join(dict.fromkeys(piece.topic for piece in left))
    return [SkippedOffsets(topics, (), rest)]


def without(gap: OffsetGap, ranges: Iterable[tuple[int, int]]) -> list[OffsetGap]:
    """Return the parts of a gap that no known range [first, until) covers."""
    parts = [(gap.first, gap.until)]
    for first, until in ranges:
        parts = [
            piece
            for low, high in parts
            for piece in ((low, min(high, first)), (max(low, until), high))
            if piece[0] < piece[1]
        ]
    return [OffsetGap(gap.topic, gap.partition, low, high) for low, high in sorted(set(parts))]


def late_rows(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return {operator: late rows dropped} for one batch, omitting operators that dropped none.

    Spark numbers operators from 0; the number distinguishes operators with the same name.
    """
    rows_by_operator = {}
    for index, operator in enumerate(progress.get("stateOperators") or ()):
        if not isinstance(operator, Mapping):
            continue
        rows = count(operator.get("numRowsDroppedByWatermark"))
        if rows:
            rows_by_operator[f"{operator.get('operatorName') or 'operator'} {index}"] = rows
    return rows_by_operator


def _below(start: Offsets, end: Offsets, earliest: Offsets) -> list[OffsetGap]:
    """Return the offsets of a batch that are below the broker's first ones."""
    gaps = []
    for topic, partitions in end.items():
        for partition, until in partitions.items():
            first = start.get(topic, {}).get(partition, 0)
            earliest_offset = min(earliest.get(topic, {}).get(partition, 0), until)
            if earliest_offset > first:
                gaps.append(OffsetGap(topic, partition, first, earliest_offset))
    return sorted(gaps)


def _covered(
    start: Offsets, end: Offsets, ledger: Mapping[tuple[str, int], Sequence[tuple[int, int]]]
) -> int:
    """Return how many offsets of a batch are already in the ledger."""
    count = 0
    for (topic, partition), ranges in ledger.items():
        first = start.get(topic, {}).get(partition, 0)
        until = end.get(topic, {}).get(partition, 0)
        whole = OffsetGap(topic, partition, first, max(first, until))
        count += whole.offsets - sum(piece.offsets for piece in without(whole, ranges))
    return count


def _first(pieces: Sequence[OffsetGap], count: int) -> list[OffsetGap]:
    """Return the first `count` of these offsets: a log is deleted from its beginning."""
    pieces_lost = []
    for piece in pieces:
        size = min(count, piece.offsets)
        if size:
            pieces_lost.append(
                OffsetGap(piece.topic, piece.partition, piece.first, piece.first + size)
            )
        count -= size
    return pieces_lost


def _exact(gaps: Sequence[OffsetGap]) -> list[SkippedOffsets]:
    topics = dict.fromkeys(gap.topic for gap in gaps)
    return [
        SkippedOffsets(topic, own, sum(gap.offsets for gap in own))
        for topic in topics
        for own in (tuple(gap for gap in gaps if gap.topic == topic),)
    ]
