"""Store each running query's figures once a minute for thresholds, and forecast its problems.

Only the newest lag is stored elsewhere. A value that is not current is stored as unknown.

Pages compute the same forecast on demand, but alerts need it even if nobody opens a page. The
forecast reads checkpoint files, so each host's worker handles its own queries.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Sum

from controlplane.nudge import changed
from listeners.loops.backlogs import loop_errors
from queries.domain.kafka.lag import OffsetUnit
from queries.domain.states import Desired, LossKind, Phase
from queries.models.alerts import FigureSample
from queries.models.checkpoints import Loss
from queries.models.definitions import Query
from queries.selectors.checkpoints import state_history
from queries.selectors.hosts import on_this_host
from queries.selectors.kafka.lag import LagLine, lag_lines
from queries.selectors.probes import failed_preflight
from queries.selectors.triggers.replays import exposure

_each = loop_errors("figure samples", logging.getLogger(__name__))

#: A preview covers 7 days, and its first window up to one more.
KEPT = timedelta(days=8)
#: Expired rows deleted per minute; more than a minute adds, so that none are left behind.
_DELETED_AT_ONCE = 20_000
_QUERIES_AT_ONCE = 200


def sample_figures(*, now: datetime) -> int:
    """Store this minute's figures of each running query; return how many, 0 if it was done."""
    minute = now.replace(second=0, microsecond=0)
    # Not the newest row: after the clock was set back, that one is in the future.
    if FigureSample.objects.filter(at=minute).exists():
        return 0
    count = 0
    for pks in _running():
        try:
            count += _sample(pks, minute, now)
        except Exception:  # one of them: each is tried by itself, and the failing one named
            for pk in pks:
                with _each.isolate_errors(f"query number {pk}"):
                    count += _sample([pk], minute, now)
    with _each.isolate_errors("expired samples"):
        old = FigureSample.objects.filter(at__lt=now - KEPT).order_by("at")
        pks = list(old.values_list("pk", flat=True)[:_DELETED_AT_ONCE])
        if pks:
            FigureSample.objects.filter(pk__in=pks).delete()
    return count


def _running() -> Iterator[list[int]]:
    rows = Query.objects.filter(archived_at=None, desired=Desired.RUNNING, phase=Phase.RUNNING)
    pks = list(rows.order_by("pk").values_list("pk", flat=True))
    for start in range(0, len(pks), _QUERIES_AT_ONCE):
        yield pks[start : start + _QUERIES_AT_ONCE]


def _sample(pks: list[int], minute: datetime, now: datetime) -> int:
    lags = lag_lines(pks, now=now)
    today = Loss.objects.filter(query__in=pks, kind=LossKind.LATE, day=now.date(), corrects=None)
    late = dict(today.order_by().values_list("query").annotate(Sum("records")))
    rows = [_row(pk, minute, lags.get(pk), late.get(pk) or 0) for pk in pks]
    FigureSample.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def _row(query: int, minute: datetime, lag: LagLine | None, late: int) -> FigureSample:
    row = FigureSample(query_id=query, at=minute, late=late)
    if lag is not None and lag.current:
        row.seconds = lag.seconds
        if lag.unit is not OffsetUnit.VERSIONS:
            row.records = lag.records
        if lag.tables is not None:
            row.files, row.bytes = lag.tables.files, lag.tables.bytes
    return row


_each_forecast = loop_errors("outlook", logging.getLogger(__name__))

NOTHING: dict[str, Any] = {
    "state_full_at": None,
    "replay_records": None,
    "preflight_fails": False,
}


#: Time limit per call, in seconds. A query takes 3 ms, or 11 ms with a large state; a thousand
#: queries take several calls, which leaves time for the worker's other threads.
LIMIT_S = 0.5
#: Minimum interval between the starts of two rounds over all queries.
ROUND_EVERY = timedelta(seconds=60)
_ROWS_AT_ONCE = 50


@dataclass(slots=True)
class Round:
    """Progress of a round over this host's queries, in the worker's memory."""

    began_at: datetime | None = None
    after: int = 0  # the last query examined; 0 if the round is over


def look_ahead(*, now: datetime, limit_s: float = LIMIT_S, place: Round | None = None) -> int:
    """Record when state will be full, the replay after a crash, and failed preflights.

    Continues at `place` for at most `limit_s`; without `place`, starts from the beginning. Returns
    the number of queries whose forecast has changed. Unreadable values count as unknown and are not
    reported as problems.
    """
    place, end = place or Round(), time.monotonic() + limit_s
    if not place.after:
        if place.began_at is not None and now - place.began_at < ROUND_EVERY:
            return 0
        place.began_at = now
        # Stopped queries have no forecast.
        resting = Query.objects.filter(on_this_host("application__"), desired=Desired.STOPPED)
        resting.exclude(**NOTHING).update(**NOTHING)
    wanted = Query.objects.filter(
        on_this_host("application__"), archived_at=None, desired=Desired.RUNNING
    )
    rows, news = wanted.select_related("application").order_by("pk"), 0
    while some := list(rows.filter(pk__gt=place.after)[:_ROWS_AT_ONCE]):
        for query in some:
            with _each_forecast.isolate_errors(f"query {query.name}"):
                news += _look(query, now)
            place.after = query.pk
            if time.monotonic() > end:
                return news
    place.after = 0
    return news


def _look(query: Query, now: datetime) -> bool:
    full_in_s = state_history(query, now=now).growth.full_in_s
    exposed = exposure(query, now=now)
    full_at = None if full_in_s is None else now + timedelta(seconds=full_in_s)
    seen = {
        "state_full_at": full_at and full_at.replace(second=0, microsecond=0),
        "replay_records": exposed.rows if exposed else None,
        "preflight_fails": failed_preflight(query),
    }
    if all(getattr(query, name) == value for name, value in seen.items()):
        return False
    Query.objects.filter(pk=query.pk).update(**seen)
    changed(f"query:{query.pk}")
    return True
