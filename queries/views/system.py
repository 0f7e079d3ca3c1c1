"""The state of Headgate itself, part by part: a page, and health checks for other programs.

The health checks are for load balancers and service managers. The page also shows the isolation
(walls) of drivers on this host.
"""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from queries.domain.system import REPORTED_PARTS
from queries.roles import VIEW
from queries.selectors.definitions.sparks import sparks_here
from queries.services.system.health import system_health
from queries.views.console.guard import needs


@needs(VIEW, "GET")
def system(request: HttpRequest) -> HttpResponse:
    """Show each part of the system with a sentence about its state, and the versions of Spark."""
    context = {
        "health": system_health(timezone.now()),
        "sparks": sparks_here(),
        "host": settings.HEADGATE_HOST,
    }
    return render(request, "console/settings/system.html", context)


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 while this process serves requests; other parts are not checked."""
    return JsonResponse({"status": "alive"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if users and scripts can be served, else 503 with the parts that do not work.

    The response also lists silent hosts; the other hosts still work.
    """
    health = system_health(timezone.now())
    checks: dict[str, Any] = {
        part.name: {
            "status": part.state,
            "message": part.sentence,
            "since": part.since.isoformat() if part.since else None,
        }
        for part in health.parts
        if part.name in REPORTED_PARTS
    }
    body = {
        "status": "ready" if health.ready else "not ready",
        "at": health.at.isoformat(),
        "checks": checks,
    }
    return JsonResponse(body, status=200 if health.ready else 503)


urlpatterns = [path("settings/system/", system, name="system")]
