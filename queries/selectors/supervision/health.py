"""Gather what is known of a running query, and have its health judged.

Everything but one thing comes from rows. Where a query has been silent for a while, its
checkpoint's `commits/` is looked at as well: that alone tells a query without telemetry from
one that stands still.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from listeners.selectors import BatchBar, DriverTelemetry, LatestLine
from queries.domain.states import OPEN_DRIVER_STATES, Phase
from queries.domain.supervision.health import (
    STALL_FLOOR_S,
    Batch,
    Health,
    HealthSeen,
    TriggerKind,
    judge,
)
from queries.domain.triggers.kinds import interval_ms
from queries.models.definitions import Query
from queries.models.drivers import Run

#: Batches that are read for a verdict: enough for an honest p99, few enough for a list.
BATCHES = 40


def health_of(
    query: Query,
    run: Run | None,
    *,
    trigger: dict[str, Any],
    checkpoint: str,
    bars: Sequence[BatchBar],
    latest: LatestLine | None,
    telemetry: DriverTelemetry | None,
    now: datetime,
) -> Health | None:
    """Return a query's health; None unless it is RUNNING."""
    if query.phase != Phase.RUNNING or run is None:
        return None
    since = run.proven_at or run.first_commit_at or run.started_at or run.created_at
    heard = latest if latest is not None and latest.run == run.pk else None
    kind = TriggerKind(trigger["kind"])
    word = max(since, heard.at) if heard else since
    silent = now - word > timedelta(seconds=STALL_FLOOR_S)
    return judge(
        HealthSeen(
            now=now,
            trigger=kind,
            interval_ms=interval_ms(str(trigger.get("interval", ""))) or 0,
            running_since=since,
            batches=[
                Batch(bar.batch, bar.at, bar.duration_ms, bar.rows)
                for bar in bars
                if bar.run == run.pk
            ],
            idle_at=heard.idle_at if heard else None,
            last_event_at=heard.at if heard else None,
            heartbeat_at=telemetry.received_at if telemetry else None,
            driver_alive=None if run.driver.state in OPEN_DRIVER_STATES else False,
            commits_at=newest_commit(checkpoint) if silent else None,
        )
    )


def newest_commit(location: str) -> datetime | None:
    """Return when a checkpoint on this host got its newest commit; None where none is seen."""
    address = urlsplit(location)
    if address.scheme != "file":
        return None
    try:
        changed = (Path(unquote(address.path)) / "commits").stat().st_mtime
    except OSError:
        return None
    return datetime.fromtimestamp(changed, UTC)
