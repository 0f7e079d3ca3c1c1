"""What can be wrong with a schedule."""

from datetime import UTC, datetime

from queries.domain.definitions.data_roots import fixed_part
from queries.domain.definitions.locations import NotALocation
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Problem
from queries.domain.schedules.cron import next_times
from queries.domain.schedules.dialects import Foreign, foreign
from queries.domain.time_zones import zone_problem

#: From which an expression is tried; which moment does not matter.
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_STARTERS = ("cron", "after", "files")
_WILD = set("*?[]{}")
_SHAPE = 'Give minute, hour, day of month, month and day of week: "0 3 * * *" (03:00 daily).'


def schedule_problems(schedule: Schedule | None, *, ends: bool) -> list[Problem]:
    """Return what is wrong with a schedule; `ends` says whether what it starts ends by itself."""
    if schedule is None:
        return []
    problems = []
    if not ends:
        message = "needs a query that ends by itself."
        way_out = 'Set trigger.kind to "available_now", or remove the schedule.'
        problems.append(Problem("schedule", schedule.kind, message, way_out))
    starters = [name for name in _STARTERS if getattr(schedule, name)]
    if len(starters) != 1:
        value = " and ".join(starters)
        message = f"has {value}." if starters else "says nothing about when it starts the query."
        way_out = "Set exactly one of cron, after and files."
        return [*problems, Problem("schedule", value, message, way_out)]
    if wrong := zone_problem("schedule.time_zone", schedule.time_zone):
        return [*problems, wrong]
    return problems + (_cron(schedule) if schedule.cron else _files(schedule))


def _cron(schedule: Schedule) -> list[Problem]:
    message, way_out = "", _SHAPE
    if (other := foreign(schedule.cron)) is not None:
        message, way_out = f"{other.message}.", _translated(other) or _SHAPE
    else:
        try:
            next_times(schedule, _ANY_TIME, 1)
        except ValueError as error:
            message = f"is not a valid cron expression: {error}."
    if not message:
        return []
    return [Problem("schedule.cron", schedule.cron[:200], message, way_out)]


def _translated(other: Foreign) -> str:
    """Return how to write another scheduler's expression here; "" if that is not possible."""
    zone = other.time_zone
    if not other.cron or (zone and zone_problem("schedule.time_zone", zone)):
        return ""
    try:
        next_times(Schedule(cron=other.cron), _ANY_TIME, 1)
    except ValueError:
        return ""
    return f'Write "{other.cron}"' + (f', and set time_zone to "{zone}".' if zone else ".")


def _files(schedule: Schedule) -> list[Problem]:
    if not schedule.files:
        return []
    message = "has a wildcard." if _WILD & set(schedule.files) else ""
    way_out = "Give a folder, or a prefix of a bucket; files at any depth below it count."
    try:
        fixed_part(schedule.files)
    except NotALocation as error:
        message, way_out = str(error), error.way_out
    if not message:
        return []
    return [Problem("schedule.files", schedule.files[:200], message, way_out)]
