"""Give each planned time of a schedule its one run or its one named skip.

A planned time is a time by cron, the end of another query's run, or an arrival of files. What was
handled, the rows of the planned times and the request to start are written in one transaction: a
process that is killed has written all of them or none. What was handled moves by compare-and-set,
and a second row of the same planned time violates a constraint, so that two workers cannot both
start.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from listeners.loops.troubles import each
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import HeadgateError
from queries.domain.reasons import Because, Detail
from queries.domain.schedules import arrivals
from queries.domain.schedules.cron import due_times, next_times
from queries.domain.schedules.planning import Choice, Subject, choose, end_of
from queries.domain.schedules.rendering import rendered
from queries.domain.schedules.states import OPEN_STATES, PlannedState, Skipped
from queries.domain.states import HELD_PHASES
from queries.models.applications import ApplicationRevision
from queries.models.definitions import QueryRevision
from queries.models.schedules.planned import PlannedRun, ScheduleState
from queries.selectors.schedules.planned import schedule_of
from queries.services.schedules import upstream
from queries.services.schedules.targets import Target, target_of

logger = logging.getLogger(__name__)
_each = each("schedules", logger)

#: Planned times handled in one transaction; the rest of a long gap follows at once in the next.
_AT_ONCE = 500
#: How long planned runs are kept; their calendar shows 90 days.
KEPT = timedelta(days=90)


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
    schedule = schedule_of(revision)
    states = ScheduleState.objects.filter(**owner)
    if schedule is None:
        if PlannedRun.objects.filter(**owner, state__in=OPEN_STATES).exists():
            states.update(digest="", next_at=None, kind="cron")
        else:
            states.delete()
        return
    digest, at = sha256(_when(schedule).encode()).hexdigest(), revision.created_at
    state = states.first()
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
        upstream.insist_it_ends(state, schedule)


def _when(schedule: Schedule) -> str:
    if schedule.kind == "cron":
        return f"{schedule.cron}\n{schedule.time_zone}"
    if schedule.kind == "after":
        return f"after\n{schedule.after}\n{schedule.after_end}"
    return f"files\n{schedule.files}"


def run_schedules(*, now: datetime) -> None:
    """Handle every schedule with a due time, and every planned run that is open."""
    due = Q(next_at__lte=now) | upstream.due()
    open_runs = PlannedRun.objects.filter(state__in=OPEN_STATES)
    busy = Exists(open_runs.filter(query=OuterRef("query"))) | Exists(
        open_runs.filter(application=OuterRef("application"))
    )
    states = ScheduleState.objects.filter(due | busy).order_by("pk")
    for state in states.select_related("query", "application"):
        target = target_of(state)
        with _each.by_itself(f"schedule of {target.name}"):
            while _handle(state.pk, target, now):
                pass


@dataclass(frozen=True, slots=True)
class _Due:
    """Planned times that are due, oldest first, and what is then handled."""

    planned: list[tuple[str, datetime]]  # (key, time)
    handled: Mapping[str, Any] = field(default_factory=dict)  # columns of the state
    more: bool = False


@transaction.atomic
def _handle(state_id: int, target: Target, now: datetime) -> bool:
    """Handle the next due times of one schedule; return whether more are due."""
    target.lock()
    state = ScheduleState.objects.filter(pk=state_id).select_related("upstream").first()
    if state is None:
        return False
    schedule = target.schedule()
    subject = _settle(target, state, schedule, now)
    if schedule is None:
        if not PlannedRun.objects.filter(**target.columns, state__in=OPEN_STATES).exists():
            state.delete()
        return False
    due = _due(state, schedule, now)
    if due.handled:
        moved = ScheduleState.objects.filter(
            **{name: getattr(state, name) for name in ("pk", *due.handled) if name != "next_at"}
        ).update(**due.handled)
        if not moved:  # another worker was here since the state was read: what it judged is old
            transaction.set_rollback(True)
            return False
    if not due.planned:
        return False
    times = [at for _, at in due.planned]
    choices = choose(times, schedule, subject, now, more=due.more)
    for (key, _), choice in zip(due.planned, choices, strict=True):
        _write(target, key, choice, schedule, subject, now)
    PlannedRun.objects.filter(**target.columns, due_at__lt=now - KEPT).exclude(
        state__in=OPEN_STATES
    ).delete()
    return due.more


def _due(state: ScheduleState, schedule: Schedule, now: datetime) -> _Due:
    if schedule.kind == "after":
        return _ended(state, schedule)
    if schedule.kind == "files":
        return _arrived(state, schedule, now)
    found = due_times(schedule, state.cursor, now)[: _AT_ONCE + 1]
    times = found[:_AT_ONCE]
    cursor = times[-1] if times else state.cursor
    following = next_times(schedule, cursor, 1)
    handled = {"cursor": cursor, "next_at": following[0] if following else None}
    return _Due([(at.isoformat(), at) for at in times], handled, len(found) > _AT_ONCE)


def _ended(state: ScheduleState, schedule: Schedule) -> _Due:
    if not upstream.found(state, schedule):
        return _Due([], {"next_at": None})
    ends = upstream.ends(state, schedule, _AT_ONCE)
    planned = [(f"run {run}", at) for run, at in ends.runs]
    return _Due(planned, {"upstream_run": ends.seen, "next_at": None}, ends.more)


def _arrived(state: ScheduleState, schedule: Schedule, now: datetime) -> _Due:
    first, newest = state.first_arrival_at, state.newest_arrival_at
    if first is None or newest is None:
        return _Due([], {"next_at": None})
    at = arrivals.due_at(first, newest, schedule.quiet_s)
    if at > now:
        return _Due([], {"next_at": at})
    handled = {"first_arrival_at": None, "newest_arrival_at": None, "next_at": None}
    return _Due([(f"files {first.isoformat()}", at)], handled)


def _write(
    target: Target,
    key: str,
    choice: Choice,
    schedule: Schedule,
    subject: Subject,
    now: datetime,
) -> None:
    row = PlannedRun(
        **target.columns,
        key=key,
        due_at=choice.due_at,
        state=choice.state,
        skipped=choice.skipped or "",
    )
    if choice.skipped is Skipped.OVERLAP:
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
) -> Subject:
    """Note the ends of its open planned runs; return what the next planned time depends on.

    Without a schedule, no time that waits is started.
    """
    rows = PlannedRun.objects.filter(**target.columns, state__in=OPEN_STATES).order_by("due_at")
    paused = state.paused_at is not None
    subject = target.subject(paused=paused, waiting=False)
    waiting = False
    for row in list(rows):
        if row.state == PlannedState.STARTED:
            _follow(row, target, schedule, subject, now)
        elif schedule is None:
            row.state, row.skipped = PlannedState.SKIPPED, Skipped.REMOVED
        elif subject.at_rest and not paused:
            _start(row, target, schedule, now)
        elif subject.phase in HELD_PHASES:
            row.state, row.skipped = PlannedState.SKIPPED, Skipped.HELD
        else:
            waiting = True
        row.save()
        target.lock()  # it may have been started, or stopped at its limit
        subject = target.subject(paused=paused, waiting=False)
    return target.subject(paused=paused, waiting=waiting)


def _follow(
    row: PlannedRun, target: Target, schedule: Schedule | None, subject: Subject, now: datetime
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
        and schedule.limit_s
        and row.started_at
        and row.generation == first  # not stopped yet
        and now - row.started_at > timedelta(seconds=schedule.limit_s)
    ):
        _stop(row, target, schedule, now)


def _stop(row: PlannedRun, target: Target, schedule: Schedule, now: datetime) -> None:
    try:
        with transaction.atomic():
            asked = target.stop(now)
    except HeadgateError:  # a procedure has the query for now; the next tick asks again
        return
    row.generation = asked.generation
    row.reason = Because(Detail.OVER_LIMIT, {"seconds": schedule.limit_s})
