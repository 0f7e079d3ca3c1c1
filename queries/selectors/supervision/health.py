"""Gather what is known of a running query, and have its health judged.

All but one of the inputs come from rows: batches and idle events, the driver's newest heartbeat,
the newest look at the brokers. Where a query has been silent for a while, its checkpoint's
`commits/` is read as well: only that separates a query without telemetry from one that has
stalled.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from listeners import selectors as heard
from listeners.latest import moment
from listeners.loops.each import Each
from listeners.selectors import BatchBar, DriverTelemetry, LatestLine
from queries.checkpoints.logs import NotLocal
from queries.domain.states import Phase
from queries.domain.supervision.health import (
    STALL_FLOOR_S,
    Batch,
    Health,
    HealthSeen,
    TriggerKind,
    judge,
    judge_start,
)
from queries.domain.triggers.kinds import interval_ms
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.hosts import logs_at
from queries.selectors.kafka.lag import LagLine, lag_lines

logger = logging.getLogger(__name__)
_each = Each("health", logger)

#: Batches that are read for a verdict and drawn: enough for an honest p99, few enough for a list.
BATCHES = 40
#: A backlog that was last seen longer ago is not known: its broker does not answer.
LAG_FRESH = timedelta(seconds=30)


def healths(
    queries: Sequence[Query], runs: Mapping[int, Run], *, now: datetime
) -> dict[int, Health]:
    """Return the health of those queries that have one; `runs` are the open ones by query.

    A query whose rows cannot be judged has none: the others are judged all the same.
    """
    ids = [query.pk for query in queries]
    latest, bars = heard.latest(ids), heard.heartbeat_bars(ids, count=BATCHES)
    telemetry = heard.telemetry({runs[pk].driver_id for pk in ids})
    lags = lag_lines(ids, now=now)
    found: dict[int, Health | None] = {}
    for query in queries:
        with _each.by_itself(f"query {query.name}"):
            found[query.pk] = health_of(
                query,
                runs[query.pk],
                trigger=trigger_of(runs[query.pk].revision.spec),
                checkpoint=runs[query.pk].checkpoint.location,
                bars=bars.get(query.pk, []),
                latest=latest.get(query.pk),
                telemetry=telemetry.get(runs[query.pk].driver_id),
                lag=lags.get(query.pk),
                now=now,
            )
    return {pk: health for pk, health in found.items() if health is not None}


def trigger_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition's trigger; Spark's default where it names none."""
    return spec.get("trigger") or {"kind": "processing_time", "interval": "0 seconds"}


def health_of(
    query: Query,
    run: Run | None,
    *,
    trigger: dict[str, Any],
    checkpoint: str,
    bars: Sequence[BatchBar],
    latest: LatestLine | None,
    telemetry: DriverTelemetry | None,
    lag: LagLine | None,
    now: datetime,
) -> Health | None:
    """Return a query's health; None unless it is RUNNING, or something is wrong at its start.

    A start is judged once Spark has started the query: from then on tasks are seen to finish.
    """
    starting = query.phase == Phase.STARTING and run is not None and run.started_at is not None
    if run is None or not (starting or query.phase == Phase.RUNNING):
        return None
    since = run.proven_at or run.first_commit_at or run.started_at or run.created_at
    told = latest if latest is not None and latest.run == run.pk else None
    kind = TriggerKind(trigger["kind"])
    word = max(since, told.at) if told else since
    silent = now - word > timedelta(seconds=STALL_FLOOR_S)
    beat = telemetry.heartbeat if telemetry else None
    pulse = next((one for one in beat.queries if one.run == run.pk), None) if beat else None
    backlog = lag if lag is not None and now - lag.seen_at <= LAG_FRESH else None
    return (judge_start if starting else judge)(
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
            idle_at=told.idle_at if told else None,
            last_event_at=told.at if told else None,
            heartbeat_at=telemetry.received_at if telemetry else None,
            jvm_alive=beat.jvm_alive if beat else None,
            query_alive=pulse.alive if pulse else None,
            commits_at=newest_commit(checkpoint, host=run.driver.host)
            if silent and not starting
            else None,
            task_at=moment(pulse.task_at) if pulse and pulse.task_at else None,
            backlog=backlog.records if backlog else None,
            arrival_rate=backlog.arrival_rate if backlog else None,
            unit=backlog.unit if backlog else "records",
            waiting=backlog.waiting if backlog else 0,
            partitions=backlog.partitions if backlog else 0,
            unread=backlog.unread if backlog else (),
            unreachable_since=query.source_unreachable_since,
        )
    )


def newest_commit(location: str, *, host: str | None = None) -> datetime | None:
    """Return when a checkpoint on this host got its newest commit; None where none is seen.

    `host` is that of the run's driver; None: look up the application's.
    """
    try:
        changed = (logs_at(location, host=host).root / "commits").stat().st_mtime
    except (NotLocal, OSError):
        return None
    return datetime.fromtimestamp(changed, UTC)
