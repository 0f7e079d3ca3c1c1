"""Give each planned time of a schedule its one run or its one named skip.

The cursor, the rows of the planned times and the request to start are written in one transaction:
a process that is killed has written all of them or none. The cursor moves by compare-and-set, and a
second row of the same planned time violates a constraint, so that two workers cannot both start.
"""

import logging
from datetime import datetime, timedelta
from hashlib import sha256

from django.db import transaction
from django.db.models import Q

from listeners.loops.troubles import each
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import HeadgateError
from queries.domain.reasons import PHRASES, Because, Detail
from queries.domain.schedules.cron import due_times, next_times
from queries.domain.schedules.planning import Choice, Subject, choose, end_of
from queries.domain.schedules.rendering import rendered
from queries.domain.schedules.states import OPEN_STATES, PlannedState, Skipped
from queries.domain.states import HELD_PHASES, Desired, Phase, Reason, RunOutcome, StopMode
from queries.models.definitions import Query, QueryRevision
from queries.models.drivers import Run
from queries.models.failures import Failure
from queries.models.schedules.planned import PlannedRun, ScheduleState
from queries.selectors.schedules.planned import schedule_of
from queries.services.supervision.operations import locked, request_start, request_stop

logger = logging.getLogger(__name__)
_each = each("schedules", logger)

#: The actor of the starts and stops that a schedule requests.
ACTOR = "schedule"
#: Planned times handled in one transaction; the rest of a long gap follows at once in the next.
_AT_ONCE = 500
#: How long planned runs are kept; their calendar shows 90 days.
KEPT = timedelta(days=90)
#: Characters of a failure that a planned run repeats; the failure's page has all of it.
_REASON_LENGTH = 500


def follow_schedule(revision: QueryRevision) -> None:
    """Begin, change or end the schedule of a query whose definition has just been saved.

    Changed times count from the moment of the save; a pause remains. A removed schedule's state is
    kept until its last planned run has ended.
    """
    schedule = schedule_of(revision)
    states = ScheduleState.objects.filter(query=revision.query_id)
    if schedule is None:
        if _is_open(revision.query_id):
            states.update(digest="", next_at=None)
        else:
            states.delete()
        return
    digest = sha256(f"{schedule.cron}\n{schedule.time_zone}".encode()).hexdigest()
    at = revision.created_at
    begun = {"digest": digest, "cursor": at, "next_at": at}
    if not states.exists():
        ScheduleState.objects.create(query_id=revision.query_id, **begun)
    else:  # a later cursor has already given its times
        states.exclude(digest=digest).filter(cursor__lte=at).update(**begun)
        states.exclude(digest=digest).update(digest=digest, next_at=at)


def run_schedules(*, now: datetime) -> None:
    """Handle every schedule with a due time, and every planned run that is open."""
    due = Q(next_at__lte=now)
    busy = Q(query__in=PlannedRun.objects.filter(state__in=OPEN_STATES).values("query"))
    for state in ScheduleState.objects.filter(due | busy).order_by("pk").select_related("query"):
        if state.query is None:
            continue
        with _each.by_itself(f"schedule of {state.query.name}"):
            while _handle(state.pk, state.query, now):
                pass


@transaction.atomic
def _handle(state_id: int, query: Query, now: datetime) -> bool:
    """Handle the next due times of one schedule; return whether more are due."""
    query = locked(query)
    state = ScheduleState.objects.filter(pk=state_id).first()
    schedule = schedule_of(query.revisions.order_by("-number").first())
    if state is None:
        return False
    if schedule is None or query.archived_at is not None:
        _settle(query, state, None, now)
        if not _is_open(query.pk):
            state.delete()
        return False
    subject = _settle(query, state, schedule, now)
    found = due_times(schedule, state.cursor, now, _AT_ONCE + 1)
    due, more = found[:_AT_ONCE], len(found) > _AT_ONCE
    cursor = due[-1] if due else state.cursor
    following = next_times(schedule, cursor, 1)
    moved = ScheduleState.objects.filter(pk=state.pk, cursor=state.cursor).update(
        cursor=cursor, next_at=following[0] if following else None
    )
    if not moved:  # another worker was here since the state was read: what it judged is old
        transaction.set_rollback(True)
        return False
    if not due:
        return False
    choices = choose(due, schedule, subject, now, more=more)
    for choice in choices:
        _write(query, choice, schedule, now)
    PlannedRun.objects.filter(query=query, due_at__lt=now - KEPT).exclude(
        state__in=OPEN_STATES
    ).delete()
    return more


