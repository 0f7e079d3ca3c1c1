"""Find batches in checkpoints that none of our runs wrote, and record them there.

Plain PySpark does not use Headgate's locks, so it can write to a checkpoint that a query is using.
Each writer then fails on the other's batches, and a sink may get rows twice. Headgate can only
detect and report this.
"""

import logging
from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Max, Min, Q

from controlplane.nudge import changed
from listeners.loops.troubles import loop_errors
from listeners.models import Heartbeat, Received
from queries.checkpoints.logs import Logs, NotLocal
from queries.domain.checkpoints.foreign_batches import LoggedBatch, RunSpan, foreign_batches
from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from queries.selectors.checkpoint_logs import available_logs

logger = logging.getLogger(__name__)
_loop = loop_errors("foreign batches", logger)

#: Newest batches of a log read per check; this takes a few milliseconds.
BATCHES = 30
#: How far back batches are checked: covers a control plane that was down overnight.
SPAN = timedelta(hours=24)
#: Checkpoints whose queries' runs are read at a time.
_AT_ONCE = 200


def look_for_foreign_batches(*, now: datetime) -> int:
    """Check every held checkpoint of this host's queries; return how many have new findings.

    Epochs of continuous queries, which have no time in the log, are not checked, and neither are
    checkpoints whose logs are unknown: their query's Checkpoint tab and REST body say why.
    """
    checkpoints = Checkpoint.objects.filter(
        retired_at=None,
        query__archived_at=None,
        query__application__host=settings.HEADGATE_HOST,
    )
    used = list(checkpoints.annotate(first_run=Min("runs__created_at")).exclude(first_run=None))
    news = 0
    for first in range(0, len(used), _AT_ONCE):
        some = used[first : first + _AT_ONCE]
        spans = _spans([checkpoint.query_id for checkpoint in some], now - SPAN)
        for checkpoint in some:
            with _loop.isolate_errors(f"checkpoint number {checkpoint.pk}"), suppress(NotLocal):
                news += _look(checkpoint, spans[checkpoint.query_id], now)
    return news


def _look(checkpoint: Checkpoint, spans: list[RunSpan], now: datetime) -> bool:
    since = max(checkpoint.first_run, now - SPAN)  # type: ignore[attr-defined]
    logged = _logged(available_logs(checkpoint.location, host=settings.HEADGATE_HOST), since)
    alive = [span for span in spans if span.ended is None or span.ended > since]
    foreign = foreign_batches(logged, alive, since=since, now=now)
    if not foreign:
        return False
    first, newest = foreign[0], foreign[-1]
    last_foreign = checkpoint.foreign_last
    if last_foreign is not None and newest.number <= last_foreign:
        return False
    # Compare-and-set: of two concurrent checks, one writes.
    wrote = Checkpoint.objects.filter(pk=checkpoint.pk, foreign_last=last_foreign).update(
        foreign_first=first.number if last_foreign is None else checkpoint.foreign_first,
        foreign_last=newest.number,
        foreign_at=newest.at,
    )
    if wrote:
        logger.warning(
            "none of our runs wrote batch %s in %s: another process is writing there",
            newest.number,
            checkpoint.location,
        )
        changed(f"query:{checkpoint.query_id}")
    return bool(wrote)


def _logged(logs: Logs, since: datetime) -> list[LoggedBatch]:
    """Return the newest batches that have a time, oldest first."""
    batches = []
    for number in logs.begun()[-BATCHES:]:
        at = logs.began_at(number)
        if at is not None and at > since:
            batches.append(LoggedBatch(number, at))
    return batches


def _spans(query_ids: list[int], since: datetime) -> dict[int, list[RunSpan]]:
    """Return by query when its runs were alive, on any checkpoint: a copied batch keeps its time.

    Runs that ended before `since` are left out.
    """
    runs = list(
        Run.objects.filter(Q(ended_at=None) | Q(ended_at__gt=since), query__in=query_ids)
        .order_by()
        .only("query", "driver", "spark_run_id", "created_at", "ended_at")
    )
    ranges = Received.objects.filter(
        kind="batch", spark_run_id__in=[run.spark_run_id for run in runs if run.spark_run_id]
    )
    reported = dict(ranges.values_list("spark_run_id").annotate(newest=Max("last")))
    beats = Heartbeat.objects.filter(driver__in={run.driver_id for run in runs})
    last_heartbeats = dict(beats.values_list("driver", "at"))
    spans: dict[int, list[RunSpan]] = {pk: [] for pk in query_ids}
    for run in runs:
        spans[run.query_id].append(
            RunSpan(
                began=run.created_at,
                ended=run.ended_at,
                reported=reported.get(run.spark_run_id or ""),
                heartbeat_at=last_heartbeats.get(run.driver_id),
            )
        )
    return spans
