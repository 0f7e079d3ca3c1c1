"""Read drivers' events for the pages, the API and the Observation."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import connection
from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    F,
    FloatField,
    Max,
    Min,
    Q,
    QuerySet,
    Sum,
    When,
)
from django.db.models.expressions import RawSQL
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast

from headgate_ground.wire import HeartbeatBody
from listeners import models


@dataclass(frozen=True, slots=True)
class LatestLine:
    """The newest state reported by a query's driver."""

    query: int
    run: int
    at: datetime
    idle_at: datetime | None
    progress_at: datetime | None
    progress_run: int | None
    batch: int | None
    progress: dict[str, Any] | None  # Spark's JSON


#: Jackson's spellings of a double that is not a number.
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
_LINE = tuple(one.name for one in fields(LatestLine))


@dataclass(frozen=True, slots=True)
class BatchBar:
    """One batch in a batch bar, which shows the oldest batch first."""

    batch: int
    at: datetime
    duration_ms: int
    rows: int
    repaired: bool
    run: int
    missing_before: int  # missing batches of the same run before this one


@dataclass(frozen=True, slots=True)
class Series:
    """Columns for a chart in uPlot's form: of equal length, with None for missing values."""

    at: list[float]  # seconds since 1970, UTC
    columns: dict[str, list[float | None]]
    batches: list[int | None]


@dataclass(frozen=True, slots=True)
class Dropped:
    """The losses in a query's telemetry, and the recovered part."""

    bus: int  # dropped by Spark's queues of its driver (streams + ours)
    outbox: int
    missing_batches: int  # all holes in batch ids, including repaired ones
    repaired: int  # those that were recovered
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class DriverTelemetry:
    """The newest heartbeat of a driver, and its age."""

    driver: int
    at: datetime
    received_at: datetime
    heartbeat: HeartbeatBody


def latest(query_ids: Iterable[int]) -> dict[int, LatestLine]:
    """Return the newest line of each query that has one."""
    return {
        row["query"]: LatestLine(**row)
        for chunk in _chunks(query_ids)
        for row in models.Latest.objects.filter(query__in=chunk).values(*_LINE)
    }


def described(queries: QuerySet[Any]) -> Iterator[tuple[int, datetime | None, Any, Any]]:
    """Yield query, time, sources and sink of the newest progress event of each of these queries.

    `queries` is a subquery for their ids. Sources and sink are Spark's JSON; the rest of the event
    is not read.
    """
    rows = models.Latest.objects.filter(query__in=queries, progress__isnull=False)
    values = rows.values_list("query", "progress_at", "progress__sources", "progress__sink")
    yield from values.iterator(chunk_size=2000)


def input_rate(queries: QuerySet[Any]) -> float:
    """Return the sum of `inputRowsPerSecond` over the queries' last batches.

    `queries` is a subquery for their ids. Spark writes NaN and infinities as strings; these count
    as 0.
    """
    told = KeyTextTransform("inputRowsPerSecond", "progress")
    number = Case(When(told__in=_NO_NUMBERS, then=None), default=Cast("told", FloatField()))
    rows = models.Latest.objects.filter(query__in=queries).annotate(told=told)
    return rows.aggregate(rate=Sum(number))["rate"] or 0.0


def heartbeat_bars(query_ids: Iterable[int], *, count: int) -> dict[int, list[BatchBar]]:
    """Return each query's last `count` batches, oldest first, in one or two queries in total."""
    rows: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for chunk in _chunks(query_ids):
        newest = models.Progress.objects.filter(pk__in=_last_batches(chunk, count))
        for query, *row in newest.order_by().values_list("query", *_BAR):
            rows[query].append(tuple(row))
    return {query: _bars(sorted(some)) for query, some in rows.items()}


