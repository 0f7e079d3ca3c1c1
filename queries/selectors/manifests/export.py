"""Export existing objects as the manifests that would create them, without default values.

Secrets are written as references. Text that contains a plaintext secret is masked; applying the
masked text to the same object restores the original text. A checkpoint at its default location is
omitted. The desired state is written only if the object's own file contains it, because the export
may replace that file. Without it, a file applied elsewhere does not start anything.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from headgate_ground.masking import mask
from queries.domain.alerts.forms import parse_rule
from queries.domain.definitions.locations import canonical
from queries.domain.definitions.parsing import parse_application, parse_pool, parse_query
from queries.domain.errors import Conflict, HeadgateError, Invalid
from queries.domain.manifests.forms import API_VERSION, Kind
from queries.models.alerts import AlertRule
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.manifests.managed import Managed
from queries.selectors import visible
from queries.selectors.manifests import states
from queries.selectors.manifests.present import key_of
from queries.selectors.newest import current_checkpoints, newest_revisions
from queries.selectors.supervision.drift import newest_application_revisions, pools_of

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
    """Return applications' manifests; a query's own application only if it has other values.

    A query's own application that has only defaults is created again together with its query.
    """
    ids = [row.pk for row in rows]
    newest, pools = newest_application_revisions(ids), pools_of(ids)
    found = []
    for row in rows:
        with _whole(row):
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
    spec = states.of_rule(row)["spec"]
    try:
        form = parse_rule({"name": row.name, **spec})
    except Invalid:
        return dict(spec)
    return form.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"name"})
