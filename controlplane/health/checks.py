"""Health checks for load balancers and service managers: alive, and ready part by part."""

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from controlplane.health.system import TOLD_PARTS, system_health


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 as long as this process serves requests; other parts are not checked."""
    return JsonResponse({"status": "alive"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when people and scripts can begin, else 503 naming the parts that do not work.

    It names silent hosts too; the others can be worked with meanwhile.
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
