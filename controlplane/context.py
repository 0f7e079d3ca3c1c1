"""Template context that every page has."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from controlplane.health.system import SystemHealth, system_health


def system(request: HttpRequest) -> dict[str, Any]:
    """Return `system`, the system's own health, computed only where a template uses it."""

    def look() -> SystemHealth:
        return system_health(timezone.now())

    return {"system": SimpleLazyObject(look)}
