"""Calculate how far behind a query is, from two looks at its source's partitions.

A look contains offsets and one time: that of the next record to read. Everything else is calculated
here: records and seconds behind, arrival and processing rates, how long it takes to catch up, and
which partition is further behind than the others.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

#: Half-life of the smoothed rates, in seconds: triggers several seconds apart work in bursts.
HALF_LIFE_S = 30.0
#: A pass over the brokers runs every 5 s; anything older than this is not current.
LAG_FRESH = timedelta(seconds=30)
#: A partition is skewed if it is behind by at least this many offsets …
SKEW_FLOOR = 1_000
#: … and by this many times the mean of the source's other partitions.
SKEW_TIMES = 3.0
#: The rule in words.
SKEW_RULE = (
    f"at least {SKEW_FLOOR:,} offsets behind, and at least {SKEW_TIMES:g} times the mean of the "
    "others"
)


class OffsetUnit(StrEnum):
    """The unit in which offsets are counted."""

    RECORDS = "records"  # each offset is a record, as far as known
    OFFSETS = "offsets"  # some may not be records (compaction, transaction markers), or unknown
    VERSIONS = "versions"  # of tables


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """What is known about one partition at one moment."""

    topic: str
    partition: int
    at: datetime
    committed: int | None = None  # next offset to read; None: nothing committed yet
    earliest: int | None = None  # first offset that still exists
    latest: int | None = None  # next offset to be written
    record_at: datetime | None = None  # time of the first unread record
    arrival_rate: float | None = None  # records per second, smoothed
    processing_rate: float | None = None
    #: Start of the first open transaction, else `latest`; None: uncommitted records are read too.
    stable: int | None = None
    plain: bool = False  # its offsets are known to be records
    #: The first look at which the next record to read existed; None: there is nothing to read.
    unread_since: datetime | None = None
    replaced: bool = False  # `committed` belongs to a deleted topic that this one has replaced


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a partition, a topic or an entire query is behind."""

    records: int | None  # unread offsets that still exist, in `unit`; None: unknown
    gone: int  # unread offsets that no longer exist
    seconds: float | None  # age of the first unread record; 0.0 if there is none
    arrival_rate: float | None
    processing_rate: float | None
    catch_up_s: float | None  # None: never at these rates, or unknown
    unit: OffsetUnit = OffsetUnit.OFFSETS
    waiting: int = 0  # how many of `records` are waiting for an open transaction


def behind(look: PartitionLook, *, now: datetime) -> Behind:
    """Return how far one partition is behind."""
    records = unread(look)
    seconds = None
    if records == 0:
        seconds = 0.0
    elif records is not None and look.record_at is not None:
        seconds = max(0.0, (now - look.record_at).total_seconds())
    return Behind(
        records=records,
        gone=0 if is_new(look) else deleted_unread(look.committed, look.earliest),
        seconds=seconds,
        arrival_rate=look.arrival_rate,
        processing_rate=look.processing_rate,
        catch_up_s=catch_up_s(records, look.arrival_rate, look.processing_rate),
        unit=OffsetUnit.RECORDS if look.plain else OffsetUnit.OFFSETS,
        waiting=waiting(look),
    )


def unread(look: PartitionLook) -> int | None:
    """Return how many unread offsets still exist; None if unknown.

    If another topic has replaced the one that was read, all of the new topic's offsets are unread.
    """
    if look.committed is None or look.latest is None:
        return None
    if is_new(look):
        return max(0, look.latest - (look.earliest or 0))
    return max(0, look.latest - max(look.committed, look.earliest or 0))


def waiting(look: PartitionLook) -> int:
    """Return how many unread offsets are waiting for an open transaction; 0 if unknown."""
    if look.stable is None or look.latest is None or look.committed is None:
        return 0
    read = 0 if is_new(look) else look.committed
    return max(0, look.latest - max(look.stable, read, look.earliest or 0))


def is_new(look: PartitionLook) -> bool:
    """Return whether the committed offset belongs to a topic that has since been replaced.

    This is known from the topic's ID, or from the broker reporting that the partition ends before
    the offset: `earliest` is known only in that case. The latest offset in a query's own progress
    may be older than the partition's end.
    """
    if look.replaced:
        return True
    measured = look.committed is not None and look.latest is not None and look.earliest is not None
    return measured and look.latest < look.committed  # type: ignore[operator]


def deleted_unread(committed: int | None, earliest: int | None) -> int:
    """Return how many offsets were deleted before they were read; 0 if unknown."""
    if committed is None or earliest is None:
        return 0
    return max(0, earliest - committed)


