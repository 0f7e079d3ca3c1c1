"""Read the figures of all queries that run or should run, in bulk for a scrape."""

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce

from listeners import selectors as heard
from listeners.loops.troubles import loop_errors
from queries.domain.definitions.selection import terms
from queries.domain.kafka.lag import OffsetUnit
from queries.domain.metrics.samples import QueryFigures
from queries.domain.states import JUDGED_PHASES, STOPPED_PHASES, Desired
from queries.models.checkpoints import Loss
from queries.models.definitions import Query
from queries.selectors import visible
from queries.selectors.kafka.lag import lag_lines
from queries.selectors.newest import newest_drivers
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
    """Return one figure for each query, from the query's rows."""
    return dict(rows.order_by().values_list("query").annotate(figure=figure))


def _lost(ids: list[int]) -> dict[int, dict[str, int]]:
    lost: dict[int, dict[str, int]] = {}
    records = Sum(Coalesce("records", "offsets", 0))
    rows = Loss.objects.filter(query__in=ids).order_by().values_list("query", "kind")
    for query, kind, number in rows.annotate(number=records):
        lost.setdefault(query, {})[kind] = number
    return lost
