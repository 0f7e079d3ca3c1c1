"""Read queries' lag behind their sources, and their losses, for pages, lists and REST."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, QuerySet, Sum

from queries.domain.kafka.lag import (
    LAG_FRESH,
    Behind,
    OffsetUnit,
    PartitionLook,
    behind,
    is_new,
    skewed,
    total,
)
from queries.domain.kafka.losses import OffsetGap, gaps_of, without
from queries.domain.kafka.retention import DeletionDeadline, Retention, clock
from queries.domain.kafka.topic_ids import GONE, Ids, ids_of, replaced_in
from queries.domain.readings import Dated
from queries.domain.states import LossKind, RunOutcome
from queries.models.checkpoints import NO_DATA, TABLE, Loss, SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.selectors.checkpoint_logs import logs_unknown
from queries.selectors.rows import first_or_missing as first_of
from queries.selectors.rows import newest_runs
from queries.selectors.tables import (
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
    """Return why sources have no data or only old data, and when they were polled.

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


def remembered_ids(query_id: int) -> Ids:
    """Return the topic ids stored with a query's current checkpoint."""
    rows = Checkpoint.objects.filter(query=query_id, retired_at=None)
    return ids_of(rows.values_list("topic_ids", flat=True).first() or {})


def read_ids(query_id: int) -> dict[str, str]:
    """Return the known ids of the topics that a query reads now, by name."""
    ids_by_name: dict[str, str] = {}
    for topics in remembered_ids(query_id).values():
        for topic, topic_identity in topics.items():
            reads = topic_identity.id if topic_identity.passed is None else topic_identity.now
            if reads != GONE:
                ids_by_name[topic] = reads
    return ids_by_name


def replaced_topics(query: Query) -> list[str]:
    """Return the topics deleted and recreated since the query read them."""
    by_id = replaced_in(remembered_ids(query.pk))
    rows = SourceLag.objects.filter(query=query, partition__gte=0)
    return sorted(by_id | {row.source for row in rows if is_new(look_of(row))})


@dataclass(frozen=True, slots=True)
class LossTotal:
    """The total of all entries of one kind."""

    kind: LossKind
    lines: int
    offsets: int | None
    records: int | None  # of the lines with known numbers
    corrected: int = 0  # records (else offsets) withdrawn by corrections: not included above


def losses(query: Query) -> QuerySet[Loss]:
    """Return a query's losses, newest first, each with the operation that accepted it."""
    rows = Loss.objects.filter(query=query).select_related("operation", "corrects")
    return rows.order_by("-noticed_at", "-pk")


def loss(query: Query, loss_id: int) -> Loss:
    """Return one entry of a query's ledger; raise `Missing` if none has this number."""
    return first_of(
        losses(query).filter(pk=loss_id),
        f"The loss ledger of {query.name} has no entry {loss_id}.",
        way_out=f"GET /api/v1/queries/{query.name}/losses/ lists them.",
    )


def recorded_after(at: datetime, query: Query) -> list[OffsetGap]:
    """Return the first offsets that the ledger records as lost after a failure.

    Corrected entries are left out: their offsets were not lost.
    """
    rows = losses(query).filter(noticed_at__gte=at, corrects=None, corrections=None)
    with_offsets = rows.exclude(partition=None).exclude(from_offset=None).exclude(to_offset=None)
    first = with_offsets.order_by("noticed_at").values("noticed_at")[:1]
    return sorted(
        OffsetGap(row.source, row.partition or 0, row.from_offset or 0, row.to_offset or 0)
        for row in with_offsets.filter(noticed_at=first)
    )


def loss_totals(query: Query) -> list[LossTotal]:
    """Return the losses by kind; kinds without losses are omitted."""
    return summed(Loss.objects.filter(query=query)).get(query.pk, [])


