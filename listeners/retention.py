"""Remove what is older than anybody wants to look at, a little at a time.

Small transactions: the database's one writer must not keep the ingester waiting.
"""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from listeners import models
from listeners.series import WIDTHS_S
from listeners.wire import Kind

ROWS_AT_ONCE = 2_000
MINUTES_KEPT_DAYS = 30  # rollups of a minute; those of 10 s go with the raw rows


def expire(*, now: datetime, raw_days: int, history_days: int, limit_s: float = 20.0) -> int:
    """Delete what has passed its time, for `limit_s` at most; return how many rows went.

    What is left then goes with the next call.
    """
    end = time.monotonic() + limit_s
    removed = 0
    for rows in _expired(now, raw_days=raw_days, history_days=history_days):
        while time.monotonic() < end:
            ids = list(rows.values_list("pk", flat=True)[:ROWS_AT_ONCE])
            if not ids:
                break
            removed += rows.model.objects.filter(pk__in=ids).delete()[0]
    return removed


def _expired(now: datetime, *, raw_days: int, history_days: int) -> "Iterator[QuerySet[Any]]":
    raw = now - timedelta(days=raw_days)
    minutes = now - timedelta(days=min(MINUTES_KEPT_DAYS, max(raw_days, history_days)))
    history = now - timedelta(days=max(raw_days, history_days))
    fine, middle, coarse = WIDTHS_S
    for query in models.Latest.objects.values_list("query", flat=True):
        yield models.Progress.objects.filter(query=query, at__lt=raw)
    yield models.Event.objects.filter(at__lt=raw, kind=Kind.IDLE)
    yield models.Rollup.objects.filter(width_s=fine, start__lt=raw)
    yield models.Rollup.objects.filter(width_s=middle, start__lt=minutes)
    yield models.Rollup.objects.filter(width_s=coarse, start__lt=history)
    yield models.Event.objects.filter(at__lt=history)
    yield models.Gap.objects.filter(noticed_at__lt=history)
    yield models.DroppedEvents.objects.filter(until__lt=history)
    yield models.DeadLetter.objects.filter(received_at__lt=history)
    yield models.Received.objects.filter(at__lt=history)
    yield models.Heartbeat.objects.filter(received_at__lt=history)
