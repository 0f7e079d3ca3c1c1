"""The planned times of a schedule, daylight saving included (cronsim, as Debian's cron).

A fixed time of day that a clock change leaves out is planned for the first moment after the gap;
one that occurs twice is planned once, for the first. Where the minute or the hour is `*` or `*/n`,
only elapsed time counts: nothing is planned for a missing hour, and both of a repeated hour's.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Problem

#: Fields of a cron expression; Headgate looks every few seconds, so seconds cannot be planned.
_FIELDS = 5


def times(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """Return all planned times later than `after`, in UTC, ascending and without repetition.

    Raises `ValueError` for an invalid time zone or expression (`schedule_problems` finds both).
    """
    if len(schedule.cron.split()) != _FIELDS:
        raise ValueError("a cron expression has five fields")
    try:
        found = CronSim(schedule.cron, after.astimezone(_zone(schedule.time_zone)))
    except CronSimError as error:
        raise ValueError(str(error)) from error
    # In a repeated hour, cronsim may begin with the first occurrence, which is over.
    return (at for at in (one.astimezone(UTC) for one in found) if at > after)


def next_times(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    """Return the next `count` planned times; fewer if the expression has no more."""
    return list(islice(times(schedule, after), count))


def due_times(schedule: Schedule, cursor: datetime, now: datetime, most: int) -> list[datetime]:
    """Return at most `most` planned times after the cursor, up to and including `now`."""
    return list(islice(takewhile(lambda at: at <= now, times(schedule, cursor)), most))


def schedule_problems(schedule: Schedule | None, *, ends: bool) -> list[Problem]:
    """Return what is wrong with a schedule; `ends` says whether the query's trigger ends."""
    if schedule is None:
        return []
    found = []
    if not ends:
        found.append(
            Problem(
                "schedule",
                schedule.cron,
                "needs a query that ends by itself.",
                'Set trigger.kind to "available_now", or remove the schedule.',
            )
        )
    try:
        _zone(schedule.time_zone)
    except ValueError:
        way_out = 'Use a name such as "Europe/Berlin" or "UTC".'
        field = "schedule.time_zone"
        return [*found, Problem(field, schedule.time_zone, "is not a known time zone.", way_out)]
    try:
        next_times(schedule, datetime(2026, 1, 1, tzinfo=UTC), 1)
    except ValueError as error:
        way_out = (
            'Give minute, hour, day of month, month and day of week: "0 3 * * *" (03:00 daily).'
        )
        message = f"is not a valid cron expression: {error}."
        found.append(Problem("schedule.cron", schedule.cron, message, way_out))
    return found


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"{name} is not a known time zone") from error
