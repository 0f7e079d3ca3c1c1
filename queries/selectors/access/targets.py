"""Determine the applications that a URL is about, from the URL itself.

Pages and REST share one table: every URL below `queries/<query:name>/` is about that query's
application. The permission is checked before the view runs, so a new view does not need its own
check. A view that changes something but is not in this table is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Q
from django.urls import ResolverMatch

from queries.models.access.teams import Team
from queries.models.alerts import Incident, Maintenance
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.deploys.receipts import Deploy
from queries.models.failures import FailureGroup
from queries.models.history import Operation

#: What an address is about: some applications (empty: nobody's in particular); None means all.
Concerned = list[Application] | None

_API = "api/v1/"


def _of(rows: Iterable[Any]) -> Concerned:
    """Return the applications of these rows; rows without an application are skipped."""
    return [row.application for row in rows if row.application is not None]


def _named(name: str) -> Concerned:
    return list(Application.objects.select_related("team").filter(name=name, archived_at=None))


def _of_query(name: str) -> Concerned:
    rows = Query.objects.select_related("application__team")
    return _of(rows.filter(name=name, archived_at=None))


def _of_incident(uuid: Any) -> Concerned:
    """Return an incident's application; none if it is about a host or several applications."""
    return _of(Incident.objects.select_related("application__team").filter(uuid=uuid))


def _of_operation(uuid: Any) -> Concerned:
    row = Operation.objects.select_related("application__team").filter(uuid=uuid).first()
    if row is None:
        return []
    return [row.application] if row.application else _many(row)


def _many(operation: Operation) -> Concerned:
    """Return the applications that a bulk operation is about, with those of its queries."""
    lines = operation.result.get("queries", ())
    queries = [line["id"] for line in lines if not line.get("of")]
    applications = [line["id"] for line in lines if line.get("of")]
    rows = Application.objects.select_related("team")
    return list(rows.filter(Q(queries__in=queries) | Q(pk__in=applications)).distinct()) or None


def _of_group(group_id: int) -> Concerned:
    return _of(FailureGroup.objects.select_related("application__team").filter(pk=group_id))


def _of_failure(failure_id: int) -> Concerned:
    rows = FailureGroup.objects.select_related("application__team")
    return _of(rows.filter(failures=failure_id))


def _of_window(window_id: int) -> Concerned:
    window = Maintenance.objects.filter(pk=window_id).first()
    return [] if window is None else of_selector(window.selector)


def of_selector(selector: Any) -> Concerned:
    """Return the applications that a maintenance window silences; None if that may be any."""
    return of_selectors([selector])[0]


def of_selectors(selectors: Sequence[Any]) -> list[Concerned]:
    """Return the applications that each window silences, in one database query."""
    named = [_applications_in(selector) for selector in selectors]
    rows = Application.objects.select_related("team").filter(archived_at=None)
    living = {row.name: row for row in rows.filter(name__in=set().union(*named))}
    return [
        [living[name] for name in sorted(names)] if names and names <= living.keys() else None
        for names in named
    ]


def _applications_in(selector: Any) -> set[str]:
    """Return the names in a window's selector; none if it is unreadable, as it may mean any."""
    names = selector.get("applications") if isinstance(selector, Mapping) else None
    return {str(one) for one in names} if isinstance(names, list) else set()


def _of_deploy(uuid: Any) -> Concerned:
    """Return every application that a deploy affects, including those it has yet to create.

    Returns None if the deploy does not affect any, for example if it has only alert rules; users
    who can act on all applications may cancel such a deploy.
    """
    deploy = Deploy.objects.filter(uuid=uuid).first()
    if deploy is None:
        return []
    ids = {one["application"] for one in deploy.touches} - {None}
    ids |= set(deploy.changes.exclude(application=None).values_list("application", flat=True))
    rows = Application.objects.select_related("team")
    found = {row.name: row for row in rows.filter(pk__in=ids)}
    new = {one["name"]: one["team"] for one in deploy.touches if one["application"] is None}
    teams = Team.objects.in_bulk(new.values())
    for name, team in new.items():
        found.setdefault(name, Application(name=name, team=teams.get(team)))
    return list(found.values()) or None


#: Prefix of an address, without the API's own -> the applications that its key leads to.
_TABLE: dict[str, Callable[..., Concerned]] = {
    "queries/<query:name>/": _of_query,
    "applications/<str:name>/": _named,
    "operations/<uuid:uuid>/": _of_operation,
    "deploys/<uuid:uuid>/": _of_deploy,
    "alerts/<uuid:uuid>/": _of_incident,
    "incidents/<uuid:uuid>/": _of_incident,
    "failures/groups/<int:group_id>/": _of_group,
    "failures/<int:failure_id>/": _of_failure,
    "failure-groups/<int:group_id>/": _of_group,
    "alerts/maintenance/<int:window_id>/": _of_window,
    "maintenance/<int:window_id>/": _of_window,
}
#: Addresses whose form names their subject: their views check it with `insist`.
_SAID_BY_THE_FORM = {
    *("new/query/", "new/application/", "bulk/queries/", "alerts/maintenance/new/"),
    *("queries/", "applications/", "maintenance/", "apply/", "deploys/"),
    *("queries:start/", "queries:stop/", "queries:restart/"),
    "code/",  # an upload belongs to nobody until a definition names it
}


def concerned(match: ResolverMatch) -> Concerned:
    """Return the applications that a URL is about; empty if its row does not exist.

    Raises `LookupError` for a URL that is not in the table.
    """
    route = match.route.removeprefix(_API)
    if route in _SAID_BY_THE_FORM:
        return []
    for beginning, look in _TABLE.items():
        if route.startswith(beginning):
            key = beginning.split(":")[1].split(">")[0]
            return look(match.kwargs[key])
    raise LookupError(f"{match.route} acts, and `selectors.access.targets` does not know on what")
