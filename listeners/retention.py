"""Delete rows past their retention, a few at a time.

Transactions are small, so that the ingester does not wait long for the database's write lock.
"""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from headgate_ground.wire import EventKind
from listeners import models
from listeners.loops.backlogs import RETENTION, loop_errors
from listeners.loops.slices import BulkRun, bulk_work
from listeners.rollups import WIDTHS_S

logger = logging.getLogger(__name__)
_errors = loop_errors("retention", logger)

MINUTES_KEPT_DAYS = 30  # for one-minute rollups; those of 10 s are deleted with the raw rows
LIMIT_S = 10.0  # per call
#: Interval between checks for expired rows, if the last one left nothing.
LOOK_EVERY = timedelta(hours=1)


def expire(*, now: datetime, raw_days: int, history_days: int, limit_s: float = LIMIT_S) -> int:
    """Delete expired rows, for at most `limit_s`; return how many were deleted.

    The next call deletes the rest.
    """
    removed, left, since = 0, 0, None
    with bulk_work(RETENTION, limit_s=limit_s) as work:
        if work is None:
            return 0
        for about, rows, at, before in _expired(now, raw_days=raw_days, history_days=history_days):
            with _errors.isolate_errors(about):
                removed += _remove(work, rows)
                oldest = None
                if not work.has_time:
                    oldest = rows.order_by(at).values_list(at, flat=True).first()
                if oldest is not None:
                    left += rows.count()
                    due = oldest + (now - before)  # when it should have been deleted
                    since = min(due, since) if since else due
        work.left(left, since)
    return removed


def is_due(*, now: datetime) -> bool:
    """Return whether the last call left expired rows, or was some time ago."""
    row = models.Cursor.objects.filter(name=RETENTION).first()
    return row is None or row.ran_at is None or bool(row.left_rows) or row.ran_at < now - LOOK_EVERY


def _remove(work: BulkRun, rows: "QuerySet[Any]") -> int:
    """Delete rows in slices while there is time; return how many."""
    kind, removed = rows.model._meta.model_name or "", 0
    while work.has_time:
        ids = list(rows.values_list("pk", flat=True)[: work.size(kind)])
        if not ids:
            break
        with work.slice(len(ids), kind):
            removed += rows.model.objects.filter(pk__in=ids).delete()[0]
    return removed


def _expired(
    now: datetime, *, raw_days: int, history_days: int
) -> "Iterator[tuple[str, QuerySet[Any], str, datetime]]":
    """Yield the kinds of expired rows: their name, the column with their age, and its limit."""
    raw = now - timedelta(days=raw_days)
    minutes = now - timedelta(days=min(MINUTES_KEPT_DAYS, max(raw_days, history_days)))
    history = now - timedelta(days=max(raw_days, history_days))
    fine, middle, coarse = WIDTHS_S
    for query in models.Latest.objects.values_list("query", flat=True):
        yield (
            f"progress of query {query}",
            models.Progress.objects.filter(query=query, at__lt=raw),
            "at",
            raw,
        )
    for kind in (EventKind.IDLE, EventKind.THREAD_DUMP):  # many, or large
        yield f"{kind} events", models.Event.objects.filter(at__lt=raw, kind=kind), "at", raw
    yield (
        "roll-ups of 10 s",
        models.Rollup.objects.filter(width_s=fine, start__lt=raw),
        "start",
        raw,
    )
    yield (
        "roll-ups of 1 min",
        models.Rollup.objects.filter(width_s=middle, start__lt=minutes),
        "start",
        minutes,
    )
    yield (
        "roll-ups of 1 h",
        models.Rollup.objects.filter(width_s=coarse, start__lt=history),
        "start",
        history,
    )
    yield "events", models.Event.objects.filter(at__lt=history), "at", history
    yield "task times", models.TaskTime.objects.filter(start__lt=raw), "start", raw
    yield "slow batches", models.SlowBatch.objects.filter(at__lt=raw), "at", raw
    yield "gaps", models.Gap.objects.filter(noticed_at__lt=history), "noticed_at", history
    yield "dropped events", models.DroppedEvents.objects.filter(until__lt=history), "until", history
    yield (
        "dead letters",
        models.DeadLetter.objects.filter(received_at__lt=history),
        "received_at",
        history,
    )
    yield "received ranges", models.Received.objects.filter(at__lt=history), "at", history
    yield "troubles", models.Trouble.objects.filter(last_at__lt=raw), "last_at", raw
    yield (
        "heartbeats",
        models.Heartbeat.objects.filter(received_at__lt=history),
        "received_at",
        history,
    )
