"""The outcome of each planned time, its parameters, and when new files count as arrived.

Only totals are stored, whatever the number of files. New or larger files raise one of them. Files
that are only removed, as by `cleanSource`, raise none, so they start nothing. Not noticed: a file
with an old modification time that arrives between two listings when others are removed, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from headgate_ground.tolerant import count, rate
from queries.domain.definitions.spec import Schedule
from queries.domain.states import BLOCKED_PHASES, STOPPED_PHASES, Desired, Phase


class PlannedState(StrEnum):
    """The outcome of a planned time."""

    WAITING = "WAITING"  # queued until the run before it has ended
    STARTED = "STARTED"
    DONE = "DONE"  # read everything that was available
    FAILED = "FAILED"  # the start was refused, or the run failed for good
    STOPPED = "STOPPED"  # by a user, or at its limit of duration
    SKIPPED = "SKIPPED"


#: Planned runs that have not ended.
OPEN_STATES = frozenset({PlannedState.WAITING, PlannedState.STARTED})


class SkipReason(StrEnum):
    """Why a planned time gave no run."""

    OVERLAP = "overlap"  # the run before it had not ended
    MISSED = "missed"  # nobody looked in time
    PAUSED = "paused"
    BLOCKED = "blocked"  # its subject is FAILED or ON_HOLD: an operator must look first
    HOST = "host"  # the host of its subject is not responding
    DUPLICATE = "duplicate"  # another planned run already waits, or begins now
    REMOVED = "removed"  # the schedule, or its query, was removed before the time was handled


#: One sentence for each reason for a skip.
SKIPPED_WORDS = {
    SkipReason.OVERLAP: "The run before it had not ended.",
    SkipReason.MISSED: "Nothing looked at the schedule in time.",
    SkipReason.PAUSED: "The schedule was paused.",
    SkipReason.BLOCKED: "The query is FAILED or ON_HOLD; an operator must look at it first.",
    SkipReason.HOST: "The query's host was not responding.",
    SkipReason.DUPLICATE: "Another planned run covers it.",
    SkipReason.REMOVED: "The schedule was removed before it started.",
}


#: A planned time that is handled later than this was missed. What was handled up to a moment that
#: is further ahead was handled by a clock that was wrong.
LATE_AFTER = timedelta(minutes=1)
#: A clock that shows an earlier time is wrong now: there were no schedules before.
EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScheduledObject:
    """What a planned time depends on, other than the schedule."""

    desired: Desired
    phase: Phase
    has_run: bool  # a run of it is open
    paused: bool
    waiting: bool  # a planned time already waits for its run to end

    @property
    def at_rest(self) -> bool:
        """Return whether a start would begin a new run."""
        stopped = self.desired is Desired.STOPPED and self.phase in STOPPED_PHASES
        return stopped and not self.has_run


@dataclass(frozen=True, slots=True)
class PlannedOutcome:
    """The outcome of a planned time: a start (STARTED), a place in the queue, or a skip.

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

    `instead`: the outcome of a time that would start or wait, because the schedule is changed now:
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
        schedule.missed == "skip" or late > timedelta(seconds=schedule.catch_up_window_s)
    ):
        why = SkipReason.MISSED
    elif subject.phase in BLOCKED_PHASES:
        why = SkipReason.BLOCKED
    elif subject.phase is Phase.UNREACHABLE:
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
    if subject.phase in BLOCKED_PHASES:
        return PlannedState.FAILED
    if subject.at_rest:
        return PlannedState.DONE if subject.phase is Phase.COMPLETED else PlannedState.STOPPED
    return None


def rendered(schedule: Schedule, due_at: datetime) -> dict[str, Any]:
    """Return the schedule's values; strings have `{time}` and `{date}` replaced.

    `{time}` is the planned time in UTC ("2026-11-25T02:30:00Z"), `{date}` its date in the
    schedule's zone ("2026-11-25"). Raises `ValueError` for an unknown zone.
    """
    time = due_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    date = due_at.astimezone(ZoneInfo(schedule.time_zone)).date().isoformat()
    return {
        name: value.replace("{time}", time).replace("{date}", date)
        if isinstance(value, str)
        else value
        for name, value in schedule.params.items()
    }


#: Longest wait for a moment without new files, in multiples of `quiet_period_s`.
MOST_WAITS = 10


@dataclass(frozen=True, slots=True)
class Totals:
    """One listing of a folder and everything below it, hidden files left out."""

    files: int
    bytes: int
    newest: float  # Unix time of the last modification; 0.0 without files

    def body(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    def has_more_than(self, before: "Totals | None") -> bool:
        """Return whether files have arrived since an earlier listing; None: there was none."""
        if before is None:
            return self.files > 0
        return self.files > before.files or self.bytes > before.bytes or self.newest > before.newest


def totals_from(body: Mapping[str, Any]) -> Totals | None:
    """Return the stored totals; None if there are none."""
    files, size = count(body.get("files")), count(body.get("bytes"))
    newest = rate(body.get("newest"))
    if files is None or size is None or newest is None:
        return None
    return Totals(files, size, newest)


def totals_of(files: Iterable[tuple[str, int, float]]) -> Totals:
    """Return the totals of files (name relative to the folder, bytes, Unix time)."""
    visible = [(size, at) for name, size, at in files if not is_hidden(name)]
    return Totals(
        len(visible), sum(size for size, _ in visible), max((at for _, at in visible), default=0)
    )


def is_hidden(name: str) -> bool:
    """Return whether Spark's file source leaves out a file, by any part of its name.

    As HadoopFSUtils.shouldFilterOutPathName: hidden, temporary, or being copied by Hadoop's shell;
    the folder of a partition ("_day=1") is read.
    """
    return any(
        part[:1] == "." or (part[:1] == "_" and "=" not in part) or part.endswith("._COPYING_")
        for part in name.split("/")
    )


def due_at(first: datetime, newest: datetime, quiet_period_s: int) -> datetime:
    """Return when arrivals start a run: after a quiet period, or at the latest after ten of them.

    `first` and `newest` are when the first and the newest of them were noticed.
    """
    quiet = timedelta(seconds=quiet_period_s)
    return min(newest + quiet, first + MOST_WAITS * quiet)
