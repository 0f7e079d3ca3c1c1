"""Build a query's line, the form that lists, page headers and REST bodies share."""

import logging
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from headgate_ground.masking import mask_text
from headgate_ground.tolerant import count, duration_ms, is_after_9999, rate, time_of
from listeners import selectors as heard
from listeners.loops.backlogs import loop_errors
from listeners.selectors import BatchBar, DriverTelemetry, Dropped, LatestLine
from queries.domain.definitions.labels import Selection, terms
from queries.domain.definitions.parsing import query_changes
from queries.domain.definitions.spec import Effect, strongest
from queries.domain.errors import Missing
from queries.domain.failures.crashes import CrashLoop
from queries.domain.readings import Dated
from queries.domain.reasons import Because, Detail
from queries.domain.states import Desired, Phase, Reason, RunOutcome
from queries.domain.supervision.health.head import Head, HeadFacts, compose
from queries.domain.supervision.health.verdicts import Health
from queries.domain.supervision.health.watermarks import after_9999
from queries.domain.supervision.observation import DriverExecutors, executors
from queries.models.applications import ApplicationRevision, SchedulerPool
from queries.models.definitions import Checkpoint, Query, QueryRevision, Rank
from queries.models.drivers import Driver, Run
from queries.selectors.checkpoint_logs import Reporters
from queries.selectors.failures.occurrences import crash_loops
from queries.selectors.kafka.lag import LagLine, lag_lines, missing_sources
from queries.selectors.rows import current_checkpoints, interval_of, newest_revisions, newest_runs
from queries.selectors.supervision.applications import drift, newest_application_revisions, pools_of
from queries.selectors.supervision.health import BATCHES, health_of, trigger_of
from queries.selectors.supervision.query_filters import FOREIGN_SHOWN_FOR, queries

logger = logging.getLogger(__name__)
_loop = loop_errors("lists of queries", logger)

_NOTHING_LOST = Dropped(bus=0, outbox=0, missing_batches=0, repaired=0, since=None, until=None)


@dataclass(frozen=True, slots=True)
class ProgressLine:
    """The figures of the newest executed batch."""

    batch_id: int
    timestamp: datetime
    num_input_rows: int | None
    input_rows_per_second: float | None
    processed_rows_per_second: float | None
    batch_duration_ms: int | None
    duration_ms: dict[str, int]
    watermark: datetime | None
    watermark_note: str = ""  # why it may be useless: it is after the year 9999


@dataclass(frozen=True, slots=True)
class ForeignBatches:
    """Batches of a checkpoint that none of our runs wrote, from `first` to `last`."""

    first: int
    last: int
    at: datetime  # when the last of them started

    def __str__(self) -> str:
        """Describe what these batches mean and the remedy."""
        which = f"{self.first} to {self.last}" if self.last > self.first else f"{self.last}"
        return (
            f"Its checkpoint contains batches that no run of this installation made ({which}, "
            f"the last began at {self.at:%Y-%m-%d %H:%M:%S} UTC): another process writes to "
            "it. End that process: it and the query fail on each other's batches, and rows may "
            "reach the sink twice."
        )


@dataclass(frozen=True, slots=True)
class QueryLine:
    """Everything about a query that list rows, page headers and REST bodies need."""

    query: Query  # selected with application, target_revision, latest checkpoint
    phase: Phase
    health: Health | None  # None unless RUNNING
    run: Run | None  # the open one, with its driver
    driver: Driver | None
    revision: int | None  # newest number
    running_revision: int | None
    in_sync: bool  # runs its newest revision, or one that needs no restart to match it
    trigger: dict[str, Any]  # the running (else newest) revision's trigger
    interval_ms: int | None  # of a processing-time trigger
    pool: str
    checkpoint: str
    progress: ProgressLine | None
    last_event_at: datetime | None
    bars: list[BatchBar]
    dropped: Dropped  # by the open run's driver, else the last run's
    troubled: bool  # needs attention
    converging: bool  # desired and actual differ, no user action needed
    needs_application_restart: tuple[str, ...]  # reasons: "pools", "revision", "code"
    newest: QueryRevision | None = None  # newest revision, with its spec
    executors: DriverExecutors = field(default_factory=DriverExecutors)  # of a driver on a cluster
    last_run: Run | None = None  # newest run, open or not
    head: Head = field(kw_only=True)  # its headline
    reporters: Reporters = field(kw_only=True)  # of the checkpoints of all lines
    lag: LagLine | None = None  # None: reads no Kafka, or not measured yet
    foreign_batches: ForeignBatches | None = None  # None: none in the last day

    @property
    def since(self) -> datetime | None:
        """Return when the query's health, or else its phase, last changed."""
        return (self.health.since if self.health else None) or self.query.phase_since


