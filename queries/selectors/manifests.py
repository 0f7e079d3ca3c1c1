"""Read existing objects as manifests: in bulk, with their owners, to compare and to export.

Pools are keyed by name, so that adding one is a single change.

Secrets are written as references. A string that contains a plaintext secret is masked; applying the
masked string to the same object restores the original. A checkpoint at its default location is
omitted. The desired state is written only if the object's own file contains it, because the export
may replace that file. Without it, a file applied elsewhere does not start anything.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models import Q, Subquery

from headgate_ground.masking import mask
from queries.domain.alerts.forms import parse_rule
from queries.domain.definitions import parsing
from queries.domain.definitions.locations import canonical
from queries.domain.definitions.parsing import parse_application, parse_pool, parse_query
from queries.domain.definitions.spec import ApplicationSpec, PoolSpec
from queries.domain.errors import Conflict, HeadgateError, Invalid
from queries.domain.manifests.forms import API_VERSION, Kind, Manifest
from queries.domain.manifests.sets import Drift, differences, settle
from queries.domain.states import Desired, Phase
from queries.models.alerts import AlertRule
from queries.models.applications import Application, ApplicationRevision, SchedulerPool
from queries.models.definitions import Checkpoint, Managed, Query, QueryRevision
from queries.models.history import Transition
from queries.selectors import visible
from queries.selectors.rows import current_checkpoints, newest_revisions
from queries.selectors.supervision.applications import (
    newest_application_revisions,
    pool_form,
    pools_of,
)

State = dict[str, Any]


def of_manifest(manifest: Manifest, spec: Mapping[str, Any]) -> State:
    """Return the state that a manifest requests; `spec` is the manifest's own, unmasked."""
    if manifest.kind is Kind.ALERT_RULE:
        return _rule_state(spec)
    if manifest.kind is Kind.QUERY:
        return _state(manifest.labels, spec)
    return of_application(manifest.labels, spec, map(parsing.as_json, manifest.pools))


def of_application(
    labels: Mapping[str, str], spec: Mapping[str, Any], pools: Iterable[Mapping[str, Any]]
) -> State:
    """Return the state of an application."""
    named = {pool["name"]: {k: v for k, v in pool.items() if k != "name"} for pool in pools}
    return _state(labels, {**spec, "pools": named})


def with_desired(state: State, desired: str | None) -> State:
    """Add the desired state to a state, unless it is None because the file leaves it to pages."""
    return state if desired is None else {**state, "desired": str(desired)}


def unedited(state: State, *, completed: bool) -> State:
    """Return a state for the drift comparison: completing an object is not a user's edit."""
    if not completed or "desired" not in state:
        return state
    return with_desired(state, Desired.RUNNING)


def comparable(state: State, said: State) -> State:
    """Return a state; omit the desired state if `said`, the file's state, leaves it to pages."""
    return state if "desired" in said else {k: v for k, v in state.items() if k != "desired"}


def of_query(labels: Mapping[str, str], spec: Mapping[str, Any]) -> State:
    """Return the state of a query."""
    return _state(labels, spec)


def of_rule(rule: AlertRule) -> State:
    """Return an alert rule's state; prefetch the channels if there are many rules."""
    raw = {
        "name": rule.name,
        "enabled": rule.enabled,
        "position": rule.position,
        "selector": rule.selector,
        "channels": [one.name for one in rule.channels.all()],
        "quiet_hours": rule.quiet_hours or None,
        "escalate_after_minutes": rule.escalate_after_minutes,
        "escalate_to": [one.name for one in rule.escalate_to.all()],
        "remind_every_hours": rule.remind_every_hours,
        "thresholds": rule.thresholds,
    }
    return as_rule(raw)


def as_rule(raw: Mapping[str, Any]) -> State:
    """Return a rule's state in the REST form."""
    try:
        form = parse_rule(raw).model_dump(mode="json", by_alias=True)
    except Invalid:  # today's form can no longer read it
        form = dict(raw)
    return _rule_state({name: value for name, value in form.items() if name != "name"})


def _rule_state(spec: Mapping[str, Any]) -> State:
    """Return a rule's state, with sorted channels, because their order does not matter."""
    named = {name: sorted(spec[name]) for name in ("channels", "escalate_to")}
    return {"spec": {**spec, **named}}


def pools_json(pools: Iterable[SchedulerPool]) -> list[dict[str, Any]]:
    """Return the pools in `PoolSpec`'s JSON form."""
    return [pool_form(pool) for pool in pools]


