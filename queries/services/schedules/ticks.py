"""Give each planned time of a schedule its one run or its one named skip.

A planned time is a time by cron, the end of another query's run, or an arrival of files. What was
handled, the rows of the planned times and the request to start are written in one transaction: a
killed process has written either all of them or none. What was handled moves by compare-and-set,
and a second row of the same planned time violates a constraint, so that two workers cannot both
start.

A schedule change first decides what was due until then, in its own transaction: unhandled times are
not lost with the old schedule.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from listeners.loops.backlogs import loop_errors
from queries.domain.access import Act
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Conflict, HeadgateError, Invalid
from queries.domain.reasons import Because, Detail
from queries.domain.schedules import planning
from queries.domain.schedules.cron import due_times, next_times
from queries.domain.schedules.planning import (
    EARLIEST,
    LATE_AFTER,
    OPEN_STATES,
    PlannedOutcome,
    PlannedState,
    ScheduledObject,
    SkipReason,
    choose,
    end_of,
    is_ahead,
    rendered,
)
from queries.domain.states import BLOCKED_PHASES
from queries.models.applications import ApplicationRevision
from queries.models.definitions import QueryRevision
from queries.models.schedules import PlannedRun, ScheduleState
from queries.selectors.schedules import schedule_of
from queries.services.access.audit import record_act
from queries.services.schedules import targets
from queries.services.schedules.targets import ACTOR, Target, target_of

logger = logging.getLogger(__name__)
_loop = loop_errors("schedules", logger)

#: Ends of another query's runs handled in one transaction; the rest follow at once in the next.
_AT_ONCE = 500
#: How long planned runs are kept; their calendar shows 90 days. Older times are not made up for.
RETENTION = timedelta(days=90)


class _Overtaken(Conflict):
    """Another worker has handled the schedule in the meantime."""


def follow_schedule(revision: QueryRevision | ApplicationRevision) -> None:
    """Begin, change or end the schedule of a definition that has just been saved.

    A changed schedule counts from the moment of the save; a pause remains. A removed schedule's
    state is kept until its last planned run has ended. Raises `Invalid` for a query that would
    start after itself.
    """
    owner: dict[str, Any] = (
        {"query": revision.query}
        if isinstance(revision, QueryRevision)
        else {"application": revision.application}
    )
    schedule, at = schedule_of(revision), revision.created_at
    digest = "" if schedule is None else _digest(schedule)
    states = ScheduleState.objects.filter(**owner)
    state = states.select_related("query", "application").first()
    if state is not None and state.digest not in ("", digest):
        _decide_before(revision, state, at, SkipReason.REMOVED if schedule is None else None)
        state = states.first()
    if schedule is None:
        if PlannedRun.objects.filter(**owner, state__in=OPEN_STATES).exists():
            states.update(digest="", next_at=None, kind="cron")
        else:
            states.delete()
        return
    if state is not None and state.digest == digest:
        return
    if state is None:
        state = ScheduleState(**owner, cursor=at)
    state.cursor = max(state.cursor, at)  # a later cursor has already given its times
    state.digest, state.kind, state.next_at = digest, schedule.kind, at
    state.upstream, state.totals, state.looked_at, state.problem = None, {}, None, ""
    state.first_arrival_at = state.newest_arrival_at = None
    state.save()
    if schedule.kind == "after":
        targets.insist_it_ends(state, schedule)


def _decide_before(
    revision: QueryRevision | ApplicationRevision,
    state: ScheduleState,
    at: datetime,
    instead: SkipReason | None,
) -> None:
    """Decide the due times of the schedule that a new revision replaces."""
    earlier_revisions: Any = type(revision).objects.filter(number__lt=revision.number)
    if isinstance(revision, QueryRevision):
        earlier_revisions = earlier_revisions.filter(query=revision.query)
    else:
        earlier_revisions = earlier_revisions.filter(application=revision.application)
    try:
        before = schedule_of(earlier_revisions.order_by("-number").first())
    except Invalid:  # it could start nothing, and must not prevent its repair
        return
    if before is not None and _digest(before) == state.digest:
        decide_due(target_of(state), before, at, instead or PlannedState.WAITING)


def _digest(schedule: Schedule) -> str:
    return sha256(_when(schedule).encode()).hexdigest()


def _when(schedule: Schedule) -> str:
    if schedule.kind == "cron":
        return f"{schedule.cron}\n{schedule.time_zone}"
    if schedule.kind == "after":
        return f"after\n{schedule.after}\n{schedule.after_end}"
    return f"files\n{schedule.files}"


def run_schedules(*, now: datetime) -> None:
    """Handle every schedule with a due time, and every planned run that is open."""
    due = Q(next_at__lte=now) | targets.due()
    if now >= EARLIEST:
        ahead = now + LATE_AFTER
        due |= Q(cursor__gt=ahead) | Q(newest_arrival_at__gt=ahead)
    open_runs = PlannedRun.objects.filter(state__in=OPEN_STATES)
    busy = Exists(open_runs.filter(query=OuterRef("query"))) | Exists(
        open_runs.filter(application=OuterRef("application"))
    )
    states = ScheduleState.objects.filter(due | busy).order_by("pk")
    for state in states.select_related("query", "application"):
        target = target_of(state)
        with _loop.isolate_errors(f"schedule of {target.name}"):
            while _handle(state.pk, target, now):
                pass


def decide_due(
    target: Target, schedule: Schedule, now: datetime, instead: PlannedState | SkipReason
) -> None:
    """Decide the due times of a schedule that is changed now, in the transaction of its change.

    `instead`: the outcome of a time that would start: WAITING leaves it to the next tick; a reason
    skips it, as it skips times that are already waiting.
    """
    target.lock()
    state = _state(ScheduleState.objects.filter(**target.columns))
    if state is None:
        return
    _recall(state, target, schedule, now)
    waiting = PlannedRun.objects.filter(**target.columns, state=PlannedState.WAITING)
    if isinstance(instead, SkipReason):
        waiting.update(state=PlannedState.SKIPPED, skipped=instead)
    more = True
    while more:
        subject = target.subject(paused=state.paused_at is not None, waiting=waiting.exists())
        more = _decide(target, state, schedule, subject, now, instead)


@dataclass(frozen=True, slots=True)
class _Due:
    """Planned times that are due, oldest first, and the position after them."""

    planned: list[tuple[str, datetime]]  # (key, time)
    handled: Mapping[str, Any] = field(default_factory=dict)  # columns of the state
    more: bool = False


def _handle(state_id: int, target: Target, now: datetime) -> bool:
    """Handle the next due times of one schedule; return whether more are due."""
    try:
        with transaction.atomic():
            return _handled(state_id, target, now)
    except _Overtaken:  # what was judged is old
        return False


def _handled(state_id: int, target: Target, now: datetime) -> bool:
    target.lock()
    state = _state(ScheduleState.objects.filter(pk=state_id))
    if state is None:
        return False
    schedule, ended = target.schedule(), target.ended()
    if ended is None:
        _recall(state, target, schedule, now)
    subject = _settle(target, state, schedule, now)
    if schedule is None:
        if ended is not None:
            decide_due(target, ended.schedule, ended.at, SkipReason.REMOVED)
        if not PlannedRun.objects.filter(**target.columns, state__in=OPEN_STATES).exists():
            state.delete()
        return False
    return _decide(target, state, schedule, subject, now)


def _state(states: QuerySet[ScheduleState]) -> ScheduleState | None:
    return states.select_related("upstream").first()


def _decide(
    target: Target,
    state: ScheduleState,
    schedule: Schedule,
    subject: ScheduledObject,
    now: datetime,
    instead: PlannedState | SkipReason | None = None,
) -> bool:
    """Write the rows of the next due times; return whether more are due."""
    due = _due(state, target, schedule, now)
    if due.handled:
        moved = ScheduleState.objects.filter(
            **{name: getattr(state, name) for name in ("pk", *due.handled) if name != "next_at"}
        ).update(**due.handled)
        if not moved:
            raise _Overtaken(way_out="Try again.")
        for name, value in due.handled.items():
            setattr(state, name, value)
    if not due.planned:
        return False
    times = [at for _, at in due.planned]
    written = 0
    for choice in choose(times, schedule, subject, now, more=due.more, instead=instead):
        written += choice.times
        _write(target, due.planned[written - 1][0], choice, schedule, subject, now)
    PlannedRun.objects.filter(**target.columns, due_at__lt=now - RETENTION).exclude(
        state__in=OPEN_STATES
    ).delete()
    return due.more


def _recall(state: ScheduleState, target: Target, schedule: Schedule | None, now: datetime) -> None:
    """Restore times that were handled because a clock was ahead: they are not due yet.

    Planned times without a run are forgotten, and decided when they are due. Those with a run keep
    it, and are not run again.
    """
    if state.newest_arrival_at is not None and is_ahead(state.newest_arrival_at, now):
        state.newest_arrival_at = now
        state.first_arrival_at = min(state.first_arrival_at or now, now)
        state.next_at = now
        state.save(update_fields=["newest_arrival_at", "first_arrival_at", "next_at"])
    if not is_ahead(state.cursor, now):
        return
    undone = PlannedRun.objects.filter(
        **target.columns, due_at__gt=now, state__in=(PlannedState.SKIPPED, PlannedState.WAITING)
    )
    forgotten = 0
    for row in undone if state.kind == "cron" else ():
        forgotten += row.due_times
        remaining_times: list[datetime] = []
        if schedule is not None and row.first_due_at is not None and row.first_due_at <= now:
            among = due_times(schedule, row.first_due_at - timedelta(seconds=1), now)
            own = PlannedRun.objects.filter(
                **target.columns, due_at__range=(row.first_due_at, now), first_due_at=None
            )
            had = set(own.values_list("due_at", flat=True))
            remaining_times = [at for at in among if at not in had]
        row.delete()
        if remaining_times:
            forgotten -= len(remaining_times)
            row.key, row.due_at, row.due_times = (
                remaining_times[-1].isoformat(),
                remaining_times[-1],
                len(remaining_times),
            )
            row.first_due_at = remaining_times[0] if len(remaining_times) > 1 else None
            row.save(force_insert=True)
    record_act(
        Act.SCHEDULE,
        actor=ACTOR,
        now=now,
        subject=target.name,
        clock_was_ahead_until=state.cursor.isoformat(),
        times_not_due_yet=forgotten,
    )
    state.cursor = state.next_at = now
    state.save(update_fields=["cursor", "next_at"])


def _due(state: ScheduleState, target: Target, schedule: Schedule, now: datetime) -> _Due:
    if schedule.kind == "after":
        return _ended(state, schedule)
    if schedule.kind == "files":
        return _arrived(state, schedule, now)
    times = due_times(schedule, max(state.cursor, now - RETENTION), now)
    cursor = times[-1] if times else state.cursor
    following = next_times(schedule, cursor, 1)
    handled = {"cursor": cursor, "next_at": following[0] if following else None}
    rows = PlannedRun.objects.filter(**target.columns, due_at__gt=state.cursor)
    had = set(rows.values_list("due_at", flat=True)) if times else set()  # see `_recall`
    return _Due([(at.isoformat(), at) for at in times if at not in had], handled)


def _ended(state: ScheduleState, schedule: Schedule) -> _Due:
    if not targets.find_upstream(state, schedule):
        return _Due([], {"next_at": None})
    ends = targets.ends(state, schedule, _AT_ONCE)
    planned = [(f"run {run}", at) for run, at in ends.runs]
    return _Due(planned, {"upstream_run": ends.newest_run, "next_at": None}, ends.more)


def _arrived(state: ScheduleState, schedule: Schedule, now: datetime) -> _Due:
    first, newest = state.first_arrival_at, state.newest_arrival_at
    if first is None or newest is None:
        return _Due([], {"next_at": None})
    at = planning.due_at(first, newest, schedule.quiet_period_s)
    if at > now:
        return _Due([], {"next_at": at})
    handled = {"first_arrival_at": None, "newest_arrival_at": None, "next_at": None}
    return _Due([(f"files {first.isoformat()}", at)], handled)


def _write(
    target: Target,
    key: str,
    choice: PlannedOutcome,
    schedule: Schedule,
    subject: ScheduledObject,
    now: datetime,
) -> None:
    row = PlannedRun(
        **target.columns,
        key=key,
        due_at=choice.due_at,
        first_due_at=choice.first_due_at,
        due_times=choice.times,
        state=choice.state,
        skipped=choice.skipped or "",
    )
    if choice.skipped is SkipReason.OVERLAP:
        row.reason = Because(Detail.OVERLAPPED, {"state": str(subject.phase)})
    if choice.state is PlannedState.STARTED:
        _start(row, target, schedule, now)
    row.save(force_insert=True)


def _start(row: PlannedRun, target: Target, schedule: Schedule, now: datetime) -> None:
    """Request the start; a start that is refused makes the planned run FAILED, with the reason."""
    row.params = rendered(schedule, row.due_at)
    try:
        with transaction.atomic():
            operation = target.start(row.params or None, now)
    except HeadgateError as error:
        row.state, row.ended_at = PlannedState.FAILED, now
        row.reason = Because(Detail.START_REFUSED, {"about": str(error)})
    else:
        row.state = PlannedState.STARTED
        row.operation, row.generation = operation, operation.generation


def _settle(
    target: Target, state: ScheduleState, schedule: Schedule | None, now: datetime
) -> ScheduledObject:
    """Note the ends of its open planned runs; return the facts for the next planned time.

    Without a schedule, waiting times are not started.
    """
    rows = PlannedRun.objects.filter(**target.columns, state__in=OPEN_STATES).order_by("due_at")
    paused = state.paused_at is not None
    subject = target.subject(paused=paused, waiting=False)
    waiting = False
    for row in list(rows):
        if row.state == PlannedState.STARTED:
            _follow(row, target, schedule, subject, now)
        elif schedule is None:
            row.state, row.skipped = PlannedState.SKIPPED, SkipReason.REMOVED
        elif paused:
            row.state, row.skipped = PlannedState.SKIPPED, SkipReason.PAUSED
        elif subject.at_rest:
            _start(row, target, schedule, now)
        elif subject.phase in BLOCKED_PHASES:
            row.state, row.skipped = PlannedState.SKIPPED, SkipReason.BLOCKED
        else:
            waiting = True
        row.save()
        target.lock()  # it may have been started, or stopped at its limit
        subject = target.subject(paused=paused, waiting=False)
    return target.subject(paused=paused, waiting=waiting)


def _follow(
    row: PlannedRun,
    target: Target,
    schedule: Schedule | None,
    subject: ScheduledObject,
    now: datetime,
) -> None:
    """Take the times of its runs, note its end, and stop it at the limit of its duration."""
    assert row.generation is not None, "`_start` sets it"
    first = row.operation.generation if row.operation else row.generation
    times = target.times(first, row.generation)
    if times:
        row.started_at = times[0][0]
    ended = end_of(row.generation, target.generation, subject)
    if ended is not None:
        row.state, row.ended_at = ended, (times and times[-1][1]) or now
        if ended is PlannedState.FAILED:
            row.reason = Because(Detail.RUN_FAILED, target.why_it_failed(first, row.generation))
    elif (
        schedule is not None
        and schedule.timeout_s
        and row.started_at
        and row.generation == first  # not stopped yet
        and now - row.started_at > timedelta(seconds=schedule.timeout_s)
    ):
        _stop(row, target, schedule, now)


def _stop(row: PlannedRun, target: Target, schedule: Schedule, now: datetime) -> None:
    try:
        with transaction.atomic():
            operation = target.stop(now)
    except HeadgateError:  # a procedure has the query for now; the next tick asks again
        return
    row.generation = operation.generation
    row.reason = Because(Detail.OVER_LIMIT, {"seconds": schedule.timeout_s})
