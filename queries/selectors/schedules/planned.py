"""A query's schedule, its next times and its planned runs."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Missing
from queries.domain.schedules.cron import next_times
from queries.domain.schedules.planning import LATE_AFTER
from queries.models.definitions import Query, QueryRevision
from queries.models.schedules.planned import PlannedRun, ScheduleState

#: Coming times that are shown.
COMING = 5


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A query's schedule as its newest revision has it, and where it is in its times."""

    schedule: Schedule
    state: ScheduleState
    next_times: list[datetime]  # UTC
    overdue: bool  # a planned time has passed and nothing has looked at it


def schedule_of(revision: QueryRevision | None) -> Schedule | None:
    """Return a revision's schedule; `Invalid` if the revision cannot be read."""
    if revision is None or not revision.spec.get("schedule"):
        return None  # most queries: nothing to parse
    return parse_query(revision.spec).schedule


def schedule_status(query: Query, *, now: datetime) -> ScheduleStatus:
    """Return the status of a query's schedule; `Missing` if it has none."""
    schedule = schedule_of(query.revisions.order_by("-number").first())
    state = ScheduleState.objects.filter(query=query).first()
    if schedule is None or state is None:
        raise Missing(f"{query.name} has no schedule.", way_out="Add a schedule to its definition.")
    passed = next_times(schedule, state.cursor, 1)
    return ScheduleStatus(
        schedule,
        state,
        next_times(schedule, max(now, state.cursor), COMING),
        overdue=bool(passed) and now - passed[0] > LATE_AFTER,
    )


def planned_runs(query: Query) -> QuerySet[PlannedRun]:
    """Return a query's planned runs of the last 90 days, newest first."""
    return query.planned_runs.select_related("operation").order_by("-due_at", "-pk")
