"""The schedules of queries and scripts: next times, planned runs, and recent outcomes."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum, Window
from django.db.models.functions import Coalesce, RowNumber

from listeners import selectors as heard
from queries.domain.definitions.parsing import parse_application, parse_query
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Missing
from queries.domain.schedules.checks import when_words
from queries.domain.schedules.cron import next_times
from queries.domain.schedules.planning import LATE_AFTER, PlannedState
from queries.models.applications import Application, ApplicationRevision
from queries.models.definitions import Query, QueryRevision
from queries.models.schedules import PlannedRun, ScheduleState
from queries.selectors import visible
from queries.selectors.rows import newest_revisions
from queries.selectors.supervision.applications import newest_application_revisions

#: Coming times that are shown.
COMING = 5


@dataclass(frozen=True, slots=True)
class Usage:
    """The duration of the ended runs in the last 90 days, and that of an always-on query."""

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
        """Return a description of what starts it."""
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
    """Return whether a planned time or the folder has not been checked for too long.

    Also true while its times are handled up to a future moment: a clock was wrong, and nothing has
    been checked since.
    """
    if schedule.kind == "after":
        return False
    if schedule.kind == "files":
        since = state.looked_at or state.cursor
        longest = 3 * timedelta(seconds=schedule.poll_interval_s) + LATE_AFTER
        return since > now + LATE_AFTER or now - since > longest
    passed = next_times(schedule, state.cursor, 1)
    late = bool(passed) and now - passed[0] > LATE_AFTER
    return late or state.cursor > now + LATE_AFTER


def _usage(owner: Query | Application, now: datetime) -> Usage:
    """Return the duration of the planned runs with a start and an end."""
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


#: Hours of the window: one night and the day around it; at most a week.
HOURS, MOST_HOURS = 24, 168

#: A schedule's place in the list: its name, then its number.
ListPosition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ran:
    """One planned run, with the rows that its runs read."""

    planned: PlannedRun
    rows: int | None  # None: no batch is stored, or it is a script's


@dataclass(slots=True)
class Tally:
    """The outcomes of the planned times within the window."""

    due: int = 0
    done: int = 0
    failed: int = 0
    stopped: int = 0
    running: int = 0
    waiting: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # times, by reason
    late: int = 0  # runs that started more than a minute after their planned time
    latest_s: float | None = None  # the most that a run was late; None: none has started
    ran_s: float = 0.0  # that ended runs took


@dataclass(frozen=True)
class ScheduleLine:
    """One schedule, and its outcomes within the window.

    Its definition is read when it is shown, so that an unreadable one does not affect other lines.
    """

    owner: Query | Application
    state: ScheduleState
    revision: QueryRevision | ApplicationRevision | None
    tally: Tally
    newest: list[Ran]  # within the window, newest first
    now: datetime

    @property
    def name(self) -> str:
        """Return the name of the query, or of the application whose script it starts."""
        return self.owner.name

    @property
    def starts(self) -> str:
        """Return the kind of its target: "query" or "script"."""
        return "query" if isinstance(self.owner, Query) else "script"

    @property
    def last(self) -> Ran | None:
        """Return the newest planned run within the window; None if there is none."""
        return self.newest[0] if self.newest else None

    @cached_property
    def schedule(self) -> Schedule:
        """Return the schedule of the newest revision."""
        schedule = schedule_of(self.revision)
        if schedule is None:
            raise Missing(f"{self.name} has no schedule.")
        return schedule

    @property
    def when(self) -> str:
        """Return a description of what starts it."""
        return when_words(self.schedule)

    @property
    def next_time(self) -> datetime | None:
        """Return its next planned time; None while it is paused, and without cron."""
        if self.schedule.kind != "cron" or self.state.paused_at is not None:
            return None
        return next(iter(next_times(self.schedule, self.now, 1)), None)

    @property
    def overdue(self) -> bool:
        """Return whether nothing has looked at it for too long."""
        return is_overdue(self.state, self.schedule, self.now)


def schedule_lines(
    *,
    now: datetime,
    hours: int = HOURS,
    application: str = "",
    after: ListPosition | None = None,
    limit: int,
    newest: int = 1,
) -> list[ScheduleLine]:
    """Return the schedules by name, each with at most `newest` planned runs of the last hours."""
    states = _states(application).select_related("query", "application")
    if after is not None:
        name, number = after
        states = states.filter(Q(title__gt=name) | Q(title=name, pk__gt=number))
    schedule_states = list(states.order_by("title", "pk")[:limit])
    queries = [state.query_id for state in schedule_states if state.query_id is not None]
    scripts = [
        state.application_id for state in schedule_states if state.application_id is not None
    ]
    rows = PlannedRun.objects.filter(Q(query__in=queries) | Q(application__in=scripts))
    rows = rows.filter(due_at__gt=now - timedelta(hours=hours), due_at__lte=now)
    tallies, ran = _tallies(rows), _newest(rows, newest)
    of_queries, of_scripts = newest_revisions(queries), newest_application_revisions(scripts)
    lines = []
    for state in schedule_states:
        owner = state.query or state.application
        assert owner is not None, "a constraint of the table"
        key = (state.query_id, state.application_id)
        revision: QueryRevision | ApplicationRevision | None = (
            of_queries.get(owner.pk) if isinstance(owner, Query) else of_scripts.get(owner.pk)
        )
        lines.append(ScheduleLine(owner, state, revision, tallies[key], ran[key], now))
    return lines


def list_position(line: ScheduleLine) -> ListPosition:
    """Return a schedule's place in the list."""
    return line.name, line.state.pk


