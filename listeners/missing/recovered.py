"""Batches that neither the bus, the spool nor the driver's memory delivered.

Only the checkpoint's logs still show them: that they ran, when, and how far they read. Who can
read checkpoints asks here which are lost, and hands over what it found; their metrics stay
unknown, and their rows say where they come from (`fromCheckpoint`).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from controlplane import nudge
from listeners import models
from listeners.loops.slices import bulk_work
from listeners.loops.troubles import each, set_aside
from listeners.ranges import overlap
from listeners.store import Batch, store
from listeners.wire import Event, Kind

logger = logging.getLogger(__name__)
_each = each("repair from checkpoints", logger)

CHECKPOINT = "checkpoint"
RECOVERED = "recovered"
LIMIT_S = 5.0  # for what one checkpoint shows of one gap
#: Spark keeps the logs of 100 batches by default: what they do not tell within this they never do.
ASKED_FOR = timedelta(hours=1)
_BATCHES_AT_ONCE = 500
_RUN = 2**32  # numbers of such rows: below zero, a range to each run


@dataclass(frozen=True, slots=True)
class LostBatches:
    """Batches of one run that ran and were never reported."""

    gap: int
    run: int
    batches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a checkpoint's logs show of one batch."""

    batch: int
    began_at: datetime
    took_ms: int  # from its begin to its commit
    sources: list[dict[str, Any]]  # {description, startOffset, endOffset}
    watermark: datetime | None = None


def lost_batches(*, now: datetime) -> list[LostBatches]:
    """Return what is beyond any other repair and has been so for less than `ASKED_FOR`."""
    found = []
    for gap in _gaps(now):
        with _each.by_itself(f"gap {gap.pk} of driver {gap.driver}"):
            stored = [(row.first, row.last) for row in _received(gap)]
            ids = range(gap.first, min(gap.last, gap.first + _BATCHES_AT_ONCE - 1) + 1)
            batches = tuple(batch for batch in ids if not overlap((batch, batch), stored))
            if batches and gap.run is not None:
                found.append(LostBatches(gap.pk, gap.run, batches))
    return found


def _gaps(now: datetime) -> Sequence[models.Gap]:
    rows = models.Gap.objects.filter(kind="batch", beyond_repair=True)
    return list(rows.filter(closed_at__gt=now - ASKED_FOR, closed_at__lte=now)[:100])


def _received(gap: models.Gap) -> Sequence[models.Received]:
    return list(
        models.Received.objects.filter(
            kind="batch", driver=gap.driver, spark_run_id=gap.spark_run_id
        )
    )


def keep(gap_id: int, recalled: Sequence[Recalled], *, now: datetime) -> int:
    """Store what a checkpoint shows of a gap's batches; return how many are still missing."""
    gap = models.Gap.objects.get(pk=gap_id)
    epoch = _received(gap)[0].epoch
    with bulk_work(RECOVERED, limit_s=LIMIT_S) as work:
        if work is None or not work.write(
            recalled, lambda some: _store(gap, epoch, some, now), _refused(gap)
        ):
            return gap.missing - gap.repaired
    with transaction.atomic():
        gap = models.Gap.objects.select_for_update().get(pk=gap_id)
        left = (gap.last - gap.first + 1) - sum(
            overlap((row.first, row.last), [(gap.first, gap.last)]) for row in _received(gap)
        )
        gap.repaired, gap.beyond_repair = gap.missing - left, left > 0
        gap.source = CHECKPOINT if recalled else gap.source
        gap.save(update_fields=["repaired", "beyond_repair", "source"])
        if recalled:
            nudge.changed(f"driver:{gap.driver}", f"query:{gap.query}")
    return left


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
