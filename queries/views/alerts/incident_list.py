"""The list of incidents, with live updates."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone

from queries.domain.alerts.kinds import IncidentState, Severity
from queries.models.alerts import Incident
from queries.roles import VIEW
from queries.selectors.alerts.incidents import incident_counts, incidents
from queries.views.console.fragments import Changes, Drawn, fragments, keys
from queries.views.console.guard import needs
from queries.views.console.paging import ARRIVALS, ROWS, filters, filters_from_key, page_of, topic

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
