"""Incidents: the list with live updates, and a page with history and possible actions."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.alerts.explanations import RESTART_ENDS
from queries.domain.alerts.forms import IncidentKind, IncidentState, Severity
from queries.domain.errors import HeadgateError, Missing
from queries.domain.failures.categories import Category
from queries.models.alerts import Incident
from queries.models.history import Failure
from queries.roles import OPERATE, VIEW
from queries.selectors.alerts.incidents import (
    explain_incident,
    incident_counts,
    incidents,
    story,
    thread_dump,
)
from queries.selectors.alerts.incidents import incident as incidents_incident
from queries.selectors.failures.what_changed import failure_with_changes
from queries.selectors.kafka.lag import lag_of
from queries.selectors.lineage import NAMED, Below, Downstream, incomplete
from queries.services.alerts import incidents as service
from queries.views.console.errors import refused
from queries.views.console.fragments import (
    ARRIVALS,
    ROWS,
    Changes,
    Drawn,
    filters,
    filters_from_key,
    fragments,
    keys,
    page_of,
    parts,
    topic,
    whole,
)
from queries.views.console.shell import actor_and_now, needs
from queries.views.next_steps import OfferedAction, offers

#: The list's tabs: name in the URL -> (label, filter).
TABS: dict[str, tuple[str, dict[str, Any]]] = {
    "open": ("Open", {"state": IncidentState.OPEN}),
    "closed": ("Closed", {"state": IncidentState.CLOSED}),
    "all": ("All", {}),
}
_FILTERS = ("query", "q")
_SEVERITIES = ("", *Severity)


@needs(VIEW)
def incident_list(request: HttpRequest) -> HttpResponseBase:
    """List incidents, newest first; all filters are in the URL."""
    asked = _asked(request.GET)
    page = page_of(_rows(asked), by="opened_at", cursor=request.GET.get("after", ""))
    counts = incident_counts()
    context = {
        "page": page,
        "tabs": [(name, words, counts.get(name, 0)) for name, (words, _) in TABS.items()],
        "chosen": asked["state"],
        "filters": asked,
        "severities": list(Severity),
        "filtered": any(asked[name] for name in (*_FILTERS, "severity")),
        "topic": topic("incidents", asked),
        "now": timezone.now(),
    }
    return render(request, "alerts/list.html", context)


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    return filters(given, _FILTERS, state=TABS, severity=_SEVERITIES)


def _rows(asked: Mapping[str, str]) -> QuerySet[Incident]:
    rows = incidents(search=asked["q"], query=asked["query"], severity=asked["severity"])
    return rows.filter(**TABS[asked["state"]][1])


@fragments("incidents", hears=("incident",))
def draw_incidents(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the rows of changed incidents, and new incidents."""
    asked = _asked(filters_from_key(key))
    if changes is None:
        there = _rows(asked).order_by("-opened_at", "-pk")[:ROWS].values_list("pk", flat=True)
        rows = incidents().filter(pk__in=list(there))
    else:
        rows = incidents().filter(pk__in=keys(changes, "incident"))
    for incident in rows:
        context = {"incident": incident, "now": now}
        yield f"incident-row-{incident.pk}", render_to_string("alerts/_row.html", context)
    newest = _rows(asked).order_by("-opened_at", "-pk")[:ARRIVALS]
    context = {"rows": newest, "now": now}
    yield "incidents-arrived", render_to_string("alerts/_arrived.html", context)


urlpatterns = [path("alerts/", incident_list, name="alerts")]


#: Choices for a duration: value in the form -> (label, hours).
FOR_HOURS = {
    "1": ("1 hour", 1),
    "4": ("4 hours", 4),
    "24": ("1 day", 24),
    "72": ("3 days", 72),
}
#: Kinds of a loss that has not failed the query.
_RISKS = (IncidentKind.AT_RISK, IncidentKind.AT_RISK_STOPPED)
_MOVING = ("status", "lead", "story", "affected")


