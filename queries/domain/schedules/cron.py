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

#: Fields of a cron expression; Headgate looks every few seconds, so seconds cannot be planned.
_FIELDS = 5


def times(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """Return all planned times later than `after`, in UTC, ascending and without repetition.

    Raises `ValueError` for an invalid time zone or expression, which `schedule_problems` finds.
    """
    if len(schedule.cron.split()) != _FIELDS:
        raise ValueError("a cron expression has five fields")
    try:
        found = CronSim(schedule.cron, after.astimezone(zone(schedule.time_zone)))
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


def zone(name: str) -> ZoneInfo:
    """Return the time zone with an IANA name; `ValueError` if there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"{name} is not a known time zone") from error
