"""Judge a query, a script or an application's driver after its restart: good, not yet, or bad.

All are judged by one rule; `Basis` says what of `Good` is asked of each. An outcome that is known
is told at once: a failure that is new, what is held, what somebody stopped or started on another
revision. What only time can tell is told at the deadline, with what is waited for.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.deploys.forms import Good
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import HELD_PHASES, Phase

#: Seconds between two looks at the brokers: what arrives in between says nothing about a query.
LOOK_S = 30
#: What counts as good on the way back: that the former definition runs.
FORMER = Good(no_new_failures=False)
#: For how long after its latest start a script is waited for to start what it ran before.
STARTS_WITHIN = timedelta(seconds=60)


class Basis(StrEnum):
    """What a change is judged by."""

    RUNS = "RUNS"  # a query: its own runs
    FOUND = "FOUND"  # a query that its script starts: its own runs, once there are any
    FAILURES = "FAILURES"  # a query that did not run before, and does not change
    SCRIPT = "SCRIPT"  # an application: its script, and each query that this starts
    DRIVER = "DRIVER"  # an application: its driver, and the first of its queries


class Outcome(StrEnum):
    """What is known of one change in a stage."""

    TODO = "TODO"  # nothing was asked for yet
    WAITS = "WAITS"
    OK = "OK"
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of one change in a stage, and why."""

    outcome: Outcome
    reason: Because = NOTHING


TODO = Result(Outcome.TODO)
OK = Result(Outcome.OK)


def waits(reason: Because = NOTHING) -> Result:
    """Return that a change is not done yet, and what it waits for."""
    return Result(Outcome.WAITS, reason)


def bad(reason: Because) -> Result:
    """Return that a change has failed, and why."""
    return Result(Outcome.BAD, reason)


@dataclass(frozen=True, slots=True)
class SeenFailure:
    """A failure since the restart."""

    about: Because
    is_new: bool  # its group was first seen since, or was resolved before


@dataclass(frozen=True, slots=True)
class Seen:
    """What stored events and rows say of a query, a script or a driver since its restart."""

    name: str
    restarted_at: datetime
    is_wanted: bool  # it is to run
    on_revision: bool  # what is to run is the revision that is judged
    phase: Phase
    waits_for: Because  # what its phase waits for
    is_looked_at: bool = True  # its phase is of after the restart: supervision has seen that
    proven_at: datetime | None = None  # its open run's first commit, or first idle trigger
    batches: int = 0  # committed on the revision since
    failures: tuple[SeenFailure, ...] = ()  # oldest first
    lag_before: int | None = None  # records; None: not measured
    lag: int | None = None  # measured since it was proven
    arrival_rate: float = 0.0  # records a second
    basis: Basis = Basis.RUNS
    #: Of FOUND: since when its script has started nothing more, and not this; None: it has
    unstarted_since: datetime | None = None


def judge(good: Good, seen: Seen, *, now: datetime) -> Result:
    """Return whether what changed is good, and what it waits for or why it is bad."""
    if reason := _known_bad(good, seen):
        return bad(reason)
    if seen.basis is Basis.FAILURES:
        return OK
    if seen.phase is Phase.COMPLETED and not seen.is_wanted:
        return OK  # it has read all there was
    if seen.unstarted_since is not None and now >= seen.unstarted_since + STARTS_WITHIN:
        return OK  # new code does without it
    missing = _missing(_asked(good, seen.basis), seen, now)
    if not missing:
        return OK
    if now < seen.restarted_at + timedelta(minutes=good.deadline_minutes):
        return waits(missing)
    params = {"query": seen.name, "minutes": good.deadline_minutes, "about": missing.as_json()}
    return bad(Because(Detail.NOT_GOOD_IN_TIME, params))


def _asked(good: Good, basis: Basis) -> Good:
    """Return what of it is asked: an application runs once something in it does."""
    if basis is Basis.SCRIPT:
        return good.model_copy(update={"first_commit": True, "lag_not_worse": False})
    if basis is Basis.DRIVER:
        changes = {"first_commit": True, "batches": 0, "lag_not_worse": False}
        return good.model_copy(update=changes)
    return good


def _known_bad(good: Good, seen: Seen) -> Because:
    counts = seen.basis is not Basis.FAILURES and not (
        seen.phase is Phase.COMPLETED and not seen.is_wanted
    )
    if counts and not seen.is_wanted:
        return Because(Detail.STOPPED_MEANWHILE, {"query": seen.name})
    if counts and not seen.on_revision:
        return Because(Detail.CHANGED_MEANWHILE, {"query": seen.name})
    failed = [one.about for one in seen.failures if one.is_new and good.no_new_failures]
    if not failed and counts and seen.is_looked_at and seen.phase in HELD_PHASES:
        failed = [one.about for one in seen.failures[-1:]] or [seen.waits_for]
    if failed:
        return Because(Detail.QUERY_FAILED, {"query": seen.name, "about": failed[0].as_json()})
    return NOTHING


def _missing(good: Good, seen: Seen, now: datetime) -> Because:
    if seen.proven_at is None and (good.first_commit or good.minutes):
        if seen.basis is not Basis.RUNS:
            return seen.waits_for
        return Because(Detail.AWAITS_COMMIT, {"about": seen.waits_for.as_json()})
    if seen.batches < good.batches:
        return Because(Detail.AWAITS_BATCHES, {"seen": seen.batches, "wanted": good.batches})
    if seen.proven_at is not None and now < seen.proven_at + timedelta(minutes=good.minutes):
        ran = int((now - seen.proven_at).total_seconds() // 60)
        return Because(Detail.AWAITS_MINUTES, {"seen": ran, "wanted": good.minutes})
    return _lag(seen) if good.lag_not_worse else NOTHING


def _lag(seen: Seen) -> Because:
    """Return what is wrong with the lag; nothing where it was never measured."""
    if seen.lag_before is None:
        return NOTHING
    if seen.lag is None:
        return Because(Detail.AWAITS_LOOK, {"before": seen.lag_before})
    if seen.lag <= seen.lag_before + seen.arrival_rate * LOOK_S:
        return NOTHING
    return Because(Detail.AWAITS_LAG, {"lag": seen.lag, "before": seen.lag_before})