@needs(VIEW)
def incident_page(request: HttpRequest, uuid: UUID) -> HttpResponseBase:
    """Show one incident."""
    row = incidents_incident(uuid)
    explained = explain_incident(row)
    failure = explained.failure
    below = Downstream().of(row) if row.state == IncidentState.OPEN else Below()
    context = {
        **_moving(row, timezone.now()),
        "failure": failure,
        "explained": explained,
        "offers": _offers(request, row, failure),
        "dump": thread_dump(row),
        "restart_ends": row.kind in RESTART_ENDS,
        "stuck": row.kind == IncidentKind.STUCK_STOP,
        "lost": _lost_offsets(row, failure),
        "downstream": below.names,
        "downstream_shown": below.names[:NAMED],
        "more_downstream": max(0, len(below.names) - NAMED),
        "incomplete": incomplete(below.unsure),
        "for_hours": [(value, words) for value, (words, _) in FOR_HOURS.items()],
        "kind": IncidentKind(row.kind),
    }
    return render(request, "alerts/incident.html", context)


def _offers(request: HttpRequest, row: Incident, failure: Failure | None) -> list[OfferedAction]:
    """Return the possible actions for the failure behind an open incident."""
    if failure is None or row.state != IncidentState.OPEN:
        return []
    return offers(request, failure, failure_with_changes(failure.pk).good)


def _lost_offsets(row: Incident, failure: Failure | None) -> bool:
    """Return whether the query can continue without the data that its source has lost."""
    query = row.query
    if query is None or query.archived_at or query.discovered or row.state != IncidentState.OPEN:
        return False
    lost = row.kind in _RISKS or (failure and failure.category == Category.SOURCE_LOST)
    return bool(lost) and lag_of(query, now=timezone.now()).certain


def _moving(row: Incident, now: datetime) -> dict[str, Any]:
    more = row.affected_count - len(row.affected)
    return {"incident": row, "story": story(row), "more": more, "now": now}


@fragments("incident", hears=("incident",), own_key_only=("incident",))
def draw_incident(key: str, heard: Changes, now: datetime) -> Drawn:
    """Draw the parts of an incident's page that change."""
    row = incidents().filter(pk=whole(key) or 0).first()
    if row is not None:
        yield from parts(_MOVING, "incident", "alerts", key, _moving(row, now))


def _acknowledge(row: Incident, request: HttpRequest) -> str:
    service.acknowledge(row, until=_until(request), **actor_and_now(request))
    return "Acknowledged: nobody else is notified."


def _snooze(row: Incident, request: HttpRequest) -> str:
    until = _until(request) or timezone.now() + timedelta(hours=1)
    service.snooze(row, until=until, **actor_and_now(request))
    return f"Snoozed until {until:%Y-%m-%d %H:%M} UTC."


def _assign(row: Incident, request: HttpRequest) -> str:
    to = request.POST.get("to", "").strip()[:150]
    service.assign(row, to=to, **actor_and_now(request))
    return f"Assigned to {to}." if to else "Assigned to nobody."


def _note(row: Incident, request: HttpRequest) -> str:
    service.note(row, text=request.POST.get("text", ""), **actor_and_now(request))
    return "Noted."


def _close(row: Incident, request: HttpRequest) -> str:
    service.close(row, **actor_and_now(request))
    return "Closed. The incident reopens if the problem clears and comes back."


_ACTS: dict[str, Callable[[Incident, HttpRequest], str]] = {
    "acknowledge": _acknowledge,
    "snooze": _snooze,
    "assign": _assign,
    "note": _note,
    "close": _close,
}


@needs(OPERATE, "POST")
def act(request: HttpRequest, uuid: UUID, verb: str) -> HttpResponse:
    """Perform an action on an incident, and go back to its page."""
    if verb not in _ACTS:
        raise Missing(f"Unknown action {verb}.")
    row = incidents_incident(uuid)
    try:
        messages.success(request, _ACTS[verb](row, request))
    except HeadgateError as error:
        return refused(request, error, reverse("incident", args=[row.uuid]))
    return redirect("incident", row.uuid)


def _until(request: HttpRequest) -> datetime | None:
    chosen = FOR_HOURS.get(request.POST.get("hours", ""))
    return timezone.now() + timedelta(hours=chosen[1]) if chosen else None


urlpatterns += [
    path("alerts/<uuid:uuid>/", incident_page, name="incident"),
    path("alerts/<uuid:uuid>/<slug:verb>/", act, name="incident-act"),
]