def _states(application: str) -> Any:
    living = Q(query__archived_at=None, application__archived_at=None)
    states = ScheduleState.objects.filter(living).exclude(digest="")
    if application:
        of_queries = Q(query__application__name=application)
        states = states.filter(of_queries | Q(application__name=application))
    return states.annotate(title=Coalesce("query__name", "application__name"))


_Key = tuple[int | None, int | None]  # of a query, of an application
_COUNTED = {
    PlannedState.DONE: "done",
    PlannedState.FAILED: "failed",
    PlannedState.STOPPED: "stopped",
    PlannedState.STARTED: "running",
    PlannedState.WAITING: "waiting",
}


def _tallies(rows: QuerySet[PlannedRun]) -> dict[_Key, Tally]:
    late = F("started_at") - F("due_at")
    groups = rows.order_by().values("query", "application", "state", "skipped")
    groups = groups.annotate(
        times=Sum("due_times"),
        latest=Max(late, filter=Q(started_at__isnull=False)),
        late=Count("pk", filter=Q(started_at__gt=F("due_at") + LATE_AFTER)),
        took=Sum(F("ended_at") - F("started_at")),
    )
    tallies: dict[_Key, Tally] = defaultdict(Tally)
    for group in groups:
        tally = tallies[group["query"], group["application"]]
        tally.due += group["times"]
        if group["state"] == PlannedState.SKIPPED:
            tally.skipped[group["skipped"]] = group["times"]
        else:
            setattr(tally, _COUNTED[PlannedState(group["state"])], group["times"])
        tally.late += group["late"]
        if group["latest"] is not None:
            tally.latest_s = max(tally.latest_s or 0.0, group["latest"].total_seconds())
        if group["took"] is not None:
            tally.ran_s += group["took"].total_seconds()
    return tallies


def _newest(rows: QuerySet[PlannedRun], most: int) -> dict[_Key, list[Ran]]:
    rank = Window(
        RowNumber(),
        partition_by=[F("query"), F("application")],
        order_by=[F("due_at").desc(), F("pk").desc()],
    )
    chosen = rows.annotate(place=rank).filter(place__lte=most).select_related("operation")
    planned = list(chosen.order_by("-due_at", "-pk"))
    read = _rows_read(planned)
    newest_runs: dict[_Key, list[Ran]] = defaultdict(list)
    for planned_run in planned:
        newest_runs[planned_run.query_id, planned_run.application_id].append(
            Ran(planned_run, read.get(planned_run.pk))
        )
    return newest_runs


def _rows_read(planned: Iterable[PlannedRun]) -> dict[int, int]:
    """Return the rows that the runs of planned runs read, by planned run."""
    spans: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for planned_run in planned:
        if (
            planned_run.query_id is not None
            and planned_run.operation is not None
            and planned_run.generation is not None
        ):
            spans[planned_run.query_id].append(
                (planned_run.operation.generation, planned_run.generation, planned_run.pk)
            )
    if not spans:
        return {}
    condition = Q()
    for query, generations in spans.items():
        condition |= Q(query=query, generation__gte=min(low for low, _, _ in generations))
    runs = visible.runs().filter(condition)
    owners: dict[int, int] = {}
    for run, query, generation in runs.values_list("pk", "query", "generation"):
        for low, high, pk in spans[query]:
            if low <= generation <= high:
                owners[run] = pk
    rows_read: dict[int, int] = defaultdict(int)
    for run, (read, _) in heard.run_rows(sorted(owners)).items():
        rows_read[owners[run]] += read or 0
    return rows_read
