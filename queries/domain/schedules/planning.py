"""What each planned time gives: one start, one place in the queue, or one skip with its reason."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.states import PlannedState, Skipped
from queries.domain.states import HELD_PHASES, STOPPED_PHASES, Desired, Phase

#: A planned time that is handled later than this was missed.
LATE_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Subject:
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
class Choice:
    """What one planned time gives: a start (STARTED), a place in the queue, or a skip."""

    due_at: datetime
    state: PlannedState
    skipped: Skipped | None = None


def choose(
    due: list[datetime], schedule: Schedule, subject: Subject, now: datetime, *, more: bool = False
) -> list[Choice]:
    """Return the choice for each due time; at most one of them, the newest, starts or waits.

    `more`: later due times follow in another call, so that none of these is the newest. The run
    for the newest of several ends or arrivals of files covers those before it.
    """
    earlier = Skipped.MISSED if schedule.kind == "cron" else Skipped.DUPLICATE
    passed = Skipped.PAUSED if subject.paused else earlier
    choices = [Choice(at, PlannedState.SKIPPED, passed) for at in due]
    if due and not more:
        choices[-1] = _newest(due[-1], schedule, subject, now)
    return choices


def _newest(at: datetime, schedule: Schedule, subject: Subject, now: datetime) -> Choice:
    late = now - at
    if subject.paused:
        why = Skipped.PAUSED
    elif late > LATE_AFTER and (
        schedule.missed == "skip" or late > timedelta(seconds=schedule.missed_window_s)
    ):
        why = Skipped.MISSED
    elif subject.phase in HELD_PHASES:
        why = Skipped.HELD
    elif subject.phase is Phase.LOST:
        why = Skipped.HOST
    elif subject.at_rest:
        return Choice(at, PlannedState.STARTED)
    elif schedule.kind == "cron" and schedule.overlap == "skip":
        why = Skipped.OVERLAP
    elif subject.waiting:
        why = Skipped.DUPLICATE
    else:
        return Choice(at, PlannedState.WAITING)
    return Choice(at, PlannedState.SKIPPED, why)


def end_of(started: int, generation: int, subject: Subject) -> PlannedState | None:
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
