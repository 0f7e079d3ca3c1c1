"""Objects that are there, as the manifests that would make them: what has its default is left out.

Secrets are references and are written as such; a text that holds one is masked, and an apply to the
same object puts it back. A checkpoint in its usual place is left out. Whether a query or a script
is to run is written where its own file says it, as an edited form takes that file's place; else a
file that is applied elsewhere starts nothing.
"""

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from queries.domain.alerts.forms import parse_rule
from queries.domain.definitions.locations import canonical
from queries.domain.definitions.parsing import parse_application, parse_pool, parse_query
from queries.domain.errors import Invalid
from queries.domain.manifests.forms import API_VERSION, Kind
from queries.domain.masking import mask
from queries.models.alerts import AlertRule
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.manifests.managed import Managed
from queries.selectors.manifests import states
from queries.selectors.manifests.present import key_of
from queries.selectors.newest import checkpoint_locations, newest_revisions
from queries.selectors.supervision.drift import newest_application_revisions, pools_of

_FOLDERS = {Kind.APPLICATION: "applications", Kind.QUERY: "queries", Kind.ALERT_RULE: "alert-rules"}

File = dict[str, Any]


def export(*, application: str = "", query: str = "", owner: str = "") -> list[File]:
    """Return {path, manifest} of living objects, applications first; what is "" narrows nothing.

    A path is the one that the object's file has, else one is proposed. Alert rules belong to no
    application: they are left out where one is named, or a query.
    """
    owned = _paths(owner)
    applications = Application.objects.filter(archived_at=None)
    applications = applications.select_related("script", "managed")
    # A query that a script starts is exported with its script alone.
    queries = Query.objects.filter(archived_at=None, identity="")
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
    found += [_manifest(Kind.ALERT_RULE, row.name, {}, _rule(row)) for row in rules]
    return [{"path": _path(one, owned), "manifest": one} for one in found]


def _paths(owner: str) -> dict[tuple[Kind, str], str]:
    rows = Managed.objects.select_related("query", "application", "rule")
    rows = rows.filter(owner=owner) if owner else rows
    return {key_of(row): row.path for row in rows if row.path}


def _path(manifest: Mapping[str, Any], known: Mapping[tuple[Kind, str], str]) -> str:
    kind, name = Kind(manifest["kind"]), manifest["metadata"]["name"]
    return known.get((kind, name)) or f"{_FOLDERS[kind]}/{name}.yaml"


def _applications(rows: list[Application]) -> list[dict[str, Any]]:
    """Return the manifests of applications; one that a query has for its own only where it says so.

    With its defaults it is made again with its query.
    """
    ids = [row.pk for row in rows]
    newest, pools = newest_application_revisions(ids), pools_of(ids)
    found = []
    for row in rows:
        spec = _short_application(newest[row.pk].spec)
        held = [_short_pool(one) for one in states.pools_json(pools.get(row.pk, []))]
        if held:
            spec["pools"] = held
        if spec or row.labels or not row.own:
            made = _manifest(Kind.APPLICATION, row.name, row.labels, spec)
            if hasattr(row, "script") and _says_desired(row):
                made["desired"] = str(row.script.desired)
            found.append(made)
    return found


def _queries(rows: list[Query], applications: set[str]) -> list[dict[str, Any]]:
    ids = [row.pk for row in rows]
    newest, places = newest_revisions(ids), checkpoint_locations(ids)
    usual = f"{canonical(str(settings.CHECKPOINTS_DIR))}/"
    found = []
    for row in rows:
        spec = _short_query(newest[row.pk].spec)
        place = places.get(row.pk, "")
        if place and not place.startswith(usual):
            spec["checkpoint"] = place
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
    spec = states.of_rule(row)["spec"]
    try:
        form = parse_rule({"name": row.name, **spec})
    except Invalid:
        return dict(spec)
    return form.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"name"})
