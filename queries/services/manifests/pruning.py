"""Plan the pruning of a set: find its owner's objects that are no longer in the set."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db.models import Q

from queries.domain.errors import Problem
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.plans import ObjectPlan, Outcome
from queries.domain.manifests.sets import ApplySet
from queries.domain.states import (
    OPEN_DRIVER_STATES,
    STOPPED_PHASES,
    Desired,
    RunOutcome,
)
from queries.models.alerts import AlertRule
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.manifests.managed import Managed
from queries.selectors.manifests.present import Present, key_of


@dataclass(slots=True)
class Leaving:
    """An object that the apply deletes, or the operation that follows it."""

    kind: Kind
    name: str
    managed: Managed
    later: bool = False  # it is running: stop first, then delete
    problems: list[Problem] = field(default_factory=list)
    done: bool = False

    @property
    def query(self) -> Query | None:
        """Return the query; None for other objects."""
        return self.managed.query

    @property
    def rule(self) -> AlertRule | None:
        """Return the alert rule; None for other objects."""
        return self.managed.rule

    @property
    def application(self) -> Application | None:
        """Return the application that the object is, or belongs to; None for an alert rule."""
        return self.query.application if self.query is not None else self.managed.application

    def plan(self) -> ObjectPlan:
        """Return the object's part of the response."""
        outcome = Outcome.PRUNED if self.done else Outcome.TO_BE_PRUNED
        return ObjectPlan(
            kind=self.kind,
            name=self.name,
            path="",
            outcome=Outcome.REFUSED if self.problems else outcome,
            problems=tuple(self.problems),
        )


def leaving(asked: ApplySet, present: Present, kept: set[tuple[str, str]]) -> list[Leaving]:
    """Return the pruned objects, queries first, with problems for those that cannot be pruned."""
    found = [
        Leaving(Kind(key[0]), key[1], row)
        for row in present.managed.values()
        if row.owner == asked.owner and (key := key_of(row)) not in kept
    ]
    found.sort(key=lambda one: (one.kind is Kind.APPLICATION, one.kind, one.name))
    queries = [one for one in found if one.query is not None]
    _look_at_runs(queries, may_stop=asked.prune_running)
    applications = [one for one in found if one.kind is Kind.APPLICATION]
    if applications:
        _look_into_applications(applications, queries, may_stop=asked.prune_running)
    return found


def _look_at_runs(queries: list[Leaving], *, may_stop: bool) -> None:
    """Find queries that are running; record a problem for them unless the request may stop them."""
    rows = {one.query.pk: one for one in queries if one.query is not None}
    open_runs = Run.objects.filter(query__in=rows, outcome=RunOutcome.OPEN)
    running = set(open_runs.order_by().values_list("query", flat=True))
    for pk, one in rows.items():
        query = one.query
        assert query is not None
        stopped = query.desired == Desired.STOPPED and query.phase in STOPPED_PHASES
        if stopped and pk not in running:
            continue
        one.later = True
        if not may_stop:
            message = f"would be pruned, but it is {query.phase}."
            way_out = "Stop it first, or send prune_running to have it stopped and deleted."
            one.problems.append(Problem("metadata.name", one.name, message, way_out))


def _look_into_applications(
    applications: list[Leaving], queries: list[Leaving], *, may_stop: bool
) -> None:
    """Find applications that cannot be pruned because queries remain, or only after a stop."""
    rows = {one.application.pk: one for one in applications if one.application is not None}
    going = {one.query.pk: one for one in queries if one.query is not None}
    _look_at_scripts(rows, may_stop=may_stop)
    living = Query.objects.filter(application__in=rows, archived_at=None, identity="")
    living = living.order_by("name")  # those started by a script are deleted with it
    for pk, name, application in living.values_list("pk", "name", "application"):
        one = rows[application]
        if pk not in going:
            message = f"would be pruned, but query {name} is in it."
            way_out = f"Delete query {name} first, or keep the application in the set."
            one.problems.append(Problem("metadata.name", one.name, message, way_out))
        elif going[pk].later:
            one.later = True
    drivers = Driver.objects.filter(application__in=rows, state__in=sorted(OPEN_DRIVER_STATES))
    for application in drivers.order_by().values_list("application", flat=True).distinct():
        rows[application].later = True


def _look_at_scripts(rows: Mapping[int, Leaving], *, may_stop: bool) -> None:
    """Find scripts that have not ended; record a problem unless the request may stop them."""
    ended = Q(desired=Desired.STOPPED, phase__in=sorted(STOPPED_PHASES))
    for script in Script.objects.filter(application__in=rows).exclude(ended):
        one = rows[script.application_id]
        one.later = True
        if not may_stop:
            message = f"would be pruned, but its script is {script.phase}."
            way_out = "Stop it first, or send prune_running to have it stopped and deleted."
            one.problems.append(Problem("metadata.name", one.name, message, way_out))
