"""Read the figures of all queries and of Headgate itself, in bulk for a scrape."""

import contextlib
import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import redis
from django.conf import settings
from django.db import DatabaseError
from django.db.models import Count, Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from controlplane import servers, signs_of_life
from controlplane.ticks import TickReport
from listeners import selectors as heard
from listeners import streams
from listeners.loops.backlogs import backlogs, loop_errors
from listeners.models import DeadLetter
from queries.domain import metrics
from queries.domain.alerts.forms import DeliveryState, IncidentState
from queries.domain.definitions.labels import terms
from queries.domain.kafka.lag import OffsetUnit
from queries.domain.metrics import Metric, MetricSample, QueryFigures
from queries.domain.states import JUDGED_PHASES, OPEN_DRIVER_STATES, STOPPED_PHASES, Desired
from queries.domain.system import PartState
from queries.models.alerts import Channel, Delivery, Incident
from queries.models.checkpoints import Loss
from queries.models.definitions import Query
from queries.models.drivers import Host
from queries.selectors import visible
from queries.selectors.kafka.lag import lag_lines
from queries.selectors.rows import newest_drivers
from queries.selectors.supervision.query_filters import matching

_loop = loop_errors("metrics", logging.getLogger(__name__))

#: Queries read at a time, which bounds the rows in memory.
AT_ONCE = 500


def query_figures(*, now: datetime) -> Iterator[QueryFigures]:
    """Yield the figures of existing queries that run or should run, by name.

    HEADGATE_METRICS_SELECTOR filters the queries by label.
    """
    active = Q(desired=Desired.RUNNING) | ~Q(phase__in=sorted(STOPPED_PHASES))
    rows = visible.queries().filter(active, archived_at=None).select_related("application")
    found = matching(rows, terms(settings.METRICS_SELECTOR)).order_by("name")
    shown = list(found)
    for first in range(0, len(shown), AT_ONCE):
        yield from _figures(shown[first : first + AT_ONCE], now)


def _figures(queries: list[Query], now: datetime) -> Iterator[QueryFigures]:
    ids = [query.pk for query in queries]
    latest, lags = heard.latest(ids), lag_lines(ids, now=now)
    starts = _counts(visible.runs().filter(query__in=ids), Count("pk"))
    failures = _counts(visible.failure_groups().filter(query__in=ids), Sum("count"))
    lost = _lost(ids)
    drivers = newest_drivers(ids)
    dropped = heard.dropped(ids, drivers=drivers)
    for query in queries:
        line, lag = latest.get(query.pk), lags.get(query.pk)
        lag = lag if lag and lag.current else None  # a sample must be current
        tables = lag.tables if lag else None
        drops = dropped[query.pk] if query.pk in drivers else None
        labels: dict[str, str] = {}
        with _loop.isolate_errors(f"the labels of {query.name}"):
            labels = {**query.application.labels, **query.labels}
        yield QueryFigures(
            name=query.name,
            application=query.application.name,
            labels=labels,
            wanted=query.desired == Desired.RUNNING,
            phase=query.phase,
            phase_since=query.phase_since,
            verdict=query.verdict if query.phase in JUDGED_PHASES else "",
            verdict_since=query.verdict_since,
            starts=starts.get(query.pk, 0),
            failures=failures.get(query.pk, 0),
            failures_in_a_row=query.failures,
            event_at=line.at if line else None,
            batch_at=line.progress_at if line else None,
            progress=(line.progress if line else None) or {},
            lag_seconds=lag.seconds if lag else None,
            lag_offsets=lag.records if lag and lag.unit != OffsetUnit.VERSIONS else None,
            table_lag_versions=tables.versions if tables else None,
            table_lag_files=tables.files if tables else None,
            table_lag_bytes=tables.bytes if tables else None,
            risk_at=query.risk_at if query.risk else None,
            source_reachable=query.source_reachable,
            dropped=drops.bus + drops.outbox if drops else None,
            missing=drops.missing_batches - drops.repaired if drops else None,
            lost=lost.get(query.pk, {}),
        )


def _counts(rows: Any, figure: Any) -> dict[int, int]:
    """Return one figure per query, from its rows."""
    return dict(rows.order_by().values_list("query").annotate(figure=figure))


def _lost(ids: list[int]) -> dict[int, dict[str, int]]:
    lost_by_query: dict[int, dict[str, int]] = {}
    records = Sum(Coalesce("records", "offsets", 0))
    rows = Loss.objects.filter(query__in=ids).order_by().values_list("query", "kind")
    for query, kind, number in rows.annotate(number=records):
        lost_by_query.setdefault(query, {})[kind] = number
    return lost_by_query


@dataclass(frozen=True, slots=True)
class Queues:
    """The backlogs in Redis."""

    tasks: dict[str, int]  # by queue: any worker's, and this host's
    events: int  # entries in all streams, including ingested ones that are kept for a while
    ingest_lag_s: float | None  # None: nobody has read the stream yet
    reports: list[TickReport]  # of the workers' ticks


