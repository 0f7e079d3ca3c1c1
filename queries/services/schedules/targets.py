"""What a schedule starts, a query or a script, and the query whose runs it may follow."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q

from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Invalid, Problem
from queries.domain.reasons import PHRASES
from queries.domain.schedules.planning import ScheduledObject
from queries.domain.states import (
    BLOCKED_PHASES,
    STOPPED_PHASES,
    Desired,
    DriverKind,
    Phase,
    Reason,
    RunOutcome,
    StopMode,
)
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, Operation
from queries.models.schedules import ScheduleState
from queries.selectors.schedules import schedule_of
from queries.services.supervision.application_operations import (
    request_script_start,
    request_script_stop,
)
from queries.services.supervision.operations import locked, request_start, request_stop

#: The actor of the starts and stops that a schedule requests.
ACTOR = "schedule"
#: Characters of a failure that a planned run repeats; the failure's page has all of it.
_REASON_LENGTH = 500

#: When a run started, or else was created, and when it ended.
Times = list[tuple[datetime, datetime | None]]


@dataclass(frozen=True, slots=True)
class DeletedTarget:
    """The last schedule of a deleted object, and the time of the deletion."""

    schedule: Schedule
    at: datetime


@dataclass
class Target(ABC):
    """One row with a schedule; every method but `lock` expects that it is locked."""

    name: str
    row: Query | Application

    @abstractmethod
    def lock(self) -> None:
        """Read the row again and lock it, as requests do."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """The columns by which its rows of schedules are found."""

    @property
    def generation(self) -> int:
        """How many requests it has had."""
        return self.row.generation

    def schedule(self) -> Schedule | None:
        """Return the newest revision's schedule; None if it has none, or has been deleted."""
        if self.row.archived_at is not None:
            return None
        return schedule_of(self.row.revisions.order_by("-number").first())

    def ended(self) -> DeletedTarget | None:
        """Return the schedule of a row that has been deleted; None if it has none, or exists."""
        schedule = schedule_of(self.row.revisions.order_by("-number").first())
        if self.row.archived_at is None or schedule is None:
            return None
        return DeletedTarget(schedule, self.row.archived_at)

    @abstractmethod
    def subject(self, *, paused: bool, waiting: bool) -> ScheduledObject:
        """Return the facts that a planned time depends on."""

    @abstractmethod
    def start(self, params: Mapping[str, Any] | None, now: datetime) -> Operation:
        """Request a start; raises as requests do."""

    @abstractmethod
    def stop(self, now: datetime) -> Operation:
        """Request a graceful stop; raises as requests do."""

    @abstractmethod
    def times(self, first: int, last: int) -> Times:
        """Return when its runs of these generations started and ended, oldest first."""

    @abstractmethod
    def why_it_failed(self, first: int, last: int) -> dict[str, str]:
        """Return why it is on hold, and the failures of these runs."""


@dataclass
class QueryTarget(Target):
    """A query that ends on its own."""

    row: Query

    def lock(self) -> None:
        """Lock the query after its application."""
        self.row = locked(self.row)

    @property
    def columns(self) -> dict[str, Any]:
        """The query."""
        return {"query": self.row}

    def subject(self, *, paused: bool, waiting: bool) -> ScheduledObject:
        """Return the query's phase, and whether it has a run."""
        has_run = Run.objects.filter(query=self.row, outcome=RunOutcome.OPEN).exists()
        desired, phase = Desired(self.row.desired), Phase(self.row.phase)
        return ScheduledObject(desired, phase, has_run, paused, waiting)

    def start(self, params: Mapping[str, Any] | None, now: datetime) -> Operation:
        """Start the query with values for its parameters."""
        return request_start(query=self.row, actor=ACTOR, now=now, params=params)

    def stop(self, now: datetime) -> Operation:
        """Stop the query after its batch."""
        return request_stop(query=self.row, mode=StopMode.GRACEFUL, actor=ACTOR, now=now)

    def times(self, first: int, last: int) -> Times:
        """Return the times of its runs."""
        runs = self._runs(first, last).order_by("epoch")
        rows = runs.values_list("started_at", "created_at", "ended_at")
        return [(started or created, ended) for started, created, ended in rows]

    def why_it_failed(self, first: int, last: int) -> dict[str, str]:
        """Return the phase's reason and the newest failure."""
        newest = Failure.objects.filter(run__in=self._runs(first, last)).order_by("-pk").first()
        return _why(self.row.phase_reason, newest)

    def _runs(self, first: int, last: int) -> Any:
        return Run.objects.filter(query=self.row, generation__range=(first, last))


