"""Read the existing objects that a set of manifests names, in bulk, whatever its size."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, Subquery

from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.manifests.forms import Kind, Manifest
from queries.models.alerts import AlertRule
from queries.models.applications import Application, ApplicationRevision, SchedulerPool
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.history import Transition
from queries.models.manifests.managed import Managed
from queries.selectors.manifests import states
from queries.selectors.newest import newest_revisions
from queries.selectors.supervision.drift import newest_application_revisions, pools_of

Key = tuple[Kind, str]
Moment = tuple[int, int]  # the ids of the newest Transition and Checkpoint


@dataclass(slots=True)
class Present:
    """Existing rows by name, and their related rows by id."""

    as_of: Moment | None = None  # later rows show what has changed since; None: do not look
    applications: dict[str, Application] = field(default_factory=dict)
    application_revisions: dict[int, ApplicationRevision] = field(default_factory=dict)
    pools: dict[int, list[SchedulerPool]] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)
    query_revisions: dict[int, QueryRevision] = field(default_factory=dict)
    #: Every location a query has had: a rewind changes it, and the file may name the first.
    locations: dict[int, list[str]] = field(default_factory=dict)
    rules: dict[str, AlertRule] = field(default_factory=dict)
    managed: dict[Key, Managed] = field(default_factory=dict)  # of these, and all of the owner's

    def application_state(self, row: Application) -> states.State:
        """Return the state of an application."""
        spec = states.normal_application(self.application_revisions[row.pk].spec)
        pools = states.pools_json(self.pools.get(row.pk, []))
        return states.of_application(row.labels, spec, pools)

    def query_state(self, row: Query) -> states.State:
        """Return the state of a query."""
        return states.of_query(row.labels, states.normal_query(self.query_revisions[row.pk].spec))

    def application_spec(self, row: Application) -> ApplicationSpec:
        """Return the newest definition of an application."""
        return ApplicationSpec.model_validate(self.application_revisions[row.pk].spec)


def look_up(manifests: Iterable[Manifest], *, owner: str | None = None) -> Present:
    """Return the existing objects that manifests name, and those of an owner.

    Without an owner, only what defines applications and queries is read.
    """
    # Read first: a later Transition shows changes made while we read.
    found = Present(as_of=None if owner is None else as_of_now())
    named: dict[Kind, set[str]] = {kind: set() for kind in Kind}
    for one in manifests:
        named[one.kind].add(one.name)
        if one.application:
            named[Kind.APPLICATION].add(one.application)
    owned = [] if owner is None else list(_managed(Q(owner=owner)))
    # Queries started by a script have a "/" in their name, which manifest names cannot have.
    queries = Query.objects.filter(archived_at=None, name__in=named[Kind.QUERY])
    found.queries = {row.name: row for row in queries.select_related("application__team")}
    for held in owned:
        if held.query is not None:
            found.queries.setdefault(held.query.name, held.query)
    applications = Application.objects.filter(archived_at=None).select_related("team", "script")
    found.applications = {
        row.name: row for row in applications.filter(name__in=named[Kind.APPLICATION])
    }
    for query in found.queries.values():
        found.applications.setdefault(query.application.name, query.application)
    for held in owned:
        if held.application is not None:
            found.applications.setdefault(held.application.name, held.application)
    _fill(found)
    if owner is None:
        return found
    used = Checkpoint.objects.filter(query__in=list(found.query_revisions)).order_by("-pk")
    for pk, location in used.values_list("query", "location"):
        found.locations.setdefault(pk, []).append(location)
    rules = AlertRule.objects.filter(
        Q(name__in=named[Kind.ALERT_RULE]) | Q(managed__owner=owner)
    ).prefetch_related("channels", "escalate_to")
    found.rules = {row.name: row for row in rules}
    mine = Q(query__in=[row.pk for row in found.queries.values()])
    mine |= Q(application__in=[row.pk for row in found.applications.values()])
    mine |= Q(rule__in=[row.pk for row in found.rules.values()])
    found.managed = {key_of(row): row for row in [*_managed(mine), *owned]}
    return found


def _fill(found: Present) -> None:
    ids = [row.pk for row in found.applications.values()]
    found.application_revisions = newest_application_revisions(ids)
    found.pools = pools_of(ids)
    queries = [row.pk for row in found.queries.values()]
    found.query_revisions = newest_revisions(queries)


def key_of(row: Managed) -> Key:
    """Return the kind and the name of a managed object."""
    if row.query is not None:
        return Kind.QUERY, row.query.name
    if row.application is not None:
        return Kind.APPLICATION, row.application.name
    assert row.rule is not None, "a constraint of the table"
    return Kind.ALERT_RULE, row.rule.name


def _managed(which: Q) -> Iterable[Managed]:
    rows = Managed.objects.filter(
        which,
        Q(query__isnull=True) | Q(query__archived_at=None),
        Q(application__isnull=True) | Q(application__archived_at=None),
    )
    related: Any = ("query__application__team", "application__team", "application__script", "rule")
    return rows.select_related(*related)


def as_of_now() -> Moment:
    """Return the moment as of which definitions are read from here on."""
    place = Subquery(Checkpoint.objects.order_by("-pk").values("pk")[:1])
    newest = Transition.objects.order_by("-pk").values_list("pk", place).first()
    return newest or (0, 0)


def changed_since(found: Present, *, creates: bool) -> bool:
    """Return whether one of these definitions has changed, or was deleted, since it was read.

    The other queries of their applications belong to them: they share its cores. A plan that
    creates objects also depends on all locations taken since, which may contain its own.
    """
    if found.as_of is None:
        return False
    applications = [row.pk for row in found.applications.values()]
    later = Transition.objects.filter(
        application__in=applications, pk__gt=found.as_of[0], subject="definition"
    )
    taken = Checkpoint.objects.filter(pk__gt=found.as_of[1] or 0)
    gone = Q(archived_at__isnull=False)
    queries = Query.objects.filter(gone, pk__in=[row.pk for row in found.queries.values()])
    hosts = Application.objects.filter(gone, pk__in=applications)
    rows: list[Any] = [queries, hosts, *([taken] if creates else [])]
    others = [each.order_by().values("pk") for each in rows]
    return later.order_by().values("pk").union(*others, all=True).exists()