def pools_of_state(state: State) -> dict[str, PoolSpec]:
    """Return the pools in an application's state, by name."""
    named = state["spec"]["pools"]
    return {name: PoolSpec(name=name, **held) for name, held in named.items()}


def normal_query(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored definition with today's fields and defaults."""
    try:
        return parsing.as_json(parsing.parse_query(spec))
    except Invalid:  # unreadable today; any manifest differs from it
        return dict(spec)


def normal_application(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return an application's stored definition with today's fields and defaults."""
    try:
        return parsing.as_json(parsing.parse_application(spec))
    except Invalid:
        return dict(spec)


def _state(labels: Mapping[str, str], spec: Mapping[str, Any]) -> State:
    return {"metadata": {"labels": dict(labels)}, "spec": dict(spec)}


@dataclass(frozen=True, slots=True)
class Owned:
    """An object with its owner."""

    managed: Managed
    drift: Drift | None  # None: unchanged since its file was applied


def owned(row: Application | Query | AlertRule) -> Owned | None:
    """Return an object with its owner; None if it has none."""
    managed = managed_of(row)
    if managed is None:
        return None
    edited = differences(managed.applied, comparable(_owned_state(row), managed.applied))
    way_out = settle(_kind(row), row.name, managed.source)
    return Owned(managed, Drift(edited, way_out) if edited else None)


def managed_of(row: Application | Query | AlertRule) -> Managed | None:
    """Return the row with an object's owner; None if it has none."""
    return Managed.objects.filter(**{_column(row): row}).first()


def _column(row: Application | Query | AlertRule) -> str:
    return "rule" if isinstance(row, AlertRule) else str(row._meta.model_name)


def _kind(row: Application | Query | AlertRule) -> Kind:
    if isinstance(row, AlertRule):
        return Kind.ALERT_RULE
    return Kind.QUERY if isinstance(row, Query) else Kind.APPLICATION


def _owned_state(row: Application | Query | AlertRule) -> State:
    if isinstance(row, AlertRule):
        return of_rule(row)
    if isinstance(row, Query):
        spec = newest_revisions([row.pk])[row.pk].spec
        state = of_query(row.labels, normal_query(spec))
        state = with_desired(state, row.desired)
        return unedited(state, completed=row.phase == Phase.COMPLETED)
    spec = newest_application_revisions([row.pk])[row.pk].spec
    pools = pools_json(pools_of([row.pk]).get(row.pk, []))
    state = of_application(row.labels, normal_application(spec), pools)
    script = getattr(row, "script", None)
    if script is None:
        return state
    state = with_desired(state, script.desired)
    return unedited(state, completed=script.phase == Phase.COMPLETED)


Key = tuple[Kind, str]
Moment = tuple[int, int]  # the ids of the newest Transition and Checkpoint


@dataclass(slots=True)
class ExistingRows:
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

    def application_state(self, row: Application) -> State:
        """Return the state of an application."""
        spec = normal_application(self.application_revisions[row.pk].spec)
        pools = pools_json(self.pools.get(row.pk, []))
        return of_application(row.labels, spec, pools)

    def query_state(self, row: Query) -> State:
        """Return the state of a query."""
        return of_query(row.labels, normal_query(self.query_revisions[row.pk].spec))

    def application_spec(self, row: Application) -> ApplicationSpec:
        """Return the newest definition of an application."""
        return ApplicationSpec.model_validate(self.application_revisions[row.pk].spec)


def look_up(manifests: Iterable[Manifest], *, owner: str | None = None) -> ExistingRows:
    """Return the existing objects named in manifests, and those of an owner.

    Without an owner, only the definitions of applications and queries are read.
    """
    # Read first: a later Transition shows changes made while we read.
    existing_rows = ExistingRows(as_of=None if owner is None else as_of_now())
    named: dict[Kind, set[str]] = {kind: set() for kind in Kind}
    for one in manifests:
        named[one.kind].add(one.name)
        if one.application:
            named[Kind.APPLICATION].add(one.application)
    owned = [] if owner is None else list(_managed(Q(owner=owner)))
    # Queries started by a script have a "/" in their name, which manifest names cannot have.
    queries = Query.objects.filter(archived_at=None, name__in=named[Kind.QUERY])
    existing_rows.queries = {row.name: row for row in queries.select_related("application__team")}
    for held in owned:
        if held.query is not None:
            existing_rows.queries.setdefault(held.query.name, held.query)
    applications = Application.objects.filter(archived_at=None).select_related("team", "script")
    existing_rows.applications = {
        row.name: row for row in applications.filter(name__in=named[Kind.APPLICATION])
    }
    for query in existing_rows.queries.values():
        existing_rows.applications.setdefault(query.application.name, query.application)
    for held in owned:
        if held.application is not None:
            existing_rows.applications.setdefault(held.application.name, held.application)
    _fill(existing_rows)
    if owner is None:
        return existing_rows
    checkpoints = Checkpoint.objects.filter(query__in=list(existing_rows.query_revisions)).order_by(
        "-pk"
    )
    for pk, location in checkpoints.values_list("query", "location"):
        existing_rows.locations.setdefault(pk, []).append(location)
    rules = AlertRule.objects.filter(
        Q(name__in=named[Kind.ALERT_RULE]) | Q(managed__owner=owner)
    ).prefetch_related("channels", "escalate_to")
    existing_rows.rules = {row.name: row for row in rules}
    mine = Q(query__in=[row.pk for row in existing_rows.queries.values()])
    mine |= Q(application__in=[row.pk for row in existing_rows.applications.values()])
    mine |= Q(rule__in=[row.pk for row in existing_rows.rules.values()])
    existing_rows.managed = {key_of(row): row for row in [*_managed(mine), *owned]}
    return existing_rows


def _fill(existing_rows: ExistingRows) -> None:
    ids = [row.pk for row in existing_rows.applications.values()]
    existing_rows.application_revisions = newest_application_revisions(ids)
    existing_rows.pools = pools_of(ids)
    queries = [row.pk for row in existing_rows.queries.values()]
    existing_rows.query_revisions = newest_revisions(queries)


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
    """Return the time as of which definitions are read from now on."""
    place = Subquery(Checkpoint.objects.order_by("-pk").values("pk")[:1])
    newest = Transition.objects.order_by("-pk").values_list("pk", place).first()
    if newest is None:  # a subquery needs a row, and the history may have been pruned
        newest = 0, Checkpoint.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    return newest


def changed_since(existing_rows: ExistingRows, *, creates: bool) -> bool:
    """Return whether one of these definitions has changed, or was deleted, since it was read.

    The other queries of their applications belong to them: they share its cores. A plan that
    creates objects also depends on all locations taken since, which may contain its own.
    """
    if existing_rows.as_of is None:
        return False
    applications = [row.pk for row in existing_rows.applications.values()]
    later = Transition.objects.filter(
        application__in=applications, pk__gt=existing_rows.as_of[0], subject="definition"
    )
    taken = Checkpoint.objects.filter(pk__gt=existing_rows.as_of[1] or 0)
    gone = Q(archived_at__isnull=False)
    queries = Query.objects.filter(gone, pk__in=[row.pk for row in existing_rows.queries.values()])
    hosts = Application.objects.filter(gone, pk__in=applications)
    rows: list[Any] = [queries, hosts, *([taken] if creates else [])]
    others = [each.order_by().values("pk") for each in rows]
    return later.order_by().values("pk").union(*others, all=True).exists()


_FOLDERS = {Kind.APPLICATION: "applications", Kind.QUERY: "queries", Kind.ALERT_RULE: "alert-rules"}

File = dict[str, Any]


def export(*, application: str = "", query: str = "", owner: str = "") -> list[File]:
    """Return {path, manifest} of existing objects, applications first; "" does not filter.

    The path is that of the object's file, or a proposed one. Alert rules do not belong to an
    application, so they are omitted if an application or a query is given.
    """
    owned = _paths(owner)
    applications = visible.applications().filter(archived_at=None)
    applications = applications.select_related("script", "managed")
    # A query started by a script is exported only with its script.
    queries = visible.queries().filter(archived_at=None, identity="")
    queries = queries.select_related("application", "managed")
    rules = AlertRule.objects.prefetch_related("channels", "escalate_to").order_by("name")
    if application:
        applications = applications.filter(name=application)
        queries = queries.filter(application__name=application)
    if query:
        queries = queries.filter(name=query)
        applications = applications.filter(queries__in=queries)
    if application or query:
        rules = rules.none()
    if owner:
        applications = applications.filter(managed__owner=owner)
        queries = queries.filter(managed__owner=owner)
        rules = rules.filter(managed__owner=owner)
    found = _applications(list(applications.order_by("name")))
    named = {one["metadata"]["name"] for one in found}
    found += _queries(list(queries.order_by("name")), named)
    for row in rules:
        with _whole(row):
            found.append(_manifest(Kind.ALERT_RULE, row.name, {}, _rule(row)))
    return [{"path": _path(one, owned), "manifest": one} for one in found]


def _paths(owner: str) -> dict[tuple[Kind, str], str]:
    rows = Managed.objects.select_related("query", "application", "rule")
    rows = rows.filter(owner=owner) if owner else rows
    return {key_of(row): row.path for row in rows if row.path}


def _path(manifest: Mapping[str, Any], known: Mapping[tuple[Kind, str], str]) -> str:
    kind, name = Kind(manifest["kind"]), manifest["metadata"]["name"]
    return known.get((kind, name)) or f"{_FOLDERS[kind]}/{name}.yaml"


def _applications(rows: list[Application]) -> list[dict[str, Any]]:
    """Return the applications' manifests; a query's own application only if it has other values.

    A query's own application that has only defaults is created again together with its query.
    """
    ids = [row.pk for row in rows]
    newest, pools = newest_application_revisions(ids), pools_of(ids)
    found = []
    for row in rows:
        with _whole(row):
            spec = _short_application(newest[row.pk].spec)
        held = [_short_pool(one) for one in pools_json(pools.get(row.pk, []))]
        if held:
            spec["pools"] = held
        if spec or row.labels or not row.own:
            made = _manifest(Kind.APPLICATION, row.name, row.labels, spec)
            if hasattr(row, "script") and _says_desired(row):
                made["desired"] = str(row.script.desired)
            found.append(made)
    return found


@contextmanager
def _whole(row: Application | Query | AlertRule) -> Iterator[None]:
    """Raise `Conflict` if an object's stored form cannot be read.

    A set without the object would delete it when applied with `prune`.
    """
    try:
        yield
    except HeadgateError:
        raise
    except Exception as error:
        what = f"{row._meta.verbose_name} {row.name}"
        raise Conflict(
            f"The {what} cannot be exported because its stored definition cannot be read.",
            way_out=f"Save the {what} again, or export the others by application.",
        ) from error


def _queries(rows: list[Query], applications: set[str]) -> list[dict[str, Any]]:
    ids = [row.pk for row in rows]
    newest, places = newest_revisions(ids), current_checkpoints(ids)
    usual = f"{canonical(str(settings.CHECKPOINTS_DIR))}/"
    found = []
    for row in rows:
        with _whole(row):
            spec = _short_query(newest[row.pk].spec)
        place = places.get(row.pk)
        if place and not place.by_default and not place.location.startswith(usual):
            spec["checkpoint"] = place.location
        name = row.application.name
        shown = "" if row.application.own and name not in applications else name
        made = _manifest(Kind.QUERY, row.name, row.labels, spec, application=shown)
        if _says_desired(row):
            made["desired"] = str(row.desired)
        found.append(made)
    return found


def _says_desired(row: Application | Query) -> bool:
    return "desired" in (row.managed.applied if hasattr(row, "managed") else {})


def _manifest(
    kind: Kind,
    name: str,
    labels: Mapping[str, str],
    spec: Mapping[str, Any],
    *,
    application: str = "",
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if application:
        metadata["application"] = application
    if labels:
        metadata["labels"] = dict(labels)
    return {
        "apiVersion": API_VERSION,
        "kind": str(kind),
        "metadata": metadata,
        "spec": mask(spec),
    }


def _short_query(spec: Mapping[str, Any]) -> dict[str, Any]:
    try:
        form = parse_query(spec)
    except Invalid:
        return dict(spec)
    short = form.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if "trigger" in short:
        short["trigger"] = {"kind": form.trigger.kind, **short["trigger"]}
    return {"kind": form.kind, **short}


def _short_application(spec: Mapping[str, Any]) -> dict[str, Any]:
    try:
        form = parse_application(spec)
    except Invalid:
        return dict(spec)
    return form.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _short_pool(pool: Mapping[str, Any]) -> dict[str, Any]:
    return parse_pool(pool).model_dump(mode="json", exclude_defaults=True)


def _rule(row: AlertRule) -> dict[str, Any]:
    spec = of_rule(row)["spec"]
    try:
        form = parse_rule({"name": row.name, **spec})
    except Invalid:
        return dict(spec)
    return form.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"name"})