@dataclass
class ScriptTarget(Target):
    """An application whose script ends on its own."""

    row: Application
    script: Script | None = None

    def lock(self) -> None:
        """Lock the application, then its script."""
        self.row = Application.objects.select_for_update().get(pk=self.row.pk)
        self.script = Script.objects.select_for_update().filter(application=self.row).first()

    @property
    def columns(self) -> dict[str, Any]:
        """The application."""
        return {"application": self.row}

    def schedule(self) -> Schedule | None:
        """Return the schedule of the application's newest revision, if that has a script."""
        return super().schedule() if self.script is not None else None

    def subject(self, *, paused: bool, waiting: bool) -> ScheduledObject:
        """Return the script's phase, and whether its application has a driver."""
        if self.script is None:
            return ScheduledObject(Desired.STOPPED, Phase.STOPPED, False, paused, waiting)
        has_run = self._drivers().filter(ended_at=None).exists()
        desired, phase = Desired(self.script.desired), Phase(self.script.phase)
        return ScheduledObject(desired, phase, has_run, paused, waiting)

    def start(self, params: Mapping[str, Any] | None, now: datetime) -> Operation:
        """Run the script in a new driver; it has no parameters."""
        return request_script_start(application=self.row, actor=ACTOR, now=now)

    def stop(self, now: datetime) -> Operation:
        """Tell the script to stop after the batches in flight."""
        return request_script_stop(
            application=self.row, mode=StopMode.GRACEFUL, actor=ACTOR, now=now
        )

    def times(self, first: int, last: int) -> Times:
        """Return the times of its drivers."""
        drivers = self._drivers().filter(generation__range=(first, last)).order_by("epoch")
        return list(drivers.values_list("created_at", "ended_at"))

    def why_it_failed(self, first: int, last: int) -> dict[str, str]:
        """Return the phase's reason and the newest failure of its drivers."""
        drivers = self._drivers().filter(generation__range=(first, last))
        newest = Failure.objects.filter(driver__in=drivers).order_by("-pk").first()
        assert self.script is not None, "without one, nothing was started"
        return _why(self.script.phase_reason, newest)

    def _drivers(self) -> Any:
        return Driver.objects.filter(application=self.row, kind=DriverKind.SERVICE)


def target_of(state: ScheduleState) -> Target:
    """Return the target of a schedule, not locked yet."""
    if state.query is not None:
        return QueryTarget(state.query.name, state.query)
    assert state.application is not None, "a constraint of the table"
    return ScriptTarget(state.application.name, state.application)


def _why(reason: str, newest: Failure | None) -> dict[str, str]:
    about = newest.root_cause[:_REASON_LENGTH] if newest else ""
    return {"why": PHRASES[Reason(reason)], "about": about}


#: Queries in a row that follow each other; a longer chain is refused like one without an end.
_LONGEST_CHAIN = 100

_ENDED = Run.objects.filter(ended_at__isnull=False).exclude(outcome=RunOutcome.OPEN)


def due() -> Q:
    """Return which schedules have an end to look at, or have not found their query."""
    ended = _ENDED.filter(query=OuterRef("upstream"), pk__gt=OuterRef("upstream_run"))
    has_end = Exists(ended.values("pk")) & Q(upstream__archived_at__isnull=True)
    lost = Q(upstream__isnull=True) | Q(upstream__archived_at__isnull=False)
    return Q(kind="after") & (has_end | lost)