def progress_page(
    query_id: int, *, before: int | None = None, run: int | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """Return the progress rows, newest first: {id, run, batch, at, repaired, progress}.

    `before` is the id of the previous page's last row; if retention has deleted that row, the page
    is empty.
    """
    rows = models.Progress.objects.filter(query=query_id)
    if run is not None:
        rows = rows.filter(run=run)
    if before is not None:
        last = models.Progress.objects.filter(pk=before, query=query_id).only("at").first()
        if last is None:
            return []
        rows = rows.filter(Q(at__lt=last.at) | Q(at=last.at, pk__lt=before))
    columns = rows.values("id", "run", "batch", "at", "repaired", progress=F("body"))
    return [dict(row) for row in columns.order_by("-at", "-pk")[:limit]]


def drops_of(driver_id: int, *, limit: int = 20) -> list[dict[str, Any]]:
    """Return a driver's newest drop counter increases: {queue, count, total, since, until}."""
    rows = models.DroppedEvents.objects.filter(driver=driver_id).order_by("-until", "-pk")
    values = rows.values("queue", "count", "total", "since", "until")[:limit]
    return [dict(row) for row in values]


def series(query_id: int, *, since: datetime, until: datetime, points: int = 600) -> Series:
    """Return chart columns for a query.

    Columns: input_rows_per_second, processed_rows_per_second, num_input_rows, batch_duration_ms,
    one `phase_NAME` per entry of durationMs (addBatch, getBatch, latestOffset, queryPlanning,
    walCommit, commitOffsets), watermark_delay_s, state_rows. The rows are downsampled (MinMaxLTTB)
    if there are more than `points`, and taken from rollups for times beyond the retention period of
    raw progress. An empty row separates two runs, so that no line is drawn across a stop.
    """
    from listeners import series as chart

    return Series(*chart.columns(query_id, since=since, until=until, points=points))


def dropped(query_ids: Iterable[int], *, drivers: dict[int, int]) -> dict[int, Dropped]:
    """Return the losses of each query's current driver (`drivers`: query id -> driver id).

    A query without a driver has no current losses, so all of its numbers are zero.
    """
    wanted = list(query_ids)
    queues = _drops_by_driver({drivers[query] for query in wanted if query in drivers})
    repaired = _by_query_and_driver(
        models.Progress.objects.filter(repaired=True), wanted, Count("pk")
    )
    open_holes = _by_query_and_driver(
        models.Gap.objects.filter(kind="batch"), wanted, Sum(F("missing") - F("repaired"))
    )
    result = {}
    for query in wanted:
        driver = drivers.get(query, 0)
        drops = queues.get(driver, {})
        back = repaired.get((query, driver), 0)
        times = [(since, until) for _, since, until in drops.values()]
        result[query] = Dropped(
            bus=sum(total for queue, (total, _, _) in drops.items() if queue != "outbox"),
            outbox=drops["outbox"][0] if "outbox" in drops else 0,
            missing_batches=back + open_holes.get((query, driver), 0),
            repaired=back,
            since=min((since for since, _ in times), default=None),
            until=max((until for _, until in times), default=None),
        )
    return result


def open_holes() -> set[tuple[int, int]]:
    """Return (query, driver) pairs with missing batches that are not repaired."""
    rows = models.Gap.objects.filter(kind="batch", missing__gt=F("repaired"))
    pairs = rows.order_by().values_list("query", "driver").distinct()
    return {(query, driver) for query, driver in pairs if query is not None}


def drops_since(since: datetime) -> list[dict[str, Any]]:
    """Return the drop counter increases for the banner: {driver, queue, count, since, until}."""
    rows = models.DroppedEvents.objects.filter(until__gte=since).order_by("since", "pk")
    return [dict(row) for row in rows.values("driver", "queue", "count", "since", "until")]


def holes_since(since: datetime, drivers: Iterable[int]) -> tuple[int, int]:
    """Return (missing, repaired): counts of these drivers' missing and recovered batches."""
    missing = repaired = 0
    for chunk in _chunks(drivers):
        back = models.Progress.objects.filter(
            driver__in=chunk, repaired=True, received_at__gte=since
        ).count()
        gaps = models.Gap.objects.filter(kind="batch", driver__in=chunk, noticed_at__gte=since)
        still = gaps.aggregate(still=Sum(F("missing") - F("repaired")))["still"] or 0
        missing, repaired = missing + back + still, repaired + back
    return missing, repaired


def telemetry(driver_ids: Iterable[int]) -> dict[int, DriverTelemetry]:
    """Return the newest heartbeat of each driver that has sent one."""
    return {
        row.driver: DriverTelemetry(
            driver=row.driver,
            at=row.at,
            received_at=row.received_at,
            heartbeat=HeartbeatBody.read(row.body),
        )
        for chunk in _chunks(driver_ids)
        for row in models.Heartbeat.objects.filter(driver__in=chunk)
    }


def run_summary(run_id: int) -> dict[str, Any] | None:
    """Return {first, last, batches, rows, repaired} of a run's progress; None if it has none."""
    summary = models.Progress.objects.filter(run=run_id).aggregate(
        first=Min("batch"),
        last=Max("batch"),
        batches=Count("pk"),
        rows=Sum("num_input_rows"),
        repaired=Count("pk", filter=Q(repaired=True)),
    )
    return summary if summary["batches"] else None


def run_rows(run_ids: list[int]) -> dict[int, tuple[int, int | None]]:
    """Return (rows read, rows written) of each run with batches, in one database query.

    Written is None if a batch has no count: Spark's file sinks and foreachBatch report none. This
    reads the JSON of all batches, so it is for runs with few of them, as of jobs.
    """
    counted = Cast(
        KeyTextTransform("numOutputRows", KeyTransform("sink", "body")), BigIntegerField()
    )
    rows = models.Progress.objects.filter(run__in=run_ids).annotate(out=counted)
    sums = rows.values("run").annotate(
        read=Sum("num_input_rows"),
        written=Sum("out"),
        unknown=Count("pk", filter=Q(out=None) | Q(out__lt=0)),
    )
    return {
        row["run"]: (row["read"], None if row["unknown"] else row["written"])
        for row in sums.order_by()
    }


def _chunks(ids: Iterable[int], size: int = 200) -> Iterator[list[int]]:
    """Yield ids in lists short enough for one statement of any database."""
    rest = iter(dict.fromkeys(ids))
    while chunk := list(islice(rest, size)):
        yield chunk


def _last_batches(queries: list[int], count: int) -> RawSQL:
    """Return SQL that reads the IDs of a few rows of each query from the index, newest first.

    A window function would read every row of every query. On SQLite, Django's `union` cannot limit
    its parts, but a derived table can.
    """
    quote = connection.ops.quote_name
    table = quote(models.Progress._meta.db_table)
    part = (
        f"SELECT {quote('id')} FROM (SELECT {quote('id')} FROM {table} "
        f"WHERE {quote('query')} = %s ORDER BY {quote('at')} DESC LIMIT %s) AS part"
    )
    sql = " UNION ALL ".join(f"{part}{number}" for number in range(len(queries)))
    return RawSQL(sql, [value for query in queries for value in (query, count)])


#: Columns of a bar, the time first. Tuples take a fraction of the time that model instances do.
def longest_batch_s(queries: Collection[int]) -> float:
    """Return how long the longest recorded batch of these queries took, in seconds; 0 if none."""
    rows = models.Rollup.objects.filter(query__in=queries)
    longest_ms: int | None = rows.aggregate(longest=Max("duration_ms_max"))["longest"]
    return (longest_ms or 0) / 1000


_BAR = ("at", "pk", "run", "batch", "batch_duration_ms", "num_input_rows", "repaired")


def _bars(rows: list[tuple[Any, ...]]) -> list[BatchBar]:
    bars: list[BatchBar] = []
    for at, _, run, batch, duration_ms, count, repaired in rows:
        before = bars[-1] if bars and bars[-1].run == run else None
        missing = max(0, batch - before.batch - 1) if before else 0
        bars.append(BatchBar(batch, at, duration_ms, count, repaired, run, missing))
    return bars


def _drops_by_driver(
    drivers: set[int],
) -> dict[int, dict[str, tuple[int, datetime, datetime]]]:
    drops: dict[int, dict[str, tuple[int, datetime, datetime]]] = defaultdict(dict)
    for chunk in _chunks(drivers):
        rows = (
            models.DroppedEvents.objects.filter(driver__in=chunk)
            .values("driver", "queue")
            .annotate(highest=Max("total"), first=Min("since"), newest=Max("until"))
        )
        for row in rows:
            drops[row["driver"]][row["queue"]] = (row["highest"], row["first"], row["newest"])
    return drops


def _by_query_and_driver(
    rows: "QuerySet[Any]", queries: list[int], figure: Any
) -> dict[tuple[int, int], int]:
    return {
        (row["query"], row["driver"]): row["figure"]
        for chunk in _chunks(queries)
        for row in rows.filter(query__in=chunk).values("query", "driver").annotate(figure=figure)
    }
