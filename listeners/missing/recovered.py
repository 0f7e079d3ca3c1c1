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
from headgate_ground.wire import Event, Kind
from listeners import models
from listeners.loops.slices import bulk_work
from listeners.loops.troubles import each, set_aside
from listeners.missing.gaps import settle
from listeners.ranges import merge, overlap
from listeners.store import Batch, store

logger = logging.getLogger(__name__)
_each = each("repair from checkpoints", logger)

CHECKPOINT = "checkpoint"
RECOVERED = "recovered"
LIMIT_S = 5.0  # per gap and checkpoint
#: Spark keeps the logs of 100 batches by default: what they do not show within this time, they
#: never will.
ASKED_FOR = timedelta(hours=1)
_BATCHES_AT_ONCE = 500
_RUN = 2**32  # id range of such rows per run: negative


@dataclass(frozen=True, slots=True)
class LostBatches:
    """Batches of one run that were executed but never reported."""

    gap: int
    run: int
    batches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished run, identified in the same way as in its driver's events."""

    driver: int
    epoch: int  # the driver's
    query: int
    run: int
    spark_run_id: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """One batch according to a checkpoint's logs."""

    batch: int
    began_at: datetime
    took_ms: int  # from its start to its commit
    sources: list[dict[str, Any]]  # {description, startOffset, endOffset}
    watermark: datetime | None = None


def lost_batches(*, now: datetime) -> list[LostBatches]:
    """Return lost batches that cannot be repaired otherwise, from the last `ASKED_FOR` only."""
    found = []
    for gap in _gaps(now):
        with _each.by_itself(f"gap {gap.pk} of driver {gap.driver}"):
            stored = [(row.first, row.last) for row in _received(gap)]
            ids = range(gap.first, min(gap.last, gap.first + _BATCHES_AT_ONCE - 1) + 1)
            batches = tuple(batch for batch in ids if not overlap((batch, batch), stored))
            if batches and gap.run is not None:
                found.append(LostBatches(gap.pk, gap.run, batches))
    return found


def note_unreported(ended: Ended, committed: Sequence[int], *, now: datetime) -> int:
    """Count committed but unreported batches of a run as lost; return how many.

    Nothing of the run can still arrive, so its open gaps are closed: they are repaired or lost.
    Holes between reported batches are found separately (`gaps`). If a run's last batches, or all of
    its batches, were not reported, there is no hole: only the checkpoint can still show them.
    """
    received = models.Received.objects.filter(
        kind="batch", driver=ended.driver, spark_run_id=ended.spark_run_id
    )
    known = models.Gap.objects.filter(
        kind="batch", driver=ended.driver, spark_run_id=ended.spark_run_id
    )
    for gap in known.filter(closed_at=None):
        settle(gap, now=now, hopeless=True, source="memory")
    told = [(row.first, row.last) for row in received] + [(row.first, row.last) for row in known]
    missing = merge([], [one for one in committed if not any(a <= one <= b for a, b in told)])
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
    return list(rows.filter(closed_at__gt=now - ASKED_FOR, closed_at__lte=now)[:100])


def _received(gap: models.Gap) -> Sequence[models.Received]:
    return list(
        models.Received.objects.filter(
            kind="batch", driver=gap.driver, spark_run_id=gap.spark_run_id
        )
    )


def keep(gap_id: int, recalled: Sequence[Recalled], *, epoch: int, now: datetime) -> int:
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


def _store(gap: models.Gap, epoch: int, recalled: Sequence[Recalled], now: datetime) -> None:
    batch = Batch(now)
    for one in recalled:
        batch.add(_event(gap, epoch, one))
    store(batch)


def _refused(gap: models.Gap) -> Callable[[Recalled, Exception], None]:
    def refused(one: Recalled, error: Exception) -> None:
        set_aside(
            "repair from checkpoints", f"batch {one.batch} of run {gap.run}", error, log=logger
        )

    return refused


def _event(gap: models.Gap, epoch: int, one: Recalled) -> Event:
    assert gap.run is not None
    body: dict[str, Any] = {
        "batchId": one.batch,
        "runId": gap.spark_run_id,
        "timestamp": _text(one.began_at),
        "batchDuration": one.took_ms,
        "durationMs": {},
        "sources": one.sources,
        "fromCheckpoint": True,
    }
    if one.watermark is not None:
        body["eventTime"] = {"watermark": _text(one.watermark)}
    return Event(
        driver=gap.driver,
        epoch=epoch,
        seq=-(gap.run * _RUN + one.batch),
        at=_text(one.began_at),
        kind=Kind.PROGRESS,
        query=gap.query,
        run=gap.run,
        spark_run_id=gap.spark_run_id,
        batch=one.batch,
        repaired=True,
        body=body,
    )


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