def summed(rows: QuerySet[Loss]) -> dict[int, list[LossTotal]]:
    """Return the queries' losses by kind, minus the corrections among the rows.

    Kinds with nothing left are omitted.
    """
    rows_of = rows.order_by().values("query", "kind", "corrects__kind")
    counted = rows_of.annotate(lines=Count("pk"), offsets=Sum("offsets"), records=Sum("records"))
    sums = {(row["query"], row["corrects__kind"] or "", row["kind"]): row for row in counted}
    totals: dict[int, list[LossTotal]] = defaultdict(list)
    for query in {key[0] for key in sums}:
        for kind in LossKind:
            lost = sums.get((query, "", kind))
            back = sums.get((query, kind, LossKind.CORRECTED))
            if lost is None:
                continue
            total = LossTotal(
                kind,
                lost["lines"],
                _without(lost, back, "offsets"),
                _without(lost, back, "records"),
                (back["records"] or back["offsets"] or 0) if back else 0,
            )
            if total.records or total.offsets or back is None:
                totals[query].append(total)
    return dict(totals)


def _without(lost: Mapping[str, Any], back: Mapping[str, Any] | None, name: str) -> int | None:
    """Return a sum minus its corrections; None if it is unknown."""
    if lost[name] is None:
        return None
    return max(0, int(lost[name]) - int(back[name] or 0 if back else 0))


def ledger_ranges(
    query_id: int,
    *,
    within: Mapping[str, tuple[int, int]],
    topic_id: str | None = None,
    corrected: bool = False,
) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return the offsets [first, until) in the ledger, by topic and partition.

    `within` limits this to ranges that overlap these offsets. Only the topics that the query
    currently reads are included, or the one with `topic_id`: a deleted topic's offsets do not apply
    to another topic with the same name. Corrected ranges are omitted unless `corrected` is true.
    """
    ids = read_ids(query_id) if topic_id is None else {}
    offset_ranges: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for topic, (first, until) in within.items():
        rows = _ranges(query_id).filter(source=topic, from_offset__lt=until, to_offset__gt=first)
        if topic_id is not None:
            rows = rows.filter(topic_id=topic_id)
        elif ids.get(topic):
            rows = rows.filter(topic_id__in=("", ids[topic]))
        for row in rows.order_by("from_offset"):
            whole = gap_of(row)
            for gap in [whole] if corrected and whole else left(row):
                offset_ranges[topic, gap.partition].append((gap.first, gap.until))
    return dict(offset_ranges)


def gap_of(row: Loss) -> OffsetGap | None:
    """Return the offsets of an entry; None if it has none."""
    if row.partition is None or row.from_offset is None or not row.to_offset:
        return None
    return OffsetGap(row.source, row.partition, row.from_offset, row.to_offset)


def left(row: Loss) -> list[OffsetGap]:
    """Return the offsets of an entry that have not been corrected; [] if there are none."""
    whole = gap_of(row)
    if whole is None:
        return []
    back = [gap_of(correction) for correction in row.corrections.all()]
    return without(whole, [(gap.first, gap.until) for gap in back if gap is not None])


def with_ranges(query_ids: Iterable[int]) -> set[int]:
    """Return the queries whose ledger contains offsets of topics with known ids."""
    rows = Loss.objects.filter(query__in=list(query_ids), corrects=None, partition__isnull=False)
    return set(rows.exclude(topic_id="").order_by().values_list("query", flat=True).distinct())


def has_ranges(query_id: int) -> bool:
    """Return whether the ledger has any offsets of the topics that a query reads now."""
    ids = read_ids(query_id)
    sources = _ranges(query_id).values_list("source", "topic_id").distinct()
    return any(topic_id in ("", ids.get(source) or topic_id) for source, topic_id in sources)


def _ranges(query_id: int) -> QuerySet[Loss]:
    rows = Loss.objects.filter(query=query_id, corrects=None, partition__isnull=False)
    rows = rows.filter(from_offset__isnull=False, to_offset__isnull=False)
    return rows.prefetch_related("corrections")