def query_lines(
    selection: Selection = (),
    *,
    now: datetime,
    bars: int = BATCHES,
    after: str = "",
    limit: int | None = None,
) -> list[QueryLine]:
    """Return the lines of existing queries by name, in a constant number of database queries.

    `after` skips names up to and including it; `limit` is the maximum number of lines, None for
    all.
    """
    rows = queries(selection, now=now)
    if after:
        rows = rows.filter(name__gt=after)
    return lines_of(rows[:limit], now=now, bars=bars)


def query_line(name: str, *, now: datetime, bars: int = BATCHES) -> QueryLine:
    """Return one existing query's line; raise `Missing` if no query has that name."""
    lines = query_lines(terms(name=name), now=now, bars=bars)
    if not lines:
        raise Missing(
            f'Query "{name}" does not exist.', way_out="Check its name in the list of queries."
        )
    return lines[0]


@dataclass(frozen=True, slots=True)
class _Facts:
    """The data read for all lines at once, by query or application."""

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
    missing: dict[int, Dated]
    reporters: Reporters
    specs: bool = True  # False: definitions are unreadable


def lines_of(rows: Iterable[Query], *, now: datetime, bars: int = BATCHES) -> list[QueryLine]:
    """Return the lines of rows from `queries`, in their order."""
    shown = list(rows)
    if not shown:
        return []
    ids = [query.pk for query in shown]
    applications = {query.application_id for query in shown}
    runs = newest_runs(ids)
    checkpoints = current_checkpoints(ids)
    facts = _Facts(
        newest=newest_revisions(ids),
        runs=runs,
        checkpoints=checkpoints,
        latest=heard.latest(ids),
        bars=heard.heartbeat_bars(ids, count=BATCHES),
        dropped=heard.dropped(ids, drivers={pk: run.driver_id for pk, run in runs.items()}),
        application_revisions=newest_application_revisions(applications),
        pools=pools_of(applications),
        telemetry=heard.telemetry({run.driver_id for run in runs.values()}),
        crash_loops=crash_loops(now=now, query_ids=ids),
        lags=lag_lines(ids, now=now, runs=runs),
        missing=missing_sources(ids),
        reporters=Reporters(checkpoint.location for checkpoint in checkpoints.values()),
    )
    return [_line_or_less(query, facts, bars=bars, now=now) for query in shown]


def _line_or_less(query: Query, facts: _Facts, *, bars: int, now: datetime) -> QueryLine:
    """Return a query's line, omitting the parts that cannot be read."""
    try:
        return _line(query, facts, bars=bars, now=now)
    except Exception as error:  # loop boundary: the others must still be listed
        _loop.record_error(f"the line of {query.name}", error)
    less = replace(facts, latest={}, bars={}, telemetry={}, lags={})
    try:
        return _line(query, less, bars=bars, now=now)
    except Exception as error:  # its definition, or an unknown word
        _loop.record_error(f"the line of {query.name}", error)
        explanation = (
            f"cannot be shown completely: {type(error).__name__}: {mask_text(str(error))[:200]}"
        )
    bare = copy(query)
    bare.phase_detail = Because(Detail.OTHER, {"text": explanation})
    if query.phase not in set(Phase):
        bare.phase = Phase.ON_HOLD
    if query.phase_reason not in set(Reason):
        bare.phase_reason = Reason.NONE
    if query.desired not in set(Desired):
        bare.desired = Desired.STOPPED
    return _line(bare, replace(less, specs=False), bars=bars, now=now)


def _line(query: Query, facts: _Facts, *, bars: int, now: datetime) -> QueryLine:
    last_run = facts.runs.get(query.pk)
    run = last_run if last_run and last_run.outcome == RunOutcome.OPEN else None
    driver = run.driver if run else None
    newest = facts.newest.get(query.pk)
    revision = run.revision if run else newest
    spec = revision.spec if revision and facts.specs else {}
    trigger = trigger_of(spec)
    latest = facts.latest.get(query.pk)
    checkpoint = facts.checkpoints.get(query.pk)
    health = _health(query, facts, run=run, spec=spec, now=now)
    foreign = _foreign(checkpoint, now)
    return QueryLine(
        query=query,
        phase=Phase(query.phase),
        health=health,
        head=_head(query, facts, health, foreign, now),
        run=run,
        driver=driver,
        revision=newest.number if newest else None,
        running_revision=run.revision.number if run else None,
        in_sync=not (facts.specs and run and newest) or _runs_as_defined(run.revision, newest),
        trigger=trigger,
        interval_ms=interval_of(trigger),
        pool=spec.get("pool", ""),
        checkpoint=checkpoint.location if checkpoint else "",
        progress=progress_line(latest.progress, spec) if latest and latest.progress else None,
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
        lag=facts.lags.get(query.pk),
        executors=executors(driver.executors if driver else [], now=now),
        foreign_batches=foreign,
        reporters=facts.reporters,
    )


