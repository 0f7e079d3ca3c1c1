"""Which queries of an application wait for which others, and the pools that mend it."""

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone

from queries.roles import VIEW
from queries.selectors.supervision.applications import ApplicationDetail, application_detail
from queries.selectors.triggers.waiting import starved_queries, task_shares
from queries.views.console.guard import needs

#: How long a range is, and its name in a sentence.
RANGES = {
    "15m": (timedelta(minutes=15), "the last 15 minutes"),
    "1h": (timedelta(hours=1), "the last hour"),
    "6h": (timedelta(hours=6), "the last 6 hours"),
    "24h": (timedelta(days=1), "the last day"),
    "7d": (timedelta(days=7), "the last 7 days"),
}
DEFAULT_RANGE = "1h"


@needs(VIEW)
def waiting(request: HttpRequest, name: str) -> HttpResponse:
    """Show what each query of an application took of its cores, and for whom it waited."""
    asked = request.GET.get("range", DEFAULT_RANGE)
    chosen = asked if asked in RANGES else DEFAULT_RANGE
    detail = application_detail(name)
    context = {
        "application": detail.application,
        "range": chosen,
        "ranges": list(RANGES),
        **waits(detail, now=timezone.now(), span=chosen),
    }
    return render(request, "triggers/waiting.html", context)


def waits(detail: ApplicationDetail, *, now: datetime, span: str = DEFAULT_RANGE) -> dict[str, Any]:
    """Return what pages show of an application's waits over a range that ends now."""
    length, words = RANGES[span]
    shares = task_shares(detail.application, since=now - length, until=now)
    return {"shares": shares, "starved": starved_queries(detail, shares, span=words)}


urlpatterns = [path("applications/<str:name>/waiting/", waiting, name="application-waiting")]
