"""What each planned time gives: one start, one place in the queue, or one skip with its reason."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.states import PlannedState, SkipReason
from queries.domain.states import HELD_PHASES, STOPPED_PHASES, Desired, Phase

#: A planned time that is handled later than this was missed. What was handled up to a moment that
#: is further ahead was handled by a clock that was wrong.
LATE_AFTER = timedelta(minutes=1)
#: A clock that shows an earlier time is wrong now: there were no schedules before.
EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScheduledObject:
    """What a planned time depends on, besides the schedule."""

    desired: Desired
    phase: Phase
    has_run: bool  # a run of it is open
    paused: bool
    waiting: bool  # a planned time already waits for its run to end

    @property
    def at_rest(self) -> bool:
        """Return whether a start would begin a run of its own."""
        stopped = self.desired is Desired.STOPPED and self.phase in STOPPED_PHASES
        return stopped and not self.has_run


@dataclass(frozen=True, slots=True)
class PlannedOutcome:
    """What one planned time gives: a start (STARTED), a place in the queue, or a skip.

    Consecutive times that are skipped for the same reason are one choice.
    """

    due_at: datetime  # the newest
    state: PlannedState
    skipped: SkipReason | None = None
    times: int = 1
    first_due_at: datetime | None = None  # the oldest; None: there is one


def choose(
    due: list[datetime],
    schedule: Schedule,
    subject: ScheduledObject,
    now: datetime,
    *,
    more: bool = False,
    instead: PlannedState | SkipReason | None = None,
) -> list[PlannedOutcome]:
    """Return the choices for the due times; at most one time, the newest, starts or waits.

    `more`: later due times follow in another call, so that none of these is the newest. The run
    for the newest of several ends or arrivals of files covers those before it.

    `instead`: what becomes of a time that would start or wait, because the schedule is changed now:
    WAITING, or the reason for which it is skipped.
    """
    earlier = SkipReason.MISSED if schedule.kind == "cron" else SkipReason.DUPLICATE
    passed = SkipReason.PAUSED if subject.paused else earlier
    choices = [PlannedOutcome(at, PlannedState.SKIPPED, passed) for at in due]
    if due and not more:
        choices[-1] = _changed(_newest(due[-1], schedule, subject, now), subject, instead)
    return _folded(choices)


def _changed(
    choice: PlannedOutcome, subject: ScheduledObject, instead: PlannedState | SkipReason | None
) -> PlannedOutcome:
    if instead is None or choice.skipped:
        return choice
    if isinstance(instead, SkipReason):
        return PlannedOutcome(choice.due_at, PlannedState.SKIPPED, instead)
    if subject.waiting:
        return PlannedOutcome(choice.due_at, PlannedState.SKIPPED, SkipReason.DUPLICATE)
    return PlannedOutcome(choice.due_at, instead)


def _folded(choices: list[PlannedOutcome]) -> list[PlannedOutcome]:
    folded: list[PlannedOutcome] = []
    for choice in choices:
        last = folded[-1] if folded else None
        if last is not None and choice.skipped is not None and choice.skipped is last.skipped:
            first = last.first_due_at or last.due_at
            folded[-1] = replace(choice, times=last.times + 1, first_due_at=first)
        else:
            folded.append(choice)
    return folded


def is_ahead(handled: datetime, now: datetime) -> bool:
    """Return whether times were handled by a clock that was ahead, so that they are not due yet."""
    return handled > now + LATE_AFTER and now >= EARLIEST


def _newest(
    at: datetime, schedule: Schedule, subject: ScheduledObject, now: datetime
) -> PlannedOutcome:
    late = now - at
    if subject.paused:
        why = SkipReason.PAUSED
    elif late > LATE_AFTER and (
        schedule.missed == "skip" or late > timedelta(seconds=schedule.missed_window_s)
    ):
        why = SkipReason.MISSED
    elif subject.phase in HELD_PHASES:
        why = SkipReason.HELD
    elif subject.phase is Phase.LOST:
        why = SkipReason.HOST
    elif subject.at_rest:
        return PlannedOutcome(at, PlannedState.STARTED)
    elif schedule.kind == "cron" and schedule.overlap == "skip":
        why = SkipReason.OVERLAP
    elif subject.waiting:
        why = SkipReason.DUPLICATE
    else:
        return PlannedOutcome(at, PlannedState.WAITING)
    return PlannedOutcome(at, PlannedState.SKIPPED, why)


def end_of(started: int, generation: int, subject: ScheduledObject) -> PlannedState | None:
    """Return how the run that a planned time started has ended; None while it continues.

    `started` is the generation of the schedule's last request, `generation` the query's now. If it
    is higher, a user has started, stopped or restarted the query since.
    """
    if generation > started:
        return PlannedState.STOPPED
    if subject.phase in HELD_PHASES:
        return PlannedState.FAILED
    if subject.at_rest:
        return PlannedState.DONE if subject.phase is Phase.COMPLETED else PlannedState.STOPPED
    return None
