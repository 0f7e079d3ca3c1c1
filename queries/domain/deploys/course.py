"""Decide what a deploy does next, from the result of each change, good, not yet or bad.

The same rules apply to all; `Basis` says which conditions of `Good` apply to each. Definite
outcomes are reported immediately: a new failure, a blocked query, a query that was stopped or
started on another revision. Conditions that may still resolve are reported only at the deadline,
with what the deploy was waiting for.

Forward: preflights (if requested), then for each wave: snapshots, definitions, restarts,
evaluation; finally the rest of the set. The first bad result starts the rollback. The rollback
tests each former definition on the current state, writes those that can continue from that state,
restarts their queries and applications, and waits until these run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.deploys.request import (
    OF_A_WAVE,
    ROLLBACK_STAGES,
    DeployStage,
    DeployState,
    Good,
)
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import BLOCKED_PHASES, Phase

#: Seconds between two checks of the brokers: records that arrive in between prove nothing about a
#: query.
LOOK_S = 30
#: What counts as good during a rollback: the former definition runs.
FORMER = Good(no_new_failures=False)
#: How soon after its latest start a script must start the queries that it ran before.
STARTS_WITHIN = timedelta(seconds=60)


class Basis(StrEnum):
    """What a change is evaluated from."""

    RUNS = "RUNS"  # a query: its own runs
    FOUND = "FOUND"  # a query started by its script: its own runs, once there are any
    FAILURES = "FAILURES"  # an unchanged query that did not run before
    SCRIPT = "SCRIPT"  # an application: its script, and each query that the script starts
    DRIVER = "DRIVER"  # an application: its driver, and its first query


class ChangeOutcome(StrEnum):
    """The outcome of one change in a stage."""

    TODO = "TODO"  # nothing has been requested yet
    WAITS = "WAITS"
    OK = "OK"
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The outcome of one change in a stage, and the reason."""

    outcome: ChangeOutcome
    reason: Because = NOTHING


TODO = ChangeResult(ChangeOutcome.TODO)
OK = ChangeResult(ChangeOutcome.OK)


def waits(reason: Because = NOTHING) -> ChangeResult:
    """Return the result of an unfinished change, with the condition that it is waiting for."""
    return ChangeResult(ChangeOutcome.WAITS, reason)


def bad(reason: Because) -> ChangeResult:
    """Return the result of a change that has failed, with the reason."""
    return ChangeResult(ChangeOutcome.BAD, reason)


@dataclass(frozen=True, slots=True)
class SeenFailure:
    """A failure since the restart."""

    about: Because
    is_new: bool  # its group was first seen since then, or had been resolved


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """What stored events and rows show about a query, script or driver since its restart."""

    name: str
    restarted_at: datetime
    is_wanted: bool  # it should be running
    on_revision: bool  # the desired revision is the one being judged
    phase: Phase
    waits_for: Because  # what its phase is waiting for
    is_looked_at: bool = True  # its phase is newer than the restart: supervision has seen it
    proven_at: datetime | None = None  # its open run's first commit, or first idle trigger
    batches: int = 0  # committed on this revision since
    failures: tuple[SeenFailure, ...] = ()  # oldest first
    lag_before: int | None = None  # records; None: not measured
    lag: int | None = None  # measured after it was proven
    arrival_rate: float = 0.0  # records per second
    is_starting: bool = False  # it waits for a start, which is given up when it is stuck
    started_at: datetime | None = None  # when Spark had started it; None: not yet
    start_max: timedelta = timedelta(0)  # for which a start is waited for
    basis: Basis = Basis.RUNS
    #: For FOUND: the time since which its script has started no other queries and not this one;
    #: None: it has.
    unstarted_since: datetime | None = None


def judge(good: Good, change: ObservedChange, *, now: datetime) -> ChangeResult:
    """Return whether a change is good, what it is waiting for, or why it is bad."""
    if reason := _definite_failure(good, change):
        return bad(reason)
    if change.basis is Basis.FAILURES:
        return OK
    if change.phase is Phase.COMPLETED and not change.is_wanted:
        return OK  # it has read everything available
    if change.unstarted_since is not None and now >= change.unstarted_since + STARTS_WITHIN:
        return OK  # the new code no longer starts it
    missing = _missing(_applicable(good, change.basis), change, now)
    if not missing:
        return OK
    if now < _began_at(change, now) + timedelta(minutes=good.deadline_minutes):
        return waits(missing)
    params = {"query": change.name, "minutes": good.deadline_minutes, "about": missing.as_json()}
    return bad(Because(Detail.NOT_GOOD_IN_TIME, params))


def _began_at(change: ObservedChange, now: datetime) -> datetime:
    """Return when the countdown to the deadline began: a start that advances does not use it up."""
    began = change.restarted_at
    if change.started_at is not None:
        began = max(began, change.started_at)
    elif change.is_starting:
        began = now
    return min(began, change.restarted_at + change.start_max)


def _applicable(good: Good, basis: Basis) -> Good:
    """Return the conditions that apply: an application runs once something in it is running."""
    if basis is Basis.SCRIPT:
        return good.model_copy(update={"first_commit": True, "lag_not_worse": False})
    if basis is Basis.DRIVER:
        changes = {"first_commit": True, "batches": 0, "lag_not_worse": False}
        return good.model_copy(update=changes)
    return good