def _runs_as_defined(running: QueryRevision, newest: QueryRevision) -> bool:
    same = running.pk == newest.pk
    return same or strongest(query_changes(running.spec, newest.spec)) is Effect.NONE


def _health(
    query: Query, facts: _Facts, *, run: Run | None, spec: dict[str, Any], now: datetime
) -> Health | None:
    checkpoint = facts.checkpoints.get(query.pk)
    health = health_of(
        query,
        run,
        spec=spec,
        checkpoint=checkpoint.location if checkpoint else "",
        bars=facts.bars.get(query.pk, []),
        latest=facts.latest.get(query.pk),
        telemetry=facts.telemetry.get(run.driver_id) if run else None,
        lag=facts.lags.get(query.pk),
        source_error=facts.missing.get(query.pk),
        now=now,
    )
    if health is None or query.verdict != health.verdict:
        return health  # changed in the last few seconds: the evidence alone must suffice
    return replace(health, since=query.verdict_since)


def _head(
    query: Query,
    facts: _Facts,
    health: Health | None,
    foreign: ForeignBatches | None,
    now: datetime,
) -> Head:
    dropped = facts.dropped.get(query.pk, _NOTHING_LOST)
    return compose(
        HeadFacts(
            now=now,
            desired=Desired(query.desired),
            phase=Phase(query.phase),
            reason=Reason(query.phase_reason),
            detail=query.phase_detail,
            health=health,
            failures=query.failures + query.application.failures,
            next_attempt_at=query.next_attempt_at,
            crash_loop=facts.crash_loops.get(query.pk),
            unreachable_since=query.source_unreachable_since,
            source_asked_at=source_error.read_at
            if (source_error := facts.missing.get(query.pk))
            else None,
            risk=_risk(query, facts.lags.get(query.pk), now),
            foreign=str(foreign or ""),
            missing=dropped.missing_batches,
            unrepaired=dropped.missing_batches - dropped.repaired,
        )
    )


def _risk(query: Query, lag: LagLine | None, now: datetime) -> str:
    """Return the data that a query will lose, with the age of the numbers if they are old."""
    if lag is None or lag.current:
        return query.risk
    return Dated(query.risk, lag.seen_at).at(now, fresh_for=timedelta(0))


def _foreign(checkpoint: Checkpoint | None, now: datetime) -> ForeignBatches | None:
    if checkpoint is None or checkpoint.foreign_at is None:
        return None
    first, last, at = checkpoint.foreign_first, checkpoint.foreign_last, checkpoint.foreign_at
    if first is None or last is None or now - at > FOREIGN_SHOWN_FOR:
        return None
    return ForeignBatches(first, last, at)


def progress_line(progress: dict[str, Any], spec: Mapping[str, Any] | None = None) -> ProgressLine:
    """Return Spark's progress JSON as the figures shown in lists and REST bodies.

    Invalid values become None. `spec` is the definition that the batch ran with; None if it is
    unknown.
    """
    at = time_of(progress.get("timestamp"))
    if at is None:
        raise ValueError(f"progress without a timestamp: batch {progress.get('batchId')}")
    times, spent = progress.get("eventTime"), progress.get("durationMs")
    mark = times.get("watermark") if isinstance(times, dict) else None
    return ProgressLine(
        batch_id=int(progress["batchId"]),
        timestamp=at,
        num_input_rows=count(progress.get("numInputRows")),
        input_rows_per_second=rate(progress.get("inputRowsPerSecond")),
        processed_rows_per_second=rate(progress.get("processedRowsPerSecond")),
        batch_duration_ms=duration_ms(progress.get("batchDuration")),
        duration_ms=dict(spent) if isinstance(spent, dict) else {},
        watermark=time_of(mark),
        watermark_note=after_9999(spec or {}) if is_after_9999(mark) else "",
    )
