"""A query's schedule over REST: its next times, its planned runs, pause and resume."""

from django.db.models import QuerySet

from queries.api.base import ApiView
from queries.api.derived import Body, shows
from queries.api.methods import Nothing, answers, lists
from queries.domain.schedules.states import PlannedState
from queries.models.schedules.planned import PlannedRun
from queries.roles import OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.schedules.planned import ScheduleStatus, planned_runs, schedule_status
from queries.services.schedules import pauses


@shows(
    ScheduleStatus,
    "schedule.cron schedule.time_zone schedule.overlap schedule.missed schedule.missed_window_s "
    "schedule.limit_s schedule.params next_times overdue state.paused_at state.paused_by",
)
class QueryScheduleBody(Body):
    """A query's schedule, and where it is in its times.

    missed_window_s: How late, in seconds, `run_once` still starts a missed time.
    params: Values for parameters; texts may contain `{time}` and `{date}`.
    limit_s: Seconds after which a run is stopped gracefully; 0 for no limit.
    next_times: At most 5, in UTC.
    overdue: Whether a planned time passed more than a minute ago and nothing has looked at it.
    paused_at: Null if it is not paused.
    """


@shows(
    PlannedRun,
    "due_at state skipped reason params started_at ended_at late_s duration_s "
    "operation=operation.uuid",
    state=PlannedState,
)
class PlannedRunBody(Body):
    """One planned time: the run that it gave, or why it gave none.

    skipped: overlap, missed, paused, held, host, duplicate or removed; empty unless SKIPPED.
    reason: Why it waits, failed or was stopped; else empty.
    params: Values of parameters that the schedule gave; empty: the defaults.
    late_s: Seconds from the planned time to the start of its run; null if it has not started.
    duration_s: Seconds from the start to the end; null until it has ended.
    operation: The start that it requested; null if there was none.
    """


class QueryScheduleView(ApiView):
    """A query's schedule."""

    @answers("get_query_schedule", QueryScheduleBody)
    def get(self, name: str) -> ScheduleStatus:
        """Return the schedule with its next times; 404 if the query has none."""
        return schedule_status(definitions.query(name), now=self.now)


class QueryPlannedRunsView(ApiView):
    """The planned runs of a query's schedule."""

    @lists("list_query_planned_runs", PlannedRunBody, by="due_at pk")
    def get(self, name: str) -> QuerySet[PlannedRun]:
        """List the planned times of the last 90 days, newest first, those skipped included."""
        return planned_runs(definitions.query(name))


class QuerySchedulePauseView(ApiView):
    """The pause of a schedule."""

    @answers("pause_query_schedule", QueryScheduleBody, role=OPERATE, form=Nothing)
    def post(self, name: str) -> ScheduleStatus:
        """Pause the schedule: its planned times are skipped. A run that it started continues."""
        return pauses.pause(definitions.query(name), **self.by)


class QueryScheduleResumeView(ApiView):
    """The end of a schedule's pause."""

    @answers("resume_query_schedule", QueryScheduleBody, role=OPERATE, form=Nothing)
    def post(self, name: str) -> ScheduleStatus:
        """Resume the schedule from now on."""
        return pauses.resume(definitions.query(name), **self.by)
