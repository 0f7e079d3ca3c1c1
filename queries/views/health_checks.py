"""Health checks for load balancers and service managers: alive, and ready part by part."""

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from queries.domain.system import TOLD_PARTS
from queries.services.system.health import system_health


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 while this process serves requests; other parts are not checked."""
    return JsonResponse({"status": "alive"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 when users and scripts can begin, else 503 with the parts that do not work.

    It also lists silent hosts; the other hosts still work.
    """
    health = system_health(timezone.now())
    checks: dict[str, Any] = {
        part.name: {
            "status": part.state,
            "message": part.sentence,
            "since": part.since.isoformat() if part.since else None,
        }
        for part in health.parts
        if part.name in TOLD_PARTS
    }
    body = {
        "status": "ready" if health.ready else "not ready",
        "at": health.at.isoformat(),
        "checks": checks,
    }
    return JsonResponse(body, status=200 if health.ready else 503)
