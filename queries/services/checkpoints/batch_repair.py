"""Count batches that runs committed but never reported, and restore them from checkpoint logs.

If the JVM commits a batch after its Python process was killed, the reports have no gap: only the
checkpoint's `commits/` shows the batch. Each run is therefore compared with these commits once it
has ended.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from controlplane.nudge import changed
from controlplane.redis_client import connection
from headgate_ground.tolerant.values import at_ms
from listeners import streams
from listeners.loops.troubles import loop_errors
from listeners.missing import recovered
from listeners.missing.recovered import LostBatches, RecalledBatch
from listeners.models import Gap
from queries.checkpoints.logs import Logs, NotLocal
from queries.domain.checkpoints.foreign_batches import AFTER_ITS_END
from queries.domain.checkpoints.logs import Offsets, begun_at
from queries.domain.protocol import WarningCode
from queries.models.drivers import Run
from queries.selectors.checkpoint_logs import available_logs

logger = logging.getLogger(__name__)
_loop = loop_errors("repair from checkpoints", logger)


#: How long after a run's end its reports may still arrive, from the spool or driver memory.
UNDER_WAY = timedelta(seconds=60)
_RUNS_AT_ONCE = 200  # waiting ones included
#: How long an ended run waits for logs that cover its end. The next run's driver writes them; lost
#: batches are not looked up for longer either (`recovered.ASKED_FOR`).
_WAITS_FOR = recovered.REPAIRED_FOR


def count_unreported(*, now: datetime) -> int:
    """Count the batches that this host's ended runs committed but never reported.

    Runs are left to a later call if their driver's events are still being stored, its spool is
    still being read, or the checkpoint's logs are not known up to the run's end. The latter is a
    warning of the run; it stays if the logs do not become known in time.
    """
    due = Run.objects.filter(
        commits_compared_at=None, ended_at__lte=now - UNDER_WAY, driver__host=settings.HEADGATE_HOST
    )
    runs = list(due.select_related("driver", "checkpoint").order_by("ended_at")[:_RUNS_AT_ONCE])
    if not runs:
        return 0
    epochs = {run.driver.epoch for run in runs}
    stored = streams.stored_up_to(connection(), settings.EVENT_STREAM, epochs)
    drivers = {run.driver_id for run in runs}
    open_gaps = Gap.objects.filter(kind="seq", driver__in=drivers, closed_at=None)
    waiting = set(open_gaps.values_list("driver", flat=True))
    missing = 0
    for run in runs:
        over = ((run.ended_at or now) + UNDER_WAY).timestamp()
        stored_until = min(stored.get(run.driver.epoch, over), stored.get(0, over))
        if stored_until < over or run.driver_id in waiting:
            continue
        with _loop.isolate_errors(f"the commits of run {run.pk}"):
            missing += _compare(run, now)
    return missing


def _compare(run: Run, now: datetime) -> int:
    """Count a run's unreported batches; leave the run for later if its logs may become known."""
    over, unknown, committed = run.ended_at or now, "", []
    try:
        logs = available_logs(run.checkpoint.location, host=run.driver.host)
        committed = committed_by(logs, run.created_at, over)
        if not logs.show_all_of(run.driver_id, run.created_at, over):
            unknown = (
                f"the checkpoint's logs were read last at {logs.seen_at:%H:%M:%S} UTC, before the "
                "run ended. The next run's driver reads them again."
            )
    except NotLocal as error:
        unknown = str(error)
    compared = None if unknown and now - over < _WAITS_FOR else now
    before = WarningCode.BATCHES_UNKNOWN.find_in(run.warnings)
    warnings = [text for text in run.warnings if text != before]
    warnings += [WarningCode.BATCHES_UNKNOWN.text(unknown)] if unknown else []
    Run.objects.filter(pk=run.pk).update(commits_compared_at=compared, warnings=warnings)
    if warnings != run.warnings:
        changed(f"query:{run.query_id}")
    ended = recovered.EndedRun(
        driver=run.driver_id,
        epoch=run.driver.epoch,
        query=run.query_id,
        run=run.pk,
        # A driver may have died before reporting Spark's id; its batches count nevertheless.
        spark_run_id=run.spark_run_id or f"run {run.pk}",
    )
    missing = recovered.note_unreported(ended, committed, now=now)
    if missing:
        logger.warning("run %s has committed %s batches that it never reported", run.pk, missing)
        changed(f"driver:{run.driver_id}", f"query:{run.query_id}")
    return missing


def committed_by(logs: Logs, began: datetime, ended: datetime) -> list[int]:
    """Return the batches whose commits were written between two times.

    The time of the commit decides, because a batch started by one run may have been committed by
    another. Continuous epochs have no time in the log and are omitted.
    """
    committed = []
    for batch in logs.committed():
        at, timed = logs.written_at("commits", batch), logs.began_at(batch) is not None
        if at is not None and timed and began <= at <= ended + AFTER_ITS_END:
            committed.append(batch)
    return committed


def repair_from_checkpoints(*, now: datetime) -> int:
    """Look up batches without a report in this host's checkpoints; return how many were found.

    The logs show that a batch ran, when, and how far it read; its metrics remain unknown.
    """
    lost = recovered.lost_batches(now=now)
    runs = Run.objects.select_related("driver", "checkpoint").in_bulk(
        [lost_batches.run for lost_batches in lost]
    )
    came = 0
    for lost_batches in lost:
        run = runs.get(lost_batches.run)
        if run is None or run.driver.host != settings.HEADGATE_HOST:
            continue
        with _loop.isolate_errors(f"run {lost_batches.run}"):
            came += _repair(lost_batches, run, now)
    return came


def _repair(lost_batches: LostBatches, run: Run, now: datetime) -> int:
    try:
        logs = available_logs(run.checkpoint.location, host=run.driver.host)
    except NotLocal:
        return 0  # `_compare` has noted it
    recovered_batches = [
        recovered_batch
        for batch in lost_batches.batches
        if (recovered_batch := read_batch(logs, batch)) is not None
    ]
    if recovered_batches:
        recovered.keep(lost_batches.gap, recovered_batches, epoch=run.driver.epoch, now=now)
    return len(recovered_batches)


def read_batch(logs: Logs, batch: int) -> RecalledBatch | None:
    """Return what the logs record about a committed batch; None if they do not contain it."""
    committed_at, offsets = logs.written_at("commits", batch), logs.readable_offsets(batch)
    began_at = at_ms(offsets.timestamp_ms) if offsets is not None else None
    if committed_at is None or offsets is None or began_at is None:
        return None
    return RecalledBatch(
        batch=batch,
        began_at=began_at,
        took_ms=max(0, round((committed_at - began_at) / timedelta(milliseconds=1))),
        sources=_sources(offsets, logs.readable_offsets(batch - 1)),
        watermark=at_ms(offsets.watermark_ms) if offsets.watermark_ms else None,
    )


def _sources(offsets: Offsets, before: Offsets | None) -> list[dict[str, Any]]:
    starts = begun_at(before, offsets)
    return [
        {"description": f"source {name}", "startOffset": starts.get(name), "endOffset": end}
        for name, end in offsets.sources.items()
    ]
