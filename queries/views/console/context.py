"""Template context that every page needs."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from queries.domain.system import SystemHealth
from queries.services.system.health import system_health


def system(request: HttpRequest) -> dict[str, Any]:
    """Return `system`, the system's own health, computed only if a template uses it."""

    def look() -> SystemHealth:
        return system_health(timezone.now())

    return {"system": SimpleLazyObject(look)}
