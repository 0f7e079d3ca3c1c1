"""Find unreported batches in checkpoints' logs: our own, to restore them, and foreign ones.

Plain PySpark does not use Headgate's locks, so it can write to a checkpoint that a query is using.
Each writer then fails on the other's batches, and a sink may get rows twice. Headgate can only
detect and report this.

If the JVM commits a batch after its Python process was killed, the reports have no gap: only the
checkpoint's `commits/` shows the batch. Each run is therefore compared with these commits once it
has ended.
"""

import logging
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Max, Min, Q

from controlplane.nudge import changed
from controlplane.servers import connection
from headgate_ground.tolerant import at_ms
from listeners import streams
from listeners.loops.backlogs import loop_errors
from listeners.missing import recovered
from listeners.missing.recovered import LostBatches, RecalledBatch
from listeners.models import Gap, Heartbeat, Received
from queries.checkpoints.logs import Logs, NotLocal
from queries.domain.checkpoints.batches import AFTER_ITS_END, LoggedBatch, RunSpan, foreign_batches
from queries.domain.checkpoints.logs import Offsets, begun_at
from queries.domain.protocol import WarningCode
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
    used_checkpoints = list(
        checkpoints.annotate(first_run=Min("runs__created_at")).exclude(first_run=None)
    )
    news = 0
    for first in range(0, len(used_checkpoints), _AT_ONCE):
        some = used_checkpoints[first : first + _AT_ONCE]
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
    """Return, by query, when its runs were alive, on any checkpoint: a copied batch keeps its time.

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


_loop_batch_repair = loop_errors("repair from checkpoints", logger)


#: How long after a run's end its reports may still arrive, from the spool or driver memory.
UNDER_WAY = timedelta(seconds=60)
_RUNS_AT_ONCE = 200  # waiting ones included
#: How long an ended run waits for logs that cover its end. The next run's driver writes them; lost
#: batches are not looked up for longer either (`recovered.REPAIRED_FOR`).
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
        with _loop_batch_repair.isolate_errors(f"the commits of run {run.pk}"):
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
    committed_batches = []
    for batch in logs.committed():
        at, timed = logs.written_at("commits", batch), logs.began_at(batch) is not None
        if at is not None and timed and began <= at <= ended + AFTER_ITS_END:
            committed_batches.append(batch)
    return committed_batches


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
        with _loop_batch_repair.isolate_errors(f"run {lost_batches.run}"):
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
    """Return a committed batch as recorded in the logs; None if they do not contain it."""
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