def find_upstream(state: ScheduleState, schedule: Schedule) -> bool:
    """Set the query that a schedule follows, or the problem; return whether there is one.

    A query that has just been found counts from its newest ended run on.
    """
    upstream = state.upstream
    if upstream is not None and upstream.archived_at is None and upstream.name == schedule.after:
        return True
    upstream = Query.objects.filter(name=schedule.after, archived_at=None).first()
    if upstream is None:
        return _lost(state, f"There is no query {schedule.after}.")
    if _leads_back(upstream, state.query_id):
        return _lost(state, f"{schedule.after} itself starts after this query.")
    newest = _ENDED.filter(query=upstream).order_by("-pk").values_list("pk", flat=True).first()
    state.upstream, state.upstream_run, state.problem = upstream, newest or 0, ""
    _save(state)
    return True


def insist_it_ends(state: ScheduleState, schedule: Schedule) -> None:
    """Find the query when a definition is saved; `Invalid` if the two would start each other.

    A query that does not exist yet may follow in the same set of definitions.
    """
    if not find_upstream(state, schedule) and Query.objects.filter(
        name=schedule.after, archived_at=None
    ):
        message = "leads back to this query: each would start the other without end."
        way_out = "Name a query that does not start after this one."
        raise Invalid([Problem("schedule.after", schedule.after, message, way_out)])


@dataclass(frozen=True, slots=True)
class UpstreamEnds:
    """The ended runs that no planned run covers, oldest first, and how far they were read."""

    runs: list[tuple[int, datetime]]  # (number, end)
    newest_run: int  # the newest run that was read: those up to it need no second look
    more: bool = False


def ends(state: ScheduleState, schedule: Schedule, most: int) -> UpstreamEnds:
    """Return at most `most` ended runs, read at once: later ends are seen later.

    An end counts as `any` once the query is not restarted: the newest run represents the earlier
    ones.
    """
    ended_runs = _ENDED.filter(query=state.upstream, pk__gt=state.upstream_run).order_by("pk")
    if schedule.after_end == "completed":
        rows = list(ended_runs.values_list("pk", "ended_at", "outcome")[: most + 1])
        read_rows = rows[:most]
        completed_ends = [
            (pk, at) for pk, at, how in read_rows if how == RunOutcome.COMPLETED and at is not None
        ]
        newest_run = read_rows[-1][0] if read_rows else state.upstream_run
        later = ended_runs.filter(pk__gt=newest_run, outcome=RunOutcome.COMPLETED)
        return UpstreamEnds(completed_ends, newest_run, more=len(rows) > most and later.exists())
    upstream, newest = state.upstream, ended_runs.last()
    if newest is None or newest.ended_at is None or upstream is None:
        return UpstreamEnds([], state.upstream_run)
    restarts = upstream.phase not in STOPPED_PHASES | BLOCKED_PHASES
    if restarts or Run.objects.filter(query=upstream, outcome=RunOutcome.OPEN).exists():
        return UpstreamEnds([], state.upstream_run)
    return UpstreamEnds([(newest.pk, newest.ended_at)], newest.pk)


def _leads_back(query: Query, to: int | None) -> bool:
    at: int | None = query.pk
    for _ in range(_LONGEST_CHAIN):
        if at is None or at == to:
            return at is not None
        following = ScheduleState.objects.filter(query=at, kind="after")
        at = following.values_list("upstream", flat=True).first()
    return True


def _lost(state: ScheduleState, problem: str) -> bool:
    if (state.upstream_id, state.problem) != (None, problem):
        state.upstream, state.problem = None, problem
        _save(state)
    return False


def _save(state: ScheduleState) -> None:
    state.save(update_fields=["upstream", "upstream_run", "problem"])
