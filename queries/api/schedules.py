"""Schedules of queries and scripts over REST: next times, planned runs, pause and resume."""

from django.db.models import QuerySet
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.bodies import Body, serializer_for
from queries.api.methods import Key, Nothing, answers, lists, page, whole, whole_number, word
from queries.domain.schedules.planning import PlannedState
from queries.models.schedules import PlannedRun
from queries.roles import OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.schedules import (
    HOURS,
    MOST_HOURS,
    Ran,
    ScheduleLine,
    ScheduleStatus,
    Tally,
    list_position,
    planned_runs,
    schedule_lines,
    schedule_status,
)
from queries.selectors.supervision.applications import application
from queries.services.schedules import pauses


@serializer_for(
    ScheduleStatus,
    "when schedule.cron schedule.time_zone schedule.after schedule.after_end schedule.files "
    "schedule.quiet_period_s schedule.poll_interval_s schedule.overlap schedule.missed "
    "schedule.catch_up_window_s schedule.timeout_s schedule.params next_times overdue "
    "state.problem state.looked_at "
    "state.paused_at state.paused_by usage.runs usage.ran_s usage.period_s",
)
class ScheduleBody(Body):
    """A schedule, and its current position.

    when: A description of what starts it. after: The query whose runs it follows; empty: none.
    files: The folder whose new files start it; empty: none. quiet_period_s: Seconds after the last
    new file. poll_interval_s: Seconds between two listings of the folder. problem: Why nothing can
    start it; empty if nothing is wrong. looked_at: When the folder was listed; null: not yet, or
    there is none. runs: Ended runs of the last 90 days. ran_s: Their total duration in seconds.
    period_s: Seconds since the first of them: how long an always-on stream would have run.
    catch_up_window_s: How late, in seconds, `run_once` still starts a missed time. params: Values
    for parameters; strings may contain `{time}` and `{date}`. timeout_s: Seconds after which a run
    is stopped gracefully; 0 for no limit. next_times: At most 5, in UTC; none without cron.
    overdue: Whether a planned time or the folder has not been checked for too long. paused_at: Null
    if it is not paused.
    """


@serializer_for(
    PlannedRun,
    "due_at first_due_at due_times state skipped reason params started_at ended_at late_s "
    "duration_s operation=operation.uuid",
    state=PlannedState,
)
class PlannedRunBody(Body):
    """One planned time: the run that it started, or why it started none.

    due_at: Of several times that were skipped at once, the newest. first_due_at: Of several times,
    the oldest; null: it is one. due_times: How many planned times this stands for. skipped:
    overlap, missed, paused, blocked, host, duplicate or removed; empty unless SKIPPED. reason: Why
    it waits, failed or was stopped; else empty. params: Parameter values from the schedule; empty:
    the defaults. late_s: Seconds from the planned time to the start of its run; null if it has not
    started. duration_s: Seconds from the start to the end; null until it has ended. operation: The
    start that it requested; null if there was none.
    """


@serializer_for(
    Ran,
    "due_at=planned.due_at state=planned.state skipped=planned.skipped reason=planned.why "
    "started_at=planned.started_at late_s=planned.late_s duration_s=planned.duration_s rows",
)
class LastPlannedBody(Body):
    """The newest planned run within the window.

    reason: Why it waits, failed, was stopped or skipped; else empty.
    rows: That its runs read; null: none stored, or it is a script's.
    """


@serializer_for(
    Tally,
    "due done failed stopped running waiting skipped late latest_s ran_s",
)
class TallyBody(Body):
    """The outcomes of the planned times within the window.

    due: Planned times. running: Started, and not ended. waiting: Queued until the previous run has
    ended. skipped: Times by reason: overlap, missed, paused, blocked, host, duplicate or removed.
    late: Runs that started more than a minute after their planned time. latest_s: The longest delay
    of a run; null if none has started. ran_s: Total duration of ended runs, in seconds.
    """


@serializer_for(
    ScheduleLine,
    "name starts when next_time overdue paused_at=state.paused_at paused_by=state.paused_by "
    "problem=state.problem looked_at=state.looked_at tally last",
)
class ScheduleLineBody(Body):
    """One schedule, and its outcomes within the window.

    name: The name of the query, or of the application whose script it starts. starts: query or
    script. when: A description of what starts it. next_time: Null while it is paused, and without
    cron. overdue: Whether it has not been checked for too long. paused_at: Null if it is not
    paused. problem: Why nothing can start it; empty if nothing is wrong. looked_at: When the folder
    was listed; null: not yet, or there is none. last: Null if no time was planned within the
    window.
    """


class SchedulesView(ApiView):
    """All schedules."""

    @lists(
        "list_schedules",
        ScheduleLineBody,
        parameters=[
            whole("hours", HOURS, low=1, high=MOST_HOURS, about="Length of the window, until now."),
            word("application"),
        ],
    )
    def get(self) -> Response:
        """List schedules by name, with the runs, delays and skips of the last hours."""
        hours = whole_number(self.request, "hours", HOURS, low=1, high=MOST_HOURS)

        def fetch(after: Key | None, count: int) -> list[ScheduleLine]:
            return schedule_lines(
                now=self.now,
                hours=hours,
                application=self.query_param("application"),
                after=(str(after[0]), int(after[1])) if after else None,
                limit=count,
            )

        return page(self.request, fetch, lambda line: list(list_position(line)), ScheduleLineBody)


class QueryScheduleView(ApiView):
    """A query's schedule."""

    @answers("get_query_schedule", ScheduleBody)
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

    @answers("pause_query_schedule", ScheduleBody, role=OPERATE, form=Nothing)
    def post(self, name: str) -> ScheduleStatus:
        """Pause the schedule: its planned times are skipped. A run that it started continues."""
        return pauses.pause(definitions.query(name), **self.by)


class QueryScheduleResumeView(ApiView):
    """The end of a schedule's pause."""

    @answers("resume_query_schedule", ScheduleBody, role=OPERATE, form=Nothing)
    def post(self, name: str) -> ScheduleStatus:
        """Resume the schedule from now on."""
        return pauses.resume(definitions.query(name), **self.by)


class ApplicationScheduleView(ApiView):
    """A script's schedule."""

    @answers("get_application_schedule", ScheduleBody)
    def get(self, name: str) -> ScheduleStatus:
        """Return the schedule with its next times; 404 if the application has none."""
        return schedule_status(application(name), now=self.now)


class ApplicationPlannedRunsView(ApiView):
    """The planned runs of a script's schedule."""

    @lists("list_application_planned_runs", PlannedRunBody, by="due_at pk")
    def get(self, name: str) -> QuerySet[PlannedRun]:
        """List the planned times of the last 90 days, newest first, those skipped included."""
        return planned_runs(application(name))


class ApplicationSchedulePauseView(ApiView):
    """The pause of a script's schedule."""

    @answers("pause_application_schedule", ScheduleBody, role=OPERATE, form=Nothing)
    def post(self, name: str) -> ScheduleStatus:
        """Pause the schedule: its planned times are skipped. A run that it started continues."""
        return pauses.pause(application(name), **self.by)


class ApplicationScheduleResumeView(ApiView):
    """The end of the pause of a script's schedule."""

    @answers("resume_application_schedule", ScheduleBody, role=OPERATE, form=Nothing)
    def post(self, name: str) -> ScheduleStatus:
        """Resume the schedule from now on."""
        return pauses.resume(application(name), **self.by)
