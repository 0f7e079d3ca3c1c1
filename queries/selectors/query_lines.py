"""The line of a query as list, header and REST body show it: one form for all three."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import isfinite
from typing import Any

from django.utils.dateparse import parse_datetime

from listeners import selectors as heard
from listeners.selectors import BatchBar, DriverTelemetry, Dropped, LatestLine
from queries.domain.errors import Missing
from queries.domain.failures.crash_loops import CrashLoop
from queries.domain.states import Phase, RunOutcome
from queries.domain.supervision.executors import Executors, executors
from queries.domain.supervision.health import Health
from queries.models.applications import ApplicationRevision, SchedulerPool
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Driver, Run
from queries.models.query_rank import Rank
from queries.selectors.failures.occurrences import crash_loops
from queries.selectors.kafka.lag import LagLine, lag_lines
from queries.selectors.newest import (
    current_checkpoints,
    interval_of,
    newest_revisions,
    newest_runs,
)
from queries.selectors.supervision.drift import drift, newest_application_revisions, pools_of
from queries.selectors.supervision.health import BATCHES, health_of, trigger_of
from queries.selectors.supervision.query_filters import Filters, queries
from queries.selectors.supervision.query_groups import FOREIGN_SHOWN_FOR

_NOTHING_LOST = Dropped(bus=0, outbox=0, missing_batches=0, repaired=0, since=None, until=None)


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """The newest executed batch in numbers."""

    batch_id: int
    timestamp: datetime
    num_input_rows: int
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    batch_duration_ms: int
    duration_ms: dict[str, int]
    watermark: datetime | None


@dataclass(frozen=True, slots=True)
class ForeignBatches:
    """Batches of a checkpoint that no run of ours made, from `first` to `last`."""

    first: int
    last: int
    at: datetime  # when the last of them began


@dataclass(frozen=True, slots=True)
class QueryLine:
    """Everything a row of the list, the header of a page and a REST body need of a query."""

    query: Query  # application, target_revision, latest checkpoint selected with it
    phase: Phase
    health: Health | None  # None unless RUNNING
    run: Run | None  # the open one, with its driver
    driver: Driver | None
    revision: int | None  # newest number
    running_revision: int | None
    in_sync: bool  # runs its newest revision
    trigger: dict[str, Any]  # the running (else newest) revision's trigger
    interval_ms: int | None  # of a processing-time trigger
    pool: str
    checkpoint: str
    progress: ProgressLine | None
    last_event_at: datetime | None
    bars: list[BatchBar]
    dropped: Dropped  # of the open run's driver, else of the last run's
    troubled: bool  # somebody should look at it
    converging: bool  # desired and actual differ, and no user has to act
    needs_application_restart: tuple[str, ...]  # why: "pools", "revision", "code"
    newest: QueryRevision | None = None  # the newest revision itself, with its spec
    executors: Executors = field(default_factory=Executors)  # of a driver on a cluster
    last_run: Run | None = None  # the newest run, open or not
    crash_loop: CrashLoop | None = None  # an incident that is open now
    lag: LagLine | None = None  # None: it reads no Kafka, or nothing was seen yet
    foreign_batches: ForeignBatches | None = None  # None: none within the last day

    @property
    def since(self) -> datetime | None:
        """Return since when its health, or else its phase, is what it is."""
        return (self.health.since if self.health else None) or self.query.phase_since


def query_lines(
    filters: Filters | None = None,
    *,
    now: datetime,
    bars: int = BATCHES,
    after: str = "",
    limit: int | None = None,
) -> list[QueryLine]:
    """Return the lines of living queries by name, in a constant number of database queries.

    `after` leaves out names up to and including it; `limit` is the maximum number of lines, None
    for all.
    """
    rows = queries(filters or Filters(), now=now)
    if after:
        rows = rows.filter(name__gt=after)
    return lines_of(rows[:limit], now=now, bars=bars)


def query_line(name: str, *, now: datetime, bars: int = BATCHES) -> QueryLine:
    """Return one living query's line; raise `Missing` where there is none of that name."""
    lines = query_lines(Filters(names=(name,)), now=now, bars=bars)
    if not lines:
        raise Missing(
            f'Query "{name}" does not exist.', way_out="Check its name in the list of queries."
        )
    return lines[0]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What was read for all lines at once, by query or application."""

    newest: dict[int, QueryRevision]
    runs: dict[int, Run]
    checkpoints: dict[int, Checkpoint]
    latest: dict[int, LatestLine]
    bars: dict[int, list[BatchBar]]
    dropped: dict[int, Dropped]
    application_revisions: dict[int, ApplicationRevision]
    pools: dict[int, list[SchedulerPool]]
    telemetry: dict[int, DriverTelemetry]
    crash_loops: dict[int, CrashLoop]
    lags: dict[int, LagLine]


def lines_of(rows: Iterable[Query], *, now: datetime, bars: int = BATCHES) -> list[QueryLine]:
    """Return the lines of rows that `queries` has given, in their order."""
    shown = list(rows)
    if not shown:
        return []
    ids = [query.pk for query in shown]
    applications = {query.application_id for query in shown}
    runs = newest_runs(ids)
    facts = _Facts(
        newest=newest_revisions(ids),
        runs=runs,
        checkpoints=current_checkpoints(ids),
        latest=heard.latest(ids),
        bars=heard.heartbeat_bars(ids, count=BATCHES),
        dropped=heard.dropped(ids, drivers={pk: run.driver_id for pk, run in runs.items()}),
        application_revisions=newest_application_revisions(applications),
        pools=pools_of(applications),
        telemetry=heard.telemetry({run.driver_id for run in runs.values()}),
        crash_loops=crash_loops(now=now, query_ids=ids),
        lags=lag_lines(ids, now=now),
    )
    return [_line(query, facts, bars=bars, now=now) for query in shown]


def _line(query: Query, facts: _Facts, *, bars: int, now: datetime) -> QueryLine:
    last_run = facts.runs.get(query.pk)
    run = last_run if last_run and last_run.outcome == RunOutcome.OPEN else None
    driver = run.driver if run else None
    newest = facts.newest.get(query.pk)
    spec = run.revision.spec if run else (newest.spec if newest else {})
    trigger = trigger_of(spec)
    latest = facts.latest.get(query.pk)
    checkpoint = facts.checkpoints.get(query.pk)
    return QueryLine(
        query=query,
        phase=Phase(query.phase),
        health=_health(query, facts, run=run, trigger=trigger, now=now),
        run=run,
        driver=driver,
        revision=newest.number if newest else None,
        running_revision=run.revision.number if run else None,
        in_sync=run is None or newest is None or run.revision_id == newest.pk,
        trigger=trigger,
        interval_ms=interval_of(trigger),
        pool=spec.get("pool", ""),
        checkpoint=checkpoint.location if checkpoint else "",
        progress=progress_line(latest.progress) if latest and latest.progress else None,
        last_event_at=latest.at if latest else None,
        bars=facts.bars.get(query.pk, [])[-bars:] if bars else [],
        dropped=facts.dropped.get(query.pk, _NOTHING_LOST),
        troubled=query.rank <= Rank.TROUBLED,
        converging=query.changing,
        needs_application_restart=drift(
            driver,
            newest=facts.application_revisions.get(query.application_id),
            pools=facts.pools.get(query.application_id, []),
        ),
        newest=newest,
        last_run=last_run,
        crash_loop=facts.crash_loops.get(query.pk),
        lag=facts.lags.get(query.pk),
        executors=executors(driver.executors if driver else [], now=now),
        foreign_batches=_foreign(checkpoint, now),
    )


def _health(
    query: Query, facts: _Facts, *, run: Run | None, trigger: dict[str, Any], now: datetime
) -> Health | None:
    checkpoint = facts.checkpoints.get(query.pk)
    health = health_of(
        query,
        run,
        trigger=trigger,
        checkpoint=checkpoint.location if checkpoint else "",
        bars=facts.bars.get(query.pk, []),
        latest=facts.latest.get(query.pk),
        telemetry=facts.telemetry.get(run.driver_id) if run else None,
        lag=facts.lags.get(query.pk),
        now=now,
    )
    if health is None or query.verdict != health.verdict:
        return health  # changed within the last seconds: what the evidence says must do
    return replace(health, since=query.verdict_since)


def _foreign(checkpoint: Checkpoint | None, now: datetime) -> ForeignBatches | None:
    if checkpoint is None or checkpoint.foreign_at is None:
        return None
    first, last, at = checkpoint.foreign_first, checkpoint.foreign_last, checkpoint.foreign_at
    if first is None or last is None or now - at > FOREIGN_SHOWN_FOR:
        return None
    return ForeignBatches(first, last, at)


def progress_line(progress: dict[str, Any]) -> ProgressLine:
    """Return Spark's progress JSON in the numbers that lists and REST bodies show."""
    at = parse_datetime(str(progress.get("timestamp", "")))
    if at is None:
        raise ValueError(f"progress without a timestamp: batch {progress.get('batchId')}")
    watermark = progress.get("eventTime", {}).get("watermark")
    return ProgressLine(
        batch_id=int(progress["batchId"]),
        timestamp=at,
        num_input_rows=int(progress.get("numInputRows", 0)),
        input_rows_per_second=_rate(progress.get("inputRowsPerSecond")),
        processed_rows_per_second=_rate(progress.get("processedRowsPerSecond")),
        batch_duration_ms=int(progress.get("batchDuration", 0)),
        duration_ms=dict(progress.get("durationMs", {})),
        watermark=parse_datetime(watermark) if watermark else None,
    )


def _rate(value: Any) -> float | None:
    """Return a finite rate; Spark writes NaN and infinities as text or leaves them out."""
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
