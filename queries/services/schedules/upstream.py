"""Schedules that follow another query's runs: which query that is, and which of its runs ended."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef, Q

from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Invalid, Problem
from queries.domain.states import HELD_PHASES, STOPPED_PHASES, RunOutcome
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.schedules.planned import ScheduleState

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
    """Return at most `most` ended runs, read at once: a run that ends meanwhile is seen later.

    An end counts as `any` once the query is not restarted: the newest run stands for those before.
    """
    ended = _ENDED.filter(query=state.upstream, pk__gt=state.upstream_run).order_by("pk")
    if schedule.after_end == "completed":
        rows = list(ended.values_list("pk", "ended_at", "outcome")[: most + 1])
        read = rows[:most]
        completed = [
            (pk, at) for pk, at, how in read if how == RunOutcome.COMPLETED and at is not None
        ]
        newest_run = read[-1][0] if read else state.upstream_run
        later = ended.filter(pk__gt=newest_run, outcome=RunOutcome.COMPLETED)
        return UpstreamEnds(completed, newest_run, more=len(rows) > most and later.exists())
    upstream, newest = state.upstream, ended.last()
    if newest is None or newest.ended_at is None or upstream is None:
        return UpstreamEnds([], state.upstream_run)
    restarts = upstream.phase not in STOPPED_PHASES | HELD_PHASES
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
