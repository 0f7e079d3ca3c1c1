"""What every page knows without its view saying so."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from controlplane.system_health import SystemHealth, system_health


def system(request: HttpRequest) -> dict[str, Any]:
    """Return `system`, the system's own health, looked at only where a template asks."""

    def look() -> SystemHealth:
        return system_health(timezone.now())

    return {"system": SimpleLazyObject(look)}