def _is_open(query: int) -> bool:
    return PlannedRun.objects.filter(query=query, state__in=OPEN_STATES).exists()


def _write(query: Query, choice: Choice, schedule: Schedule, now: datetime) -> None:
    row = PlannedRun(
        query=query,
        key=choice.due_at.isoformat(),
        due_at=choice.due_at,
        state=choice.state,
        skipped=choice.skipped or "",
    )
    if choice.state is PlannedState.STARTED:
        _start(row, query, schedule, now)
    row.save(force_insert=True)


def _start(row: PlannedRun, query: Query, schedule: Schedule, now: datetime) -> None:
    """Request the start; a start that is refused makes the planned run FAILED, with the reason."""
    row.params = rendered(schedule, row.due_at)
    try:
        with transaction.atomic():
            operation = request_start(query=query, actor=ACTOR, now=now, params=row.params or None)
    except HeadgateError as error:
        row.state, row.ended_at = PlannedState.FAILED, now
        row.reason = Because(Detail.START_REFUSED, {"about": str(error)})
    else:
        row.state = PlannedState.STARTED
        row.operation, row.generation = operation, operation.generation


def _settle(
    query: Query, state: ScheduleState, schedule: Schedule | None, now: datetime
) -> Subject:
    """Note the ends of its open planned runs; return what the next planned time depends on.

    Without a schedule, no time that waits is started.
    """
    rows = list(PlannedRun.objects.filter(query=query, state__in=OPEN_STATES).order_by("due_at"))
    subject = _subject(query, state, waiting=False)
    waiting = False
    for row in rows:
        if row.state == PlannedState.STARTED:
            _follow(row, query, schedule, subject, now)
            query.refresh_from_db()  # it may have been stopped at its limit
            subject = _subject(query, state, waiting=False)
        elif schedule is None:
            row.state, row.skipped = PlannedState.SKIPPED, Skipped.REMOVED
        elif subject.at_rest and not state.paused_at:
            _start(row, query, schedule, now)
            query.refresh_from_db()
            subject = _subject(query, state, waiting=False)
        elif subject.phase in HELD_PHASES:
            row.state, row.skipped = PlannedState.SKIPPED, Skipped.HELD
        else:
            waiting = True
        row.save()
    return _subject(query, state, waiting=waiting)


def _follow(
    row: PlannedRun, query: Query, schedule: Schedule | None, subject: Subject, now: datetime
) -> None:
    """Take the times of its runs, note its end, and stop it at the limit of its duration."""
    assert row.generation is not None, "`_start` sets it"
    first = row.operation.generation if row.operation else row.generation
    runs = Run.objects.filter(query=query, generation__range=(first, row.generation))
    times = list(runs.order_by("epoch").values_list("started_at", "created_at", "ended_at"))
    if times:
        row.started_at = times[0][0] or times[0][1]
    ended = end_of(row.generation, query.generation, subject)
    if ended is not None:
        row.state, row.ended_at = ended, (times and times[-1][2]) or now
        if ended is PlannedState.FAILED:
            why = PHRASES[Reason(query.phase_reason)]
            newest = Failure.objects.filter(run__in=runs).order_by("-pk").first()
            about = newest.root_cause[:_REASON_LENGTH] if newest else ""
            row.reason = Because(Detail.RUN_FAILED, {"why": why, "about": about})
    elif (
        schedule is not None
        and schedule.limit_s
        and row.started_at
        and row.generation == first  # not stopped yet
        and now - row.started_at > timedelta(seconds=schedule.limit_s)
    ):
        _stop(row, query, schedule, now)


def _stop(row: PlannedRun, query: Query, schedule: Schedule, now: datetime) -> None:
    try:
        with transaction.atomic():
            asked = request_stop(query=query, mode=StopMode.GRACEFUL, actor=ACTOR, now=now)
    except HeadgateError:  # a procedure has the query for now; the next tick asks again
        return
    row.generation = asked.generation
    row.reason = Because(Detail.OVER_LIMIT, {"seconds": schedule.limit_s})


def _subject(query: Query, state: ScheduleState, *, waiting: bool) -> Subject:
    return Subject(
        desired=Desired(query.desired),
        phase=Phase(query.phase),
        has_run=Run.objects.filter(query=query, outcome=RunOutcome.OPEN).exists(),
        paused=state.paused_at is not None,
        waiting=waiting,
    )
