"""Record an object's owner and its file's content, and plan the removal of objects not in files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from controlplane.nudge import changed
from queries.domain.access import Act
from queries.domain.errors import Missing, Problem
from queries.domain.manifests.forms import Kind
from queries.domain.manifests.sets import ApplySet, ObjectPlan, Outcome
from queries.domain.states import OPEN_DRIVER_STATES, STOPPED_PHASES, Desired, RunOutcome
from queries.models.alerts import AlertRule
from queries.models.applications import Application, Script
from queries.models.definitions import Managed, Query
from queries.models.drivers import Driver, Run
from queries.selectors.manifests import ExistingRows, key_of
from queries.services.access.audit import record_act
from queries.services.changes import Prepared
from queries.services.definitions.items import SetItem

#: The column for each kind of object.
_COLUMNS: dict[str, str] = {
    Kind.APPLICATION: "application",
    Kind.QUERY: "query",
    Kind.ALERT_RULE: "rule",
}


class Taking:
    """The rows that record that objects match their owner's files: built first, then written.

    For unchanged objects, only the source is written. A row may belong to an object that does not
    have an id until the object itself is written.
    """

    def __init__(self, items: list[SetItem], asked: ApplySet, *, actor: str, now: datetime) -> None:
        self._source = {"repository": asked.source.repository, "commit": asked.source.commit}
        self._same, self._old, fresh = [], [], []
        self._later: list[tuple[SetItem, Managed]] = []  # built only when they are written
        for item in items:
            known = item.managed
            if known is not None and (known.applied, known.path) == (item.after, item.path):
                self._same.append(known.pk)
                continue
            if known is not None:
                self._old.append(known.pk)
            row = Managed(
                owner=asked.owner,
                path=item.path,
                applied=item.after,
                applied_at=now,
                applied_by=actor,
                **self._source,
            )
            if item.row is None:
                self._later.append((item, row))
                continue
            setattr(row, _COLUMNS[item.kind], item.row)
            fresh.append(row)
        self._fresh = Prepared(fresh)

    def write(self) -> None:
        """Write the rows, in the caller's transaction and after those of their objects."""
        if self._old:
            Managed.objects.filter(pk__in=self._old).delete()
        self._fresh.insert()
        for item, row in self._later:
            setattr(row, _COLUMNS[item.kind], item.row)
            row.save()
        if self._same:
            rows = Managed.objects.filter(pk__in=self._same)
            rows.exclude(**self._source).update(**self._source)


def release(row: Managed | None, *, actor: str, now: datetime) -> None:
    """Remove an object's owner: the owner's files no longer control it, and no apply prunes it.

    Raises `Missing` if the object has no owner.
    """
    if row is None:
        raise Missing("It has no owner.", way_out="There is nothing to release.")
    kind, name = key_of(row)
    with transaction.atomic():
        if not Managed.objects.filter(pk=row.pk).delete()[0]:
            raise Missing("It has no owner.", way_out="There is nothing to release.")
        about = {"of": kind.lower(), "owner": row.owner, "path": row.path}
        record_act(Act.RELEASED, actor=actor, now=now, subject=name, **about)
        if row.query_id is not None:
            changed(f"query:{row.query_id}")
        elif row.application_id is not None:
            changed(f"application:{row.application_id}")


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


def leaving(
    asked: ApplySet, existing_rows: ExistingRows, kept: set[tuple[str, str]]
) -> list[Leaving]:
    """Return the pruned objects, queries first, with problems for those that cannot be pruned."""
    found = [
        Leaving(Kind(key[0]), key[1], row)
        for row in existing_rows.managed.values()
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