def total(parts: Sequence[Behind]) -> Behind:
    """Return the total lag: records and rates, and the oldest record's age.

    Unknown values of a part are left out; the result is None if the value is unknown for all parts.
    """
    records = [part.records for part in parts if part.records is not None]
    seconds = [part.seconds for part in parts if part.seconds is not None]
    summed = sum(records) if records else None
    arrival = _summed(part.arrival_rate for part in parts)
    processing = _summed(part.processing_rate for part in parts)
    return Behind(
        records=summed,
        gone=sum(part.gone for part in parts),
        seconds=max(seconds, default=None),
        arrival_rate=arrival,
        processing_rate=processing,
        catch_up_s=catch_up_s(summed, arrival, processing),
        unit=OffsetUnit.RECORDS
        if parts and all(part.unit is OffsetUnit.RECORDS for part in parts)
        else OffsetUnit.OFFSETS,
        waiting=sum(part.waiting for part in parts),
    )


def catch_up_s(
    records: int | None, arrival: float | None, processing: float | None
) -> float | None:
    """Return the seconds until nothing is unread at these rates; None if never, or unknown."""
    if records == 0:
        return 0.0
    if records is None or arrival is None or processing is None or processing <= arrival:
        return None
    return records / (processing - arrival)


def smoothed(before: float | None, moved: int, seconds: float) -> float | None:
    """Return a rate after `moved` more offsets in `seconds`; the old rate if no time has passed."""
    if seconds <= 0:
        return before
    now = max(0, moved) / seconds
    if before is None:
        return now
    weight = 1 - math.pow(0.5, seconds / HALF_LIFE_S)
    return before + weight * (now - before)


def after(look: PartitionLook, before: PartitionLook | None, *, running: bool) -> PartitionLook:
    """Return the look with its rates and how long it has been unread, based on the previous one.

    A query that is not running has a processing rate of 0. If offsets went back (a rewind, a
    recreated topic), there is no rate; the next look starts again.
    """
    arrival = processing = None
    if before is not None:
        seconds = (look.at - before.at).total_seconds()
        arrival = _rate(before.arrival_rate, before.latest, look.latest, seconds)
        processing = _rate(before.processing_rate, before.committed, look.committed, seconds)
    return replace(
        look,
        arrival_rate=arrival,
        processing_rate=processing if running else 0.0,
        unread_since=_unread_since(look, before),
    )


def _unread_since(look: PartitionLook, before: PartitionLook | None) -> datetime | None:
    if not (unread(look) or 0) > waiting(look):
        return None
    same = before is not None and before.committed == look.committed
    return (before.unread_since if before is not None and same else None) or look.at


def skewed(parts: Mapping[int, Behind]) -> int | None:
    """Return the partition of a topic that is skewed according to `SKEW_RULE`, or None."""
    sizes = {number: part.records for number, part in parts.items() if part.records is not None}
    if len(sizes) < 2:
        return None
    worst = max(sorted(sizes), key=lambda number: sizes[number])
    others = [records for number, records in sizes.items() if number != worst]
    mean = sum(others) / len(others)
    if sizes[worst] < SKEW_FLOOR or sizes[worst] < SKEW_TIMES * mean:
        return None
    return worst


def kafka_offsets(value: Any) -> dict[str, dict[int, int]]:
    """Return {topic: {partition: offset}} from an offset as Spark writes it for Kafka.

    The mapping is empty for the offset of any other source.
    """
    if not isinstance(value, dict) or not value:
        return {}
    offsets: dict[str, dict[int, int]] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            return {}
        try:
            offsets[str(topic)] = {int(number): int(at) for number, at in partitions.items()}
        except (TypeError, ValueError):
            return {}
    return offsets


def merged(offsets: Iterable[Mapping[str, Mapping[int, int]]]) -> dict[str, dict[int, int]]:
    """Return one mapping for several sources; if two read the same partition, the lower offset."""
    return _by_partition(min, offsets)


def further(
    first: Mapping[str, Mapping[int, int]], second: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """Return the newer of two states of one query's offsets, partition by partition."""
    return _by_partition(max, (first, second))


def _by_partition(
    choose: Callable[[int, int], int], offsets: Iterable[Mapping[str, Mapping[int, int]]]
) -> dict[str, dict[int, int]]:
    offsets_by_topic: dict[str, dict[int, int]] = {}
    for source_offsets in offsets:
        for topic, partitions in source_offsets.items():
            topic_offsets = offsets_by_topic.setdefault(topic, {})
            for number, at in partitions.items():
                topic_offsets[number] = choose(at, topic_offsets.get(number, at))
    return offsets_by_topic


def _rate(before: float | None, was: int | None, now: int | None, seconds: float) -> float | None:
    if was is None or now is None or now < was:
        return None
    return smoothed(before, now - was, seconds)


def _summed(rates: Iterable[float | None]) -> float | None:
    known_rates = [rate for rate in rates if rate is not None]
    return sum(known_rates) if known_rates else None
