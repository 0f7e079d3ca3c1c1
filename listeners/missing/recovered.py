"""Recover batches that the bus, the spool and the driver's memory did not deliver.

Only the checkpoint's logs still show that these batches ran, when, and how far they read. Code that
can read checkpoints gets the list of lost batches here, and passes its findings to `keep`. The
batches' metrics remain unknown, and their rows are marked with their origin (`fromCheckpoint`).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane import nudge
from headgate_ground.wire import EventKind, WireEvent
from listeners import models
from listeners.loops.backlogs import loop_errors, quarantine
from listeners.loops.slices import bulk_work
from listeners.missing.gaps import settle
from listeners.store import EventBatch, merge, overlap, store

logger = logging.getLogger(__name__)
_errors = loop_errors("repair from checkpoints", logger)

CHECKPOINT = "checkpoint"
RECOVERED = "recovered"
LIMIT_S = 5.0  # per gap and checkpoint
#: Spark keeps the logs of 100 batches by default: what they do not show within this time, they
#: never will.
REPAIRED_FOR = timedelta(hours=1)
_BATCHES_AT_ONCE = 500
_RUN = 2**32  # id range of such rows per run: negative


@dataclass(frozen=True, slots=True)
class LostBatches:
    """Batches of one run that were executed but never reported."""

    gap: int
    run: int
    batches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A finished run, identified in the same way as in its driver's events."""

    driver: int
    epoch: int  # the driver's
    query: int
    run: int
    spark_run_id: str


@dataclass(frozen=True, slots=True)
class RecalledBatch:
    """One batch according to a checkpoint's logs."""

    batch: int
    began_at: datetime
    took_ms: int  # from its start to its commit
    sources: list[dict[str, Any]]  # {description, startOffset, endOffset}
    watermark: datetime | None = None


def lost_batches(*, now: datetime) -> list[LostBatches]:
    """Return lost batches that cannot be repaired otherwise, from the last `REPAIRED_FOR` only."""
    losses = []
    for gap in _gaps(now):
        with _errors.isolate_errors(f"gap {gap.pk} of driver {gap.driver}"):
            received_ranges = [(row.first, row.last) for row in _received(gap)]
            ids = range(gap.first, min(gap.last, gap.first + _BATCHES_AT_ONCE - 1) + 1)
            batches = tuple(batch for batch in ids if not overlap((batch, batch), received_ranges))
            if batches and gap.run is not None:
                losses.append(LostBatches(gap.pk, gap.run, batches))
    return losses


def note_unreported(ended: EndedRun, committed: Sequence[int], *, now: datetime) -> int:
    """Count committed but unreported batches of a run as lost; return how many.

    Nothing of the run can still arrive, so its open gaps are closed: they are repaired or lost.
    Holes between reported batches are found separately (`gaps`). If a run's last batches, or all of
    its batches, were not reported, there is no hole: only the checkpoint can still show them.
    """
    received = models.Received.objects.filter(
        kind="batch", driver=ended.driver, spark_run_id=ended.spark_run_id
    )
    gaps = models.Gap.objects.filter(
        kind="batch", driver=ended.driver, spark_run_id=ended.spark_run_id
    )
    for gap in gaps.filter(closed_at=None):
        settle(gap, now=now, hopeless=True, source="memory")
    ranges = [(row.first, row.last) for row in received] + [(row.first, row.last) for row in gaps]
    missing = merge(
        [], [batch for batch in committed if not any(a <= batch <= b for a, b in ranges)]
    )
    models.Gap.objects.bulk_create(
        [
            models.Gap(
                kind="batch",
                driver=ended.driver,
                query=ended.query,
                run=ended.run,
                spark_run_id=ended.spark_run_id,
                first=first,
                last=last,
                missing=last - first + 1,
                noticed_at=now,
                closed_at=now,
                beyond_repair=True,
            )
            for first, last in missing
        ],
        ignore_conflicts=True,
    )
    return sum(last - first + 1 for first, last in missing)


def _gaps(now: datetime) -> Sequence[models.Gap]:
    rows = models.Gap.objects.filter(kind="batch", beyond_repair=True)
    return list(rows.filter(closed_at__gt=now - REPAIRED_FOR, closed_at__lte=now)[:100])


def _received(gap: models.Gap) -> Sequence[models.Received]:
    return list(
        models.Received.objects.filter(
            kind="batch", driver=gap.driver, spark_run_id=gap.spark_run_id
        )
    )


def keep(gap_id: int, recalled: Sequence[RecalledBatch], *, epoch: int, now: datetime) -> int:
    """Store a checkpoint's information about a gap's batches; return how many are still missing.

    `epoch` is the epoch of the gap's driver.
    """
    gap = models.Gap.objects.get(pk=gap_id)
    with bulk_work(RECOVERED, limit_s=LIMIT_S) as work:
        if work is None or not work.write(
            recalled, lambda some: _store(gap, epoch, some, now), _refused(gap)
        ):
            return gap.missing - gap.repaired
    if recalled:
        nudge.changed(f"driver:{gap.driver}", f"query:{gap.query}")
    return settle(gap, now=now, hopeless=True, source=CHECKPOINT)


def _store(gap: models.Gap, epoch: int, recalled: Sequence[RecalledBatch], now: datetime) -> None:
    batch = EventBatch(now)
    for repaired_batch in recalled:
        batch.add(_event(gap, epoch, repaired_batch))
    store(batch)


def _refused(gap: models.Gap) -> Callable[[RecalledBatch, Exception], None]:
    def refused(batch: RecalledBatch, error: Exception) -> None:
        quarantine(
            "repair from checkpoints", f"batch {batch.batch} of run {gap.run}", error, log=logger
        )

    return refused


def _event(gap: models.Gap, epoch: int, batch: RecalledBatch) -> WireEvent:
    assert gap.run is not None
    body: dict[str, Any] = {
        "batchId": batch.batch,
        "runId": gap.spark_run_id,
        "timestamp": _text(batch.began_at),
        "batchDuration": batch.took_ms,
        "durationMs": {},
        "sources": batch.sources,
        "fromCheckpoint": True,
    }
    if batch.watermark is not None:
        body["eventTime"] = {"watermark": _text(batch.watermark)}
    return WireEvent(
        driver=gap.driver,
        epoch=epoch,
        seq=-(gap.run * _RUN + batch.batch),
        at=_text(batch.began_at),
        kind=EventKind.PROGRESS,
        query=gap.query,
        run=gap.run,
        spark_run_id=gap.spark_run_id,
        batch=batch.batch,
        repaired=True,
        body=body,
    )


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
