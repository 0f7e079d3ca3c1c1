"""Gather the facts about a running query, and have its health assessed.

All but one of the inputs come from rows: batches and idle events, the driver's newest heartbeat,
and the newest pass over the brokers. If a query has been silent for a while, its checkpoint's
`commits/` is also read, because only that distinguishes a query without telemetry from a stalled
one.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from headgate_ground.tolerant import at_s
from listeners import selectors as heard
from listeners.latest import moment
from listeners.loops.each import LoopErrors
from listeners.selectors import BatchBar, DriverTelemetry, LatestLine
from queries.checkpoints.logs import NotLocal
from queries.domain.definitions.spec import TriggerKind
from queries.domain.kafka.lag import LAG_FRESH, OffsetUnit
from queries.domain.readings import Dated
from queries.domain.states import Phase
from queries.domain.supervision.health.verdicts import (
    STALL_FLOOR_S,
    ExecutedBatch,
    Health,
    HealthSignals,
    judge,
    judge_start,
)
from queries.domain.supervision.health.watermarks import Delay, WaitingRows, waiting
from queries.domain.supervision.observation import idle_since
from queries.domain.triggers.intervals import interval_ms
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.hosts import logs_at
from queries.selectors.kafka.lag import LagLine, lag_lines, missing_sources

logger = logging.getLogger(__name__)
_loop = LoopErrors("health", logger)

#: Batches read for a verdict and drawn on pages: enough for an honest p99, and few enough for a
#: list.
BATCHES = 40


def healths(
    queries: Sequence[Query], runs: Mapping[int, Run], *, now: datetime
) -> dict[int, Health]:
    """Return the health of queries, if they have one; `runs` are the open runs by query.

    A query whose rows cannot be assessed has no health; the others are still assessed.
    """
    ids = [query.pk for query in queries]
    latest, bars = heard.latest(ids), heard.heartbeat_bars(ids, count=BATCHES)
    telemetry = heard.telemetry({runs[pk].driver_id for pk in ids})
    lags, errors = lag_lines(ids, now=now), missing_sources(ids)
    health_by_query: dict[int, Health | None] = {}
    for query in queries:
        with _loop.isolate_errors(f"query {query.name}"):
            health_by_query[query.pk] = health_of(
                query,
                runs[query.pk],
                spec=runs[query.pk].revision.spec,
                checkpoint=runs[query.pk].checkpoint.location,
                bars=bars.get(query.pk, []),
                latest=latest.get(query.pk),
                telemetry=telemetry.get(runs[query.pk].driver_id),
                lag=lags.get(query.pk),
                source_error=errors.get(query.pk),
                now=now,
            )
    return {pk: health for pk, health in health_by_query.items() if health is not None}


def trigger_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition's trigger; Spark's default if it does not specify one."""
    return spec.get("trigger") or {"kind": "processing_time", "interval": "0 seconds"}


def health_of(
    query: Query,
    run: Run | None,
    *,
    spec: Mapping[str, Any],
    checkpoint: str,
    bars: Sequence[BatchBar],
    latest: LatestLine | None,
    telemetry: DriverTelemetry | None,
    lag: LagLine | None,
    source_error: Dated | None,
    now: datetime,
) -> Health | None:
    """Return a query's health; None unless the query is RUNNING, or has a problem while starting.

    A start is assessed as soon as Spark has started the query, because finished tasks are visible
    from then on.
    """
    starting = query.phase == Phase.STARTING and run is not None and run.started_at is not None
    if run is None or not (starting or query.phase == Phase.RUNNING):
        return None
    since = run.proven_at or run.first_commit_at or run.started_at or run.created_at
    run_line = latest if latest is not None and latest.run == run.pk else None
    trigger = trigger_of(spec)
    kind = TriggerKind(trigger["kind"])
    word = max(since, run_line.at) if run_line else since
    silent = now - word > timedelta(seconds=STALL_FLOOR_S)
    beat = telemetry.heartbeat if telemetry else None
    pulse = (
        next((candidate for candidate in beat.queries if candidate.run == run.pk), None)
        if beat
        else None
    )
    backlog = lag if lag is not None and now - lag.seen_at <= LAG_FRESH else None
    return (judge_start if starting else judge)(
        HealthSignals(
            now=now,
            trigger=kind,
            interval_ms=interval_ms(str(trigger.get("interval", ""))) or 0,
            running_since=since,
            batches=[
                ExecutedBatch(bar.batch, bar.at, bar.duration_ms, bar.rows)
                for bar in bars
                if bar.run == run.pk
            ],
            idle_at=run_line.idle_at if run_line else None,
            last_event_at=run_line.at if run_line else None,
            heartbeat_at=telemetry.received_at if telemetry else None,
            jvm_alive=beat.jvm_alive if beat else None,
            query_alive=pulse.alive if pulse else None,
            commits_at=newest_commit(checkpoint, run) if silent and not starting else None,
            task_at=moment(pulse.task_at) if pulse and pulse.task_at else None,
            # Rows of batches cannot be compared with versions of tables.
            backlog=backlog.records if backlog and backlog.unit != OffsetUnit.VERSIONS else None,
            arrival_rate=backlog.arrival_rate if backlog else None,
            unit=backlog.unit if backlog else "records",
            waiting=backlog.waiting if backlog else 0,
            partitions=backlog.partitions if backlog else 0,
            unread=backlog.unread if backlog else (),
            unreachable_since=query.source_unreachable_since,
            source_error=source_error if query.source_reachable else None,
            committed=run.first_commit_at is not None,
            waiting_state=_waiting_state(run_line, run, spec),
            idle_cluster_since=idle_since(run.driver.executors_wanted),
        )
    )


def _waiting_state(
    run_line: LatestLine | None, run: Run, spec: Mapping[str, Any]
) -> WaitingRows | None:
    """Return the state's size after the run's newest batch; None if it was not reported."""
    if run_line is None or run_line.progress_run != run.pk:
        return None
    marks = [source["watermark"] for source in spec.get("sources", ()) if source.get("watermark")]
    delay = None
    if len(marks) == 1 and (by := interval_ms(str(marks[0]["delay"]))) is not None:
        delay = Delay(str(marks[0]["column"]), timedelta(milliseconds=by))
    # The mode used by a script or a function is unknown here; append is Spark's default.
    mode = (spec.get("sink") or {}).get("output_mode", "append")
    return waiting(run_line.progress, appends=mode == "append", delay=delay)


def newest_commit(location: str, run: Run) -> datetime | None:
    """Return the time of the newest commit of a run's checkpoint; None if none is known.

    Checkpoints on this host are read. The run's driver also reports its commits by a file on its
    own host, whatever the location, so that neither storage nor the ingester is needed.
    """
    times = [run.last_commit_at]
    with suppress(NotLocal, OSError):
        commits = logs_at(location, host=run.driver.host).root / "commits"
        times.append(at_s(commits.stat().st_mtime))
    return max((at for at in times if at is not None), default=None)
