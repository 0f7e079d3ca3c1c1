"""The schedule of a query or of a script, its next times and its planned runs."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Min, QuerySet, Sum

from queries.domain.definitions.parsing import parse_application, parse_query
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Missing
from queries.domain.schedules.cron import next_times
from queries.domain.schedules.planning import LATE_AFTER
from queries.domain.schedules.wording import when_words
from queries.models.applications import Application, ApplicationRevision
from queries.models.definitions import Query, QueryRevision
from queries.models.schedules.planned import PlannedRun, ScheduleState

#: Coming times that are shown.
COMING = 5


@dataclass(frozen=True, slots=True)
class Usage:
    """What the ended runs of the last 90 days took, and what running all the time would have."""

    runs: int
    ran_s: float
    period_s: float  # since the first of them; 0.0 without runs


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule as the newest revision has it, and where it is in its times."""

    schedule: Schedule
    state: ScheduleState
    next_times: list[datetime]  # UTC; none if it follows a query or files
    overdue: bool  # nothing has looked at a planned time, or at its folder, for too long
    usage: Usage

    @property
    def when(self) -> str:
        """Return what starts it, in words."""
        return when_words(self.schedule)


def schedule_of(revision: QueryRevision | ApplicationRevision | None) -> Schedule | None:
    """Return a revision's schedule; `Invalid` if the revision cannot be read."""
    if revision is None or not revision.spec.get("schedule"):
        return None  # most definitions: nothing to parse
    parse = parse_query if isinstance(revision, QueryRevision) else parse_application
    return parse(revision.spec).schedule


def owner_of(owner: Query | Application) -> dict[str, Any]:
    """Return the column by which the rows of its schedule are found."""
    return {"query" if isinstance(owner, Query) else "application": owner}


def schedule_status(owner: Query | Application, *, now: datetime) -> ScheduleStatus:
    """Return the status of a schedule; `Missing` if there is none."""
    schedule = schedule_of(owner.revisions.order_by("-number").first())
    state = ScheduleState.objects.filter(**owner_of(owner)).first()
    if schedule is None or state is None:
        raise Missing(f"{owner.name} has no schedule.", way_out="Add a schedule to its definition.")
    usage = _usage(owner, now)
    coming = next_times(schedule, now, COMING) if schedule.kind == "cron" else []
    overdue = is_overdue(state, schedule, now)
    return ScheduleStatus(schedule, state, coming, overdue=overdue, usage=usage)


def is_overdue(state: ScheduleState, schedule: Schedule, now: datetime) -> bool:
    """Return whether nothing has looked at a planned time, or at the folder, for too long.

    Also while its times are handled up to a moment in the future: a clock was wrong, and nothing
    has looked since.
    """
    if schedule.kind == "after":
        return False
    if schedule.kind == "files":
        since = state.looked_at or state.cursor
        longest = 3 * timedelta(seconds=schedule.look_s) + LATE_AFTER
        return since > now + LATE_AFTER or now - since > longest
    passed = next_times(schedule, state.cursor, 1)
    late = bool(passed) and now - passed[0] > LATE_AFTER
    return late or state.cursor > now + LATE_AFTER


def _usage(owner: Query | Application, now: datetime) -> Usage:
    """Return what the planned runs with a start and an end took."""
    ended = PlannedRun.objects.filter(
        **owner_of(owner), started_at__isnull=False, ended_at__isnull=False
    )
    total = ended.aggregate(
        runs=Count("pk"), first=Min("started_at"), took=Sum(F("ended_at") - F("started_at"))
    )
    if not total["runs"]:
        return Usage(0, 0.0, 0.0)
    period = max((now - total["first"]).total_seconds(), 0.0)
    return Usage(total["runs"], total["took"].total_seconds(), period)


def planned_runs(owner: Query | Application) -> QuerySet[PlannedRun]:
    """Return the planned runs of the last 90 days, newest first."""
    rows = PlannedRun.objects.filter(**owner_of(owner))
    return rows.select_related("operation").order_by("-due_at", "-pk")
