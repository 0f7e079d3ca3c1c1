"""Read queries' lag behind their sources, for pages, lists and REST."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from queries.domain.kafka.lag import (
    LAG_FRESH,
    Behind,
    OffsetUnit,
    PartitionLook,
    behind,
    skewed,
    total,
)
from queries.domain.kafka.losses import OffsetGap, gaps_of
from queries.domain.kafka.retention import DeletionDeadline, Retention, clock
from queries.domain.readings import Dated
from queries.domain.states import RunOutcome
from queries.models.checkpoints import NO_DATA, TABLE, SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.checkpoint_logs import logs_unknown
from queries.selectors.newest import newest_runs
from queries.selectors.tables.lag import (
    TableLine,
    TableTotals,
    seconds_behind,
    table_line,
    table_totals,
)

#: A table on a storage is read every 10 minutes.
TABLE_FRESH = timedelta(minutes=11)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a topic."""

    row: SourceLag
    behind: Behind
    clock: DeletionDeadline | None  # when its first unread record may be deleted


@dataclass(frozen=True, slots=True)
class TopicLag:
    """One topic that a query reads."""

    topic: str
    partitions: list[PartitionLag]
    total: Behind
    retention: Retention
    skewed: int | None  # a partition that is much further behind than the others

    @property
    def deleted_at(self) -> datetime | None:
        """Return when the first unread record of any of its partitions may be deleted."""
        return min(
            (partition.clock.at for partition in self.partitions if partition.clock), default=None
        )


@dataclass(frozen=True, slots=True)
class QueryLag:
    """All topics and tables of a query."""

    topics: list[TopicLag]
    tables: list[TableLine]
    total: Behind
    gaps: list[OffsetGap]  # deleted before a batch committed them
    certain: bool  # the gaps are lost: no open run may have fetched them
    seen_at: datetime | None  # when the oldest of these numbers was read
    errors: tuple[str, ...]  # why numbers are old or missing, with their age if they are old
    read_at: datetime | None  # when the sources were last asked, for these errors too
    unknown_because: str = ""  # a sentence, if it is unknown what the query has committed

    @property
    def deleted_at(self) -> datetime | None:
        """Return when the first unread record may be deleted."""
        return min((at for topic in self.topics if (at := topic.deleted_at)), default=None)


@dataclass(frozen=True, slots=True)
class LagLine:
    """A query's lag in a list; values are None if unknown."""

    records: int | None  # in `unit`
    seconds: float | None
    gone: int
    arrival_rate: float | None  # records a second, smoothed
    seen_at: datetime  # when the oldest of its numbers was read
    answered_at: datetime  # when a source last answered
    current: bool  # read recently, and since its last run ended
    unit: OffsetUnit = OffsetUnit.OFFSETS
    waiting: int = 0  # part of `records` in open transactions
    partitions: int = 0
    unread: tuple[tuple[datetime, datetime], ...] = ()  # (unread since, seen at) of partitions
    tables: TableTotals | None = None  # None: reads no table


def lag_of(query: Query, *, now: datetime) -> QueryLag:
    """Return a query's lag by topic and partition; no topics if nothing is known."""
    rows = list(SourceLag.objects.filter(query=query).order_by("source", "partition"))
    real = [row for row in rows if row.partition >= 0]
    by_topic: dict[str, list[PartitionLag]] = defaultdict(list)
    for row in real:
        part = PartitionLag(row, behind(look_of(row), now=now), clock_of(row, now=now))
        by_topic[row.source].append(part)
    gaps = gaps_of(look_of(row) for row in real)
    open_run = Run.objects.filter(query=query, outcome=RunOutcome.OPEN)
    return QueryLag(
        topics=[_topic(name, parts) for name, parts in by_topic.items()],
        tables=[table_line(row, now=now) for row in rows if row.partition == TABLE],
        total=total([part.behind for parts in by_topic.values() for part in parts]),
        gaps=gaps,
        certain=bool(gaps) and not open_run.exists(),
        seen_at=min((row.seen_at for row in real), default=None),
        errors=tuple(
            Dated(row.error, row.seen_at).at(now, fresh_for=LAG_FRESH)
            for row in rows
            if row.partition == NO_DATA and row.error
        ),
        read_at=max((row.seen_at for row in rows), default=None),
        unknown_because=_unknown_because(query, real),
    )


