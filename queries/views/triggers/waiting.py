"""Which queries of an application wait for others, and the pools that would fix that."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone

from queries.roles import VIEW
from queries.selectors.supervision.applications import application_detail
from queries.selectors.triggers.waiting import DEFAULT_RANGE, RANGES, waits
from queries.views.console.guard import needs


@needs(VIEW)
def waiting(request: HttpRequest, name: str) -> HttpResponse:
    """Show how much of its cores each query of an application used, and which it waited for."""
    asked = request.GET.get("range", DEFAULT_RANGE)
    chosen = asked if asked in RANGES else DEFAULT_RANGE
    detail = application_detail(name)
    shares, starved = waits(detail, now=timezone.now(), span=chosen)
    context = {
        "application": detail.application,
        "range": chosen,
        "ranges": list(RANGES),
        "shares": shares,
        "starved": starved,
    }
    return render(request, "triggers/waiting.html", context)


urlpatterns = [path("applications/<str:name>/waiting/", waiting, name="application-waiting")]
