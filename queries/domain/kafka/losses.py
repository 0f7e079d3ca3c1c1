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

from headgate_ground.tolerant.values import count
from queries.domain.failures.error_text import bounded
from queries.domain.kafka.lag import PartitionLook, gone, is_new, kafka_offsets

Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, order=True)
class Gap:
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
class Skipped:
    """What one batch skipped silently in a source."""

    topic: str
    gaps: tuple[Gap, ...]  # empty if the offsets are unknown
    records: int  # number of records not read


def gaps_of(looks: Iterable[PartitionLook]) -> list[Gap]:
    """Return the offsets that were deleted before they were read, by topic and partition.

    Topics that were replaced are left out, because their offsets cannot be compared.
    """
    return sorted(
        Gap(look.topic, look.partition, look.committed, look.earliest)
        for look in looks
        if look.committed is not None
        and look.earliest is not None
        and gone(look.committed, look.earliest)
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


def named_in(text: str) -> list[Gap]:
    """Return the offsets that Spark's message reports as lost, by topic and partition.

    An offset that could not be fetched and has no end is a gap of one offset.
    """
    found: dict[tuple[str, int], Gap] = {}

    def note(topic: str, partition: str, first: int, until: int) -> None:
        known = found.get((topic, int(partition)))
        if known is not None:
            first, until = min(first, known.first), max(until, known.until)
        if until > first:
            found[topic, int(partition)] = Gap(topic, int(partition), first, until)

    text = bounded(text)
    for one in _FETCH.finditer(text):
        note(one[2], one[3], int(one[1]), int(one[1]) + 1)
    for one in _CHANGED.finditer(text):
        note(one[1], one[2], int(one[3]), int(one[4]))
    for one in _RANGE.finditer(text):
        note(one[3], one[4], int(one[1]), int(one[2]))
    return sorted(found.values())


def touch(gaps: Iterable[Gap], read: Sequence[Gap]) -> bool:
    """Return whether gaps overlap what a failed batch was reading; True if that is unknown."""
    return not read or any(
        (gap.topic, gap.partition) == (one.topic, one.partition)
        and max(gap.first, one.first) < min(gap.until, one.until)
        for gap in gaps
        for one in read
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
    """Return how many offsets lie between two states; a new partition begins at 0."""
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
    known: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
) -> list[Skipped]:
    """Return what a batch that is `missing` rows short skipped because it had been deleted.

    This applies only to topics in which each offset is a record. `earliest` are the broker's first
    offsets after the batch; `known` are the ranges [first, until) already in the ledger. At most
    `missing` records count as lost: records deleted after they were read do not.
    """
    rest = missing - _covered(start, end, known)
    left = [
        piece
        for gap in _below(start, end, earliest)
        for piece in without(gap, known.get((gap.topic, gap.partition), ()))
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
    return [Skipped(topics, (), rest)]


def without(gap: Gap, known: Iterable[tuple[int, int]]) -> list[Gap]:
    """Return the parts of a gap that no known range [first, until) covers."""
    parts = [(gap.first, gap.until)]
    for first, until in known:
        parts = [
            piece
            for low, high in parts
            for piece in ((low, min(high, first)), (max(low, until), high))
            if piece[0] < piece[1]
        ]
    return [Gap(gap.topic, gap.partition, low, high) for low, high in sorted(set(parts))]


def late_rows(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return {operator: late rows dropped} for one batch, omitting operators that dropped none.

    Spark numbers operators from 0; the number distinguishes operators with the same name.
    """
    found = {}
    for place, operator in enumerate(progress.get("stateOperators") or ()):
        if not isinstance(operator, Mapping):
            continue
        rows = count(operator.get("numRowsDroppedByWatermark"))
        if rows:
            found[f"{operator.get('operatorName') or 'operator'} {place}"] = rows
    return found


def _below(start: Offsets, end: Offsets, earliest: Offsets) -> list[Gap]:
    """Return the offsets of a batch that are below the broker's first ones."""
    found = []
    for topic, partitions in end.items():
        for partition, until in partitions.items():
            first = start.get(topic, {}).get(partition, 0)
            kept = min(earliest.get(topic, {}).get(partition, 0), until)
            if kept > first:
                found.append(Gap(topic, partition, first, kept))
    return sorted(found)


def _covered(
    start: Offsets, end: Offsets, known: Mapping[tuple[str, int], Sequence[tuple[int, int]]]
) -> int:
    """Return how many offsets of a batch are already in the ledger."""
    count = 0
    for (topic, partition), ranges in known.items():
        first = start.get(topic, {}).get(partition, 0)
        until = end.get(topic, {}).get(partition, 0)
        whole = Gap(topic, partition, first, max(first, until))
        count += whole.offsets - sum(piece.offsets for piece in without(whole, ranges))
    return count


def _first(pieces: Sequence[Gap], count: int) -> list[Gap]:
    """Return the first `count` of these offsets: a log is deleted from its beginning."""
    found = []
    for piece in pieces:
        taken = min(count, piece.offsets)
        if taken:
            found.append(Gap(piece.topic, piece.partition, piece.first, piece.first + taken))
        count -= taken
    return found


def _exact(gaps: Sequence[Gap]) -> list[Skipped]:
    topics = dict.fromkeys(gap.topic for gap in gaps)
    return [
        Skipped(topic, own, sum(gap.offsets for gap in own))
        for topic in topics
        for own in (tuple(gap for gap in gaps if gap.topic == topic),)
    ]
