"""What Spark dropped of a driver's events, rise by rise, as its own counters said."""

from typing import Any

from listeners.models import DroppedEvents

_MOST = 20


def drops_of(driver_id: int) -> list[dict[str, Any]]:
    """Return the newest rises of a driver's drop counters: {queue, count, total, since, until}."""
    rows = DroppedEvents.objects.filter(driver=driver_id).order_by("-until", "-pk")
    found = rows.values("queue", "count", "total", "since", "until")[:_MOST]
    return [dict(row) for row in found]