def _unknown_because(query: Query, rows: Iterable[SourceLag]) -> str:
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    if checkpoint is None or all(row.committed is not None for row in rows):
        return ""
    return logs_unknown(checkpoint.location)


def lag_lines(
    query_ids: Iterable[int], *, now: datetime, runs: Mapping[int, Run] | None = None
) -> dict[int, LagLine]:
    """Return the lag of queries that read Kafka or tables, by id, in at most two database queries.

    `runs` are the queries' newest runs; if None, they are looked up.
    """
    rows: dict[int, list[SourceLag]] = defaultdict(list)
    lags = SourceLag.objects.filter(query__in=list(query_ids)).exclude(partition=NO_DATA)
    for row in lags:
        rows[row.query_id].append(row)
    if runs is None:
        runs = newest_runs(list(rows)) if rows else {}
    lines = {}
    for query, own in rows.items():
        if not any(row.partition >= 0 or row.latest is not None for row in own):
            continue  # nothing is known
        topics = [row for row in own if row.partition != TABLE]
        whole = total([behind(look_of(row), now=now) for row in topics or own])
        ages = [seconds_behind(row, now=now) for row in own if row.partition == TABLE]
        seconds = [age for age in (whole.seconds if topics else None, *ages) if age is not None]
        tables = table_totals(own)
        oldest_at = min(row.seen_at for row in own)
        fresh = all(now - row.seen_at <= _fresh_for(row) for row in own)
        ended_at = runs[query].ended_at if query in runs else None
        lines[query] = LagLine(
            whole.records if topics or tables is None else tables.versions,
            None if None in ages else max(seconds, default=None),
            whole.gone if topics else 0,
            whole.arrival_rate,
            seen_at=oldest_at,
            answered_at=max(row.seen_at for row in own),
            current=fresh and (ended_at is None or ended_at <= oldest_at),
            unit=whole.unit if topics else OffsetUnit.VERSIONS,
            waiting=whole.waiting,
            partitions=len(topics),
            unread=tuple((row.unread_since, row.seen_at) for row in topics if row.unread_since),
            tables=tables,
        )
    return lines


def _fresh_for(row: SourceLag) -> timedelta:
    return TABLE_FRESH if row.partition == TABLE else LAG_FRESH


def missing_sources(query_ids: Iterable[int]) -> dict[int, Dated]:
    """Return why sources have no data or only old data, and when they were asked.

    A topic does not exist, a partition has no leader, or the brokers do not respond.
    """
    rows = SourceLag.objects.filter(query__in=list(query_ids), partition=NO_DATA)
    errors = rows.exclude(error="").order_by().values_list("query", "error", "seen_at")
    return {query: Dated(error, at) for query, error, at in errors}


def records_in(lag: QueryLag, gap: OffsetGap) -> int | None:
    """Return how many records a gap contained; None if unknown or if offsets are not records."""
    for topic in lag.topics:
        if topic.topic == gap.topic:
            return gap.offsets if topic.total.unit is OffsetUnit.RECORDS else None
    return None


#: The fields that have the same name in a row and in a `PartitionLook`.
_MEASURED = (
    *("committed", "earliest", "latest", "stable", "record_at"),
    *("arrival_rate", "processing_rate", "unread_since", "replaced"),
)


def look_of(row: SourceLag) -> PartitionLook:
    """Return a row as a `PartitionLook`."""
    plain = row.compacted is False and not row.holes and row.stable is None
    return PartitionLook(row.source, row.partition, row.seen_at, plain=plain, **measured(row))


def measured(look: SourceLag | PartitionLook) -> dict[str, Any]:
    """Return the measured fields of a row, or of a `PartitionLook`, by name."""
    return {name: getattr(look, name) for name in _MEASURED}


def clock_of(row: SourceLag, *, now: datetime) -> DeletionDeadline | None:
    """Return when the first unread record of a row's partition may be deleted; None for never."""
    return clock(look_of(row), retention_of(row), record_bytes=row.record_bytes, now=now)


def retention_of(row: SourceLag) -> Retention:
    """Return the retention limits stored with a row."""
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
