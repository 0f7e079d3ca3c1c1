"""Repair the record of batches from checkpoints' logs, where nothing else remembers them."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from listeners.loops.troubles import each
from listeners.missing import recovered
from listeners.missing.recovered import LostBatches, Recalled
from queries.checkpoints.logs import CheckpointLogs, NotLocal
from queries.domain.checkpoints.logs import Offsets, Unreadable
from queries.models.drivers import Run

logger = logging.getLogger(__name__)
_each = each("repair from checkpoints", logger)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def repair_from_checkpoints(*, now: datetime) -> int:
    """Ask the checkpoints on this host for batches lost otherwise; return how many were found.

    Their logs show that a batch ran, when, and how far it read; its metrics stay unknown.
    """
    lost = recovered.lost_batches(now=now)
    runs = Run.objects.select_related("driver", "checkpoint").in_bulk([one.run for one in lost])
    came = 0
    for one in lost:
        run = runs.get(one.run)
        if run is None or run.driver.host != settings.HEADGATE_HOST:
            continue
        with _each.by_itself(f"run {one.run}"):
            came += _repair(one, run, now)
    return came


def _repair(one: LostBatches, run: Run, now: datetime) -> int:
    try:
        logs = CheckpointLogs.at(run.checkpoint.location)
    except NotLocal:
        return 0
    told = [found for batch in one.batches if (found := read_batch(logs, batch)) is not None]
    if told:
        recovered.keep(one.gap, told, now=now)
    return len(told)


def read_batch(logs: CheckpointLogs, batch: int) -> Recalled | None:
    """Return what the logs record of a committed batch; None where they do not."""
    committed_at, offsets = logs.written_at("commits", batch), _offsets(logs, batch)
    if committed_at is None or offsets is None or offsets.timestamp_ms is None:
        return None
    began_at = _moment(offsets.timestamp_ms)
    return Recalled(
        batch=batch,
        began_at=began_at,
        took_ms=max(0, round((committed_at - began_at) / timedelta(milliseconds=1))),
        sources=_sources(offsets, _offsets(logs, batch - 1)),
        watermark=_moment(offsets.watermark_ms) if offsets.watermark_ms else None,
    )


def _offsets(logs: CheckpointLogs, batch: int) -> Offsets | None:
    try:
        return logs.offsets(batch)
    except (Unreadable, OSError):
        return None  # purged in the meantime, or truncated


def _sources(offsets: Offsets, before: Offsets | None) -> list[dict[str, Any]]:
    starts = before.sources if before else {}
    return [
        {"description": f"source {name}", "startOffset": starts.get(name), "endOffset": end}
        for name, end in offsets.sources.items()
    ]


def _moment(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
