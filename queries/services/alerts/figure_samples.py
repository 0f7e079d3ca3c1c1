"""Keep each running query's lag and late rows once a minute, for thresholds and their previews.

Only the newest lag is stored elsewhere. A value that is not current is stored as unknown.
"""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Sum

from listeners.loops.troubles import loop_errors
from queries.domain.kafka.lag import OffsetUnit
from queries.domain.states import Desired, LossKind, Phase
from queries.models.alerts import FigureSample
from queries.models.checkpoints import Loss
from queries.models.definitions import Query
from queries.selectors.kafka.lag import LagLine, lag_lines

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
