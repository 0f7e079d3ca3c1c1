"""The values that a schedule gives for parameters, at one planned time."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from queries.domain.definitions.spec import Schedule


def rendered(schedule: Schedule, due_at: datetime) -> dict[str, Any]:
    """Return the schedule's values; texts have `{time}` and `{date}` replaced.

    `{time}` is the planned time in UTC ("2026-11-25T02:30:00Z"), `{date}` its date in the
    schedule's zone ("2026-11-25"). Raises `ValueError` for an unknown zone.
    """
    time = due_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    date = due_at.astimezone(ZoneInfo(schedule.time_zone)).date().isoformat()
    return {
        name: value.replace("{time}", time).replace("{date}", date)
        if isinstance(value, str)
        else value
        for name, value in schedule.params.items()
    }