def look() -> Queues | None:
    """Return the backlogs, or None if Redis is not responding within a second."""
    try:
        with servers.client(settings.REDIS_URL, limit_s=servers.LOOK_LIMIT_S) as client:
            reports = signs_of_life.reports(client)
            prefix = settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]
            names = (settings.QUEUE, settings.HOST_QUEUE)
            tasks: dict[str, Any] = {name: client.llen(f"{prefix}{name}") for name in names}
            states = streams.look(client, streams.names_of(client, settings.EVENT_STREAM))
            events = sum(state.entries for state in states)
            return Queues(tasks, events, _ingest_lag_s(client, states), reports)
    except redis.RedisError:
        return None


def _ingest_lag_s(client: redis.Redis, states: Sequence[streams.StreamState]) -> float | None:
    """Return the seconds between the newest entry and the newest ingested one, by their ids.

    This is the maximum over all streams; None if nothing has been ingested from any of them.
    """
    now_ms = time.time() * 1000  # ids use Redis' clock; a driver may set any
    lags = []
    for state in states:
        if delivered_ms := _at_ms(state.delivered or b"0"):
            stream: Any = client.xinfo_stream(state.name)
            newest = min(_at_ms(stream["last-generated-id"]), now_ms)
            lags.append(max(0.0, newest - delivered_ms) / 1000)
    return max(lags, default=None)


def _at_ms(entry: bytes) -> int:
    """Return when an entry was written, in milliseconds: its id starts with that time."""
    return int(entry.split(b"-")[0])


if TYPE_CHECKING:
    from queries.domain.system import SystemHealth


def system_samples(health: "SystemHealth", *, now: datetime) -> Iterator[MetricSample]:
    """Yield the samples that need neither Redis nor the database, then those that do.

    If Redis or the database is down, `headgate_part_up` shows this, and the other samples are still
    yielded.
    """
    yield MetricSample(metrics.BUILD, 1, (settings.VERSION,))
    for part in health.parts:
        if part.state != PartState.UNKNOWN:
            yield MetricSample(metrics.PART_UP, part.ok, (part.name,))
    with contextlib.suppress(OSError):  # the part "disk" reports why
        yield MetricSample(metrics.DISK_FREE, shutil.disk_usage(settings.HEADGATE_HOME).free)
    yield from _of_redis()
    with contextlib.suppress(DatabaseError):  # the part "database" reports why
        yield from list(_of_the_database(now))


def _of_redis() -> Iterator[MetricSample]:
    backlog = look()
    if backlog is None:
        return
    for queue, tasks in backlog.tasks.items():
        yield MetricSample(metrics.QUEUE_TASKS, tasks, (queue,))
    yield MetricSample(metrics.STREAM_EVENTS, backlog.events)
    if backlog.ingest_lag_s is not None:
        yield MetricSample(metrics.INGEST_LAG, backlog.ingest_lag_s)
    sweeps = [
        run.ended
        for worker_report in backlog.reports
        if (run := worker_report.runs.get("sweep")) and run.ended
    ]
    if sweeps:
        yield MetricSample(metrics.LAST_SWEEP, max(sweeps).timestamp())
    for report in backlog.reports:
        for name, run in report.runs.items():
            if run.ended is not None:
                yield MetricSample(metrics.TICK_ENDED, run.ended.timestamp(), (report.host, name))


def _of_the_database(now: datetime) -> Iterator[MetricSample]:
    living = visible.queries().filter(archived_at=None)
    open_drivers = visible.drivers().filter(state__in=sorted(OPEN_DRIVER_STATES))
    lasting = Incident.objects.filter(state=IncidentState.OPEN)
    yield from _counted(metrics.QUERIES, living, "phase")
    yield from _counted(metrics.DRIVERS, open_drivers, "state")
    yield from _counted(metrics.INCIDENTS, lasting, "kind", "severity")
    yield from _counted(metrics.DELIVERIES, Delivery.objects.all(), "state")
    waiting = Delivery.objects.filter(state=DeliveryState.WAITING)
    oldest = waiting.aggregate(at=Min("created_at"))["at"]
    yield MetricSample(metrics.DELIVERY_AGE, (now - oldest).total_seconds() if oldest else 0)
    failing = Channel.objects.filter(enabled=True, failing_since__isnull=False)
    yield MetricSample(metrics.CHANNELS_FAILING, failing.count())
    for host in Host.objects.filter(~Q(seen_at=None)):
        assert host.seen_at is not None, "only such are asked for"
        yield MetricSample(metrics.HOST_SEEN, host.seen_at.timestamp(), (host.name,))
    yield MetricSample(metrics.DEAD_LETTERS, DeadLetter.objects.count())
    for work in backlogs():
        age = (now - work.since).total_seconds() if work.rows and work.since else 0
        yield MetricSample(metrics.WORK_LEFT, work.rows, (work.name,))
        yield MetricSample(metrics.WORK_AGE, max(0.0, age), (work.name,))


def _counted(metric: Metric, rows: QuerySet[Any], *columns: str) -> Iterator[MetricSample]:
    for *labels, number in rows.order_by().values_list(*columns).annotate(Count("pk")):
        yield MetricSample(metric, number, tuple(str(label) for label in labels))
