"""Collect samples of Headgate itself: its parts, queues, bulk work, incidents, deliveries."""

import contextlib
import shutil
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Count, Min, Q, QuerySet

from listeners.loops.backlogs import backlogs
from listeners.models import DeadLetter
from queries.domain.alerts.kinds import DeliveryState, IncidentState
from queries.domain.metrics import catalogue
from queries.domain.metrics.catalogue import Metric
from queries.domain.metrics.samples import MetricSample
from queries.domain.states import OPEN_DRIVER_STATES
from queries.domain.system import PartState
from queries.models.alerts import Channel, Delivery, Incident
from queries.models.hosts import Host
from queries.selectors import visible
from queries.selectors.metrics import queues

if TYPE_CHECKING:
    from queries.domain.system import SystemHealth


def system_samples(health: "SystemHealth", *, now: datetime) -> Iterator[MetricSample]:
    """Yield the samples that need neither Redis nor the database, then those that do.

    If Redis or the database is down, `headgate_part_up` shows this, and the other samples are still
    yielded.
    """
    yield MetricSample(catalogue.BUILD, 1, (settings.VERSION,))
    for part in health.parts:
        if part.state != PartState.UNKNOWN:
            yield MetricSample(catalogue.PART_UP, part.ok, (part.name,))
    with contextlib.suppress(OSError):  # the part "disk" reports why
        yield MetricSample(catalogue.DISK_FREE, shutil.disk_usage(settings.HEADGATE_HOME).free)
    yield from _of_redis()
    with contextlib.suppress(DatabaseError):  # the part "database" reports why
        yield from list(_of_the_database(now))


def _of_redis() -> Iterator[MetricSample]:
    backlog = queues.look()
    if backlog is None:
        return
    for queue, tasks in backlog.tasks.items():
        yield MetricSample(catalogue.QUEUE_TASKS, tasks, (queue,))
    yield MetricSample(catalogue.STREAM_EVENTS, backlog.events)
    if backlog.ingest_lag_s is not None:
        yield MetricSample(catalogue.INGEST_LAG, backlog.ingest_lag_s)
    sweeps = [
        run.ended
        for worker_report in backlog.reports
        if (run := worker_report.runs.get("sweep")) and run.ended
    ]
    if sweeps:
        yield MetricSample(catalogue.LAST_SWEEP, max(sweeps).timestamp())
    for report in backlog.reports:
        for name, run in report.runs.items():
            if run.ended is not None:
                yield MetricSample(catalogue.TICK_ENDED, run.ended.timestamp(), (report.host, name))


def _of_the_database(now: datetime) -> Iterator[MetricSample]:
    living = visible.queries().filter(archived_at=None)
    open_drivers = visible.drivers().filter(state__in=sorted(OPEN_DRIVER_STATES))
    lasting = Incident.objects.filter(state=IncidentState.OPEN)
    yield from _counted(catalogue.QUERIES, living, "phase")
    yield from _counted(catalogue.DRIVERS, open_drivers, "state")
    yield from _counted(catalogue.INCIDENTS, lasting, "kind", "severity")
    yield from _counted(catalogue.DELIVERIES, Delivery.objects.all(), "state")
    waiting = Delivery.objects.filter(state=DeliveryState.WAITING)
    oldest = waiting.aggregate(at=Min("created_at"))["at"]
    yield MetricSample(catalogue.DELIVERY_AGE, (now - oldest).total_seconds() if oldest else 0)
    failing = Channel.objects.filter(enabled=True, failing_since__isnull=False)
    yield MetricSample(catalogue.CHANNELS_FAILING, failing.count())
    for host in Host.objects.filter(~Q(seen_at=None)):
        assert host.seen_at is not None, "only such are asked for"
        yield MetricSample(catalogue.HOST_SEEN, host.seen_at.timestamp(), (host.name,))
    yield MetricSample(catalogue.DEAD_LETTERS, DeadLetter.objects.count())
    for work in backlogs():
        age = (now - work.since).total_seconds() if work.rows and work.since else 0
        yield MetricSample(catalogue.WORK_LEFT, work.rows, (work.name,))
        yield MetricSample(catalogue.WORK_AGE, max(0.0, age), (work.name,))


def _counted(metric: Metric, rows: QuerySet[Any], *columns: str) -> Iterator[MetricSample]:
    for *labels, number in rows.order_by().values_list(*columns).annotate(Count("pk")):
        yield MetricSample(metric, number, tuple(str(label) for label in labels))
