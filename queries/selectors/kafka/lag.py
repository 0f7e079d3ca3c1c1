"""How far queries are behind their sources, as pages, lists and REST show it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from queries.domain.kafka.lag import Behind, PartitionLook, Unit, behind, skewed, total
from queries.domain.kafka.losses import Gap, gaps_of
from queries.domain.kafka.retention import Clock, Retention, clock
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Query


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a topic."""

    row: SourceLag
    behind: Behind
    clock: Clock | None  # when its first unread record may be deleted


@dataclass(frozen=True, slots=True)
class TopicLag:
    """One topic that a query reads."""

    topic: str
    partitions: list[PartitionLag]
    total: Behind
    retention: Retention
    skewed: int | None  # the partition that is much further behind than the others

    @property
    def deleted_at(self) -> datetime | None:
        """Return when the first unread record of any of its partitions may be deleted."""
        return min((one.clock.at for one in self.partitions if one.clock), default=None)


@dataclass(frozen=True, slots=True)
class QueryLag:
    """All topics of a query."""

    topics: list[TopicLag]
    total: Behind
    gaps: list[Gap]  # deleted before they were read
    seen_at: datetime | None  # when the oldest of these numbers was read
    errors: tuple[str, ...]  # why numbers are old or missing

    @property
    def deleted_at(self) -> datetime | None:
        """Return when the first unread record may be deleted."""
        return min((at for topic in self.topics if (at := topic.deleted_at)), default=None)


@dataclass(frozen=True, slots=True)
class LagLine:
    """A query's lag in a list: None where it is not known."""

    records: int | None  # in `unit`
    seconds: float | None
    gone: int
    arrival_rate: float | None  # records a second, smoothed
    seen_at: datetime  # when the oldest of its numbers was read
    unit: Unit = Unit.OFFSETS
    waiting: int = 0  # of `records`: those that wait for an open transaction
    partitions: int = 0
    unread: tuple[tuple[datetime, datetime], ...] = ()  # (unread since, seen at) of partitions


def lag_of(query: Query, *, now: datetime) -> QueryLag:
    """Return a query's lag by topic and partition; no topics where nothing is known."""
    rows = list(SourceLag.objects.filter(query=query).order_by("source", "partition"))
    real = [row for row in rows if row.partition >= 0]
    by_topic: dict[str, list[PartitionLag]] = defaultdict(list)
    for row in real:
        part = PartitionLag(row, behind(look_of(row), now=now), clock_of(row, now=now))
        by_topic[row.source].append(part)
    return QueryLag(
        topics=[_topic(name, parts) for name, parts in by_topic.items()],
        total=total([part.behind for parts in by_topic.values() for part in parts]),
        gaps=gaps_of(look_of(row) for row in real),
        seen_at=min((row.seen_at for row in real), default=None),
        errors=tuple(dict.fromkeys(row.error for row in rows if row.error)),
    )


def lag_lines(query_ids: Iterable[int], *, now: datetime) -> dict[int, LagLine]:
    """Return the lag of queries that read Kafka, by id, in one database query."""
    rows: dict[int, list[SourceLag]] = defaultdict(list)
    for row in SourceLag.objects.filter(query__in=list(query_ids), partition__gte=0):
        rows[row.query_id].append(row)
    lines = {}
    for query, own in rows.items():
        whole = total([behind(look_of(row), now=now) for row in own])
        lines[query] = LagLine(
            whole.records,
            whole.seconds,
            whole.gone,
            whole.arrival_rate,
            seen_at=min(row.seen_at for row in own),
            unit=whole.unit,
            waiting=whole.waiting,
            partitions=len(own),
            unread=tuple((row.unread_since, row.seen_at) for row in own if row.unread_since),
        )
    return lines


def records_in(lag: QueryLag, gap: Gap) -> int | None:
    """Return how many records a gap held; None where offsets are not records, or not known."""
    for topic in lag.topics:
        if topic.topic == gap.topic:
            return gap.offsets if topic.total.unit is Unit.RECORDS else None
    return None


#: What a row and the value that is judged call by the same name.
_MEASURED = (
    *("committed", "earliest", "latest", "stable", "record_at"),
    *("arrival_rate", "processing_rate", "unread_since", "replaced"),
)


def look_of(row: SourceLag) -> PartitionLook:
    """Return a row as the value that is judged."""
    plain = row.compacted is False and not row.holes and row.stable is None
    return PartitionLook(row.source, row.partition, row.seen_at, plain=plain, **measured(row))


def measured(look: SourceLag | PartitionLook) -> dict[str, Any]:
    """Return the numbers of a row, or of the value that is judged, by name."""
    return {name: getattr(look, name) for name in _MEASURED}


def clock_of(row: SourceLag, *, now: datetime) -> Clock | None:
    """Return when the first unread record of a row's partition may be deleted; None for never."""
    return clock(look_of(row), retention_of(row), record_bytes=row.record_bytes, now=now)


def retention_of(row: SourceLag) -> Retention:
    """Return the limits that were written with a row."""
    return Retention(
        ms=row.retention_ms,
        bytes=row.retention_bytes,
        deletes=row.retention_ms is not None or row.retention_bytes is not None,
        compacts=row.compacted,
    )


def _topic(name: str, parts: list[PartitionLag]) -> TopicLag:
    return TopicLag(
        topic=name,
        partitions=parts,
        total=total([part.behind for part in parts]),
        retention=retention_of(parts[0].row),
        skewed=skewed({part.row.partition: part.behind for part in parts}),
    )