def _definite_failure(good: Good, change: ObservedChange) -> Because:
    counts = change.basis is not Basis.FAILURES and not (
        change.phase is Phase.COMPLETED and not change.is_wanted
    )
    if counts and not change.is_wanted:
        return Because(Detail.STOPPED_MEANWHILE, {"query": change.name})
    if counts and not change.on_revision:
        return Because(Detail.CHANGED_MEANWHILE, {"query": change.name})
    failed = [
        failure.about for failure in change.failures if failure.is_new and good.no_new_failures
    ]
    if not failed and counts and change.is_looked_at and change.phase in BLOCKED_PHASES:
        failed = [failure.about for failure in change.failures[-1:]] or [change.waits_for]
    if failed:
        return Because(Detail.QUERY_FAILED, {"query": change.name, "about": failed[0].as_json()})
    return NOTHING


def _missing(good: Good, change: ObservedChange, now: datetime) -> Because:
    if change.proven_at is None and (good.first_commit or good.minutes):
        if change.basis is not Basis.RUNS:
            return change.waits_for
        return Because(Detail.AWAITS_COMMIT, {"about": change.waits_for.as_json()})
    if change.batches < good.batches:
        return Because(Detail.AWAITS_BATCHES, {"seen": change.batches, "wanted": good.batches})
    if change.proven_at is not None and now < change.proven_at + timedelta(minutes=good.minutes):
        ran = int((now - change.proven_at).total_seconds() // 60)
        return Because(Detail.AWAITS_MINUTES, {"seen": ran, "wanted": good.minutes})
    return _lag(change) if good.lag_not_worse else NOTHING


def _lag(change: ObservedChange) -> Because:
    """Return what is wrong with the lag; `NOTHING` if it was not measured before the deploy."""
    if change.lag_before is None:
        return NOTHING
    if change.lag is None:
        return Because(Detail.AWAITS_LOOK, {"before": change.lag_before})
    if change.lag <= change.lag_before + change.arrival_rate * LOOK_S:
        return NOTHING
    return Because(Detail.AWAITS_LAG, {"lag": change.lag, "before": change.lag_before})


@dataclass(frozen=True, slots=True)
class Stages:
    """The options of a deploy."""

    waves: int
    preflight: bool
    rolls_back: bool


@dataclass(frozen=True, slots=True)
class Position:
    """How far a deploy has progressed."""

    stage: DeployStage
    wave: int = 0  # from 1; 0 outside of a wave


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step of a deploy, or how the deploy ends; neither if its step does not change."""

    position: Position | None = None
    state: DeployState | None = None
    reason: Because = NOTHING  # why it rolls back, or ended this way


STAY = NextStep()


def first_position(stages: Stages) -> Position:
    """Return the first step of a deploy."""
    if stages.preflight and stages.waves:
        return Position(DeployStage.PREFLIGHT)
    return _wave(stages, 1)


def move(
    stages: Stages,
    position: Position,
    results: Sequence[ChangeResult],
    *,
    is_written: bool,
    cancelled: Because = NOTHING,
) -> NextStep:
    """Return a deploy's next step; `is_written` says whether any definition has been written.

    `cancelled` says who cancelled it. A bad result during the rollback ends the deploy in FAILED,
    after the other changes have been rolled back.
    """
    if position.stage in ROLLBACK_STAGES:
        return _back(position, results, cancelled)
    failed = next(
        (result.reason for result in results if result.outcome is ChangeOutcome.BAD), NOTHING
    )
    if cancelled or failed:
        return _end_or_roll_back(
            stages, failed or cancelled, is_written=is_written, cancelled=cancelled
        )
    if any(result.outcome is not ChangeOutcome.OK for result in results):
        return STAY
    if position.stage is DeployStage.SETTLE:
        return NextStep(state=DeployState.SUCCEEDED)
    if position.stage is DeployStage.PREFLIGHT:
        return NextStep(_wave(stages, 1))
    at = OF_A_WAVE.index(position.stage)
    if at + 1 < len(OF_A_WAVE):
        return NextStep(Position(OF_A_WAVE[at + 1], position.wave))
    return NextStep(_wave(stages, position.wave + 1))


def _wave(stages: Stages, number: int) -> Position:
    return (
        Position(OF_A_WAVE[0], number) if number <= stages.waves else Position(DeployStage.SETTLE)
    )


def _end_or_roll_back(
    stages: Stages, reason: Because, *, is_written: bool, cancelled: Because
) -> NextStep:
    """Return the next step of a deploy that cannot continue forward."""
    if is_written and stages.rolls_back:
        return NextStep(Position(ROLLBACK_STAGES[0]), reason=reason)
    return NextStep(state=DeployState.CANCELLED if cancelled else DeployState.FAILED, reason=reason)


def _back(position: Position, results: Sequence[ChangeResult], cancelled: Because) -> NextStep:
    if any(result.outcome in (ChangeOutcome.TODO, ChangeOutcome.WAITS) for result in results):
        return STAY
    at = ROLLBACK_STAGES.index(position.stage)
    if at + 1 < len(ROLLBACK_STAGES):
        return NextStep(Position(ROLLBACK_STAGES[at + 1]))
    failed = next(
        (result.reason for result in results if result.outcome is ChangeOutcome.BAD), NOTHING
    )
    if failed:
        return NextStep(state=DeployState.FAILED, reason=failed)
    return NextStep(state=DeployState.CANCELLED if cancelled else DeployState.ROLLED_BACK)
