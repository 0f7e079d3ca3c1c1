"""The audit log: actions by users and with tokens, state changes, operation outcomes; export."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone

from queries.domain.access import ACT_WORDS
from queries.roles import ADMINISTER, VIEW
from queries.selectors.access import FILTERS as ACCOUNTS_FILTERS
from queries.selectors.access import entries
from queries.selectors.supervision.history import audit, operations, transitions
from queries.services.access.audit import export_audit_log
from queries.views.console.fragments import (
    ARRIVALS,
    ROWS,
    Changes,
    Drawn,
    FilterRequest,
    filters,
    filters_from_key,
    fragments,
    keys,
    page_of,
    split,
    topic,
)
from queries.views.console.shell import actor_and_now, needs

#: The other tabs of the audit log.
TABS = {"changes": "Changes", "operations": "Operations"}


@needs(ADMINISTER)
def activity(request: HttpRequest) -> HttpResponseBase:
    """List entries, newest first; all filters are in the URL."""
    asked = filters(request.GET, ACCOUNTS_FILTERS)
    asked = {name: value.replace("\x00", "") for name, value in asked.items()}
    context = {
        "page": page_of(entries(asked), by="at", cursor=request.GET.get("after", "")),
        "tab": "activity",
        "tabs": TABS.items(),
        "acts": ACT_WORDS.items(),
        "filters": asked,
        "filtered": any(asked.values()),
        "now": timezone.now(),
    }
    return render(request, "access/audit/activity.html", context)


@needs(ADMINISTER)
def export(request: HttpRequest) -> HttpResponseBase:
    """Return the complete log as a file, with one line of JSON per entry."""
    answer = export_audit_log(request, **actor_and_now(request))
    answer["Content-Disposition"] = 'attachment; filename="headgate-audit.jsonl"'
    return answer


urlpatterns = [path("audit/export/", export, name="audit-export")]


#: URL parameters that filter the list, and the columns they filter by.
FILTERS = {"query": "query__name", "application": "application__name", "actor": "actor"}


@needs(VIEW)
def audit_page(request: HttpRequest) -> HttpResponseBase:
    """List state changes or operations, newest first; all filters are in the URL.

    Admins first see the actions by users and with tokens, with IP addresses.
    """
    if request.user.has_perm(ADMINISTER) and request.GET.get("tab") not in TABS:
        return activity(request)
    asked = _asked(request.GET)
    by = "created_at" if asked["tab"] == "operations" else "at"
    context = {
        "page": page_of(_rows(asked), by=by, cursor=request.GET.get("after", "")),
        "tab": asked["tab"],
        "tabs": TABS.items(),
        "filters": asked,
        "everybody": asked["all"] == "1",
        "filtered": any(asked[name] for name in FILTERS),
        "topic": topic("audit", asked),
        "now": timezone.now(),
    }
    return render(request, "access/audit/list.html", context)


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    return filters(given, (*FILTERS, "all"), tab=TABS)


def _rows(asked: Mapping[str, str]) -> QuerySet[Any]:
    chosen = {FILTERS[name]: asked[name] for name in FILTERS if asked[name]}
    if asked["tab"] == "operations":
        return operations().filter(**chosen)
    return (transitions() if asked["all"] == "1" else audit()).filter(**chosen)


@fragments("audit", hears=("query", "application", "operation", "group"))
def draw_audit(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw new requests and changes, and operation outcomes; recorded changes never change."""
    given = filters_from_key(key)
    asked = _asked(given)
    context = {"request": FilterRequest(given), "now": now}
    if asked["tab"] == "operations":
        for one in _operations(asked, changes):
            html = render_to_string("access/audit/_operation.html", {**context, "one": one})
            yield f"operation-{one.pk}", html
    context["rows"] = _rows(asked)[:ARRIVALS]
    yield "audit-arrived", render_to_string(f"access/audit/_{asked['tab']}_arrived.html", context)


def _operations(asked: Mapping[str, str], changes: Changes) -> QuerySet[Any]:
    if changes is None:
        return _rows(asked)[:ROWS]
    uuids = [about for said, about in map(split, changes) if said == "operation"]
    return operations().filter(Q(uuid__in=uuids) | Q(query__in=keys(changes, "query")))[:ROWS]


urlpatterns += [path("audit/", audit_page, name="audit")]
