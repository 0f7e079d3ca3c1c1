"""What can be wrong with a schedule, a description of what it does, and its next planned times."""

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from queries.domain.accepted_values import zone_problem
from queries.domain.definitions.allowed_paths import fixed_part
from queries.domain.definitions.locations import NotALocation
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Problem
from queries.domain.readings import counted
from queries.domain.schedules.cron import Foreign, foreign, next_times, times
from queries.domain.schedules.planning import SKIPPED_WORDS, SkipReason

#: From which an expression is tried; which moment does not matter.
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_STARTERS = ("cron", "after", "files")
_WILD = set("*?[]{}")
_SHAPE = 'Give minute, hour, day of month, month and day of week: "0 3 * * *" (03:00 daily).'


def schedule_problems(schedule: Schedule | None, *, ends: bool) -> list[Problem]:
    """Return what is wrong with a schedule; `ends` says whether its target ends on its own."""
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


def when_words(schedule: Schedule) -> str:
    """Describe when a schedule starts its query: "after each completed run of orders"."""
    if schedule.after:
        if schedule.after_end == "any":
            return f"after each run of {schedule.after}, whatever its outcome"
        return f"after each completed run of {schedule.after}"
    if schedule.files:
        return (
            f"{schedule.quiet_period_s} s after the last new file in {schedule.files},"
            f" which is listed every {schedule.poll_interval_s} s"
        )
    return f"{schedule.cron} in {schedule.time_zone}"


def listing_cost(schedule: Schedule) -> str:
    """Return the cost of listing the folder, as one sentence."""
    a_day = round(86_400 / schedule.poll_interval_s)
    if "://" in schedule.files and not schedule.files.startswith("file:"):
        return (
            f"{counted(a_day, 'listing')} a day. An object store counts one request for each 1,000 "
            "files of a listing, and a storage JVM of the application runs on its host meanwhile."
        )
    return f"{counted(a_day, 'listing')} a day on the application's host."


def skipped_words(
    why: SkipReason, times: int, first: datetime | None, last: datetime, reason: str = ""
) -> str:
    """Describe why a planned time was skipped; for several, also how many and from when to when."""
    reason = reason or SKIPPED_WORDS[why]
    if first is None:
        return reason
    verb = "missed" if why is SkipReason.MISSED else "skipped"
    span = f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    return f"{counted(times, 'due time was,due times were')} {verb}, {span}. {reason}"


#: How far ahead a change of the clocks is looked for; zones with daylight saving have two a year.
_AHEAD_DAYS = 366
#: Planned times that are shown after the change.
_AFTER_CHANGE = 2


@dataclass(frozen=True, slots=True)
class PlannedTime:
    """One planned time, in the schedule's zone and in UTC."""

    local: datetime
    utc: datetime

    @property
    def offset(self) -> str:
        """Return the distance to UTC, "UTC+02:00"."""
        return f"UTC{self.local.isoformat()[-6:]}"

    @property
    def local_text(self) -> str:
        """Return the local time with its distance to UTC, "Sun 2026-03-29 03:00 (UTC+02:00)"."""
        return f"{self.local:%a %Y-%m-%d %H:%M} ({self.offset})"

    @property
    def utc_text(self) -> str:
        """Return the time in UTC, "Sun 2026-03-29 01:00"."""
        return f"{self.utc:%a %Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class SchedulePreview:
    """The next planned times, and the effect of the next clock change on them."""

    times: list[PlannedTime]
    #: The first moment with the new distance to UTC; None if there is none within a year.
    change: PlannedTime | None
    offset_before: str  # "" without a change
    #: Planned times less than a day from the change: the last before it, the first two after it.
    around: list[PlannedTime]


def preview(schedule: Schedule, after: datetime, count: int = 5) -> SchedulePreview:
    """Return the preview from a moment on; `ValueError` as for `times`."""
    zone = ZoneInfo(schedule.time_zone)
    coming = [_at(moment, zone) for moment in next_times(schedule, after, count)]
    changed = _clock_change(zone, after)
    if changed is None:
        return SchedulePreview(coming, None, "", [])
    day = timedelta(days=1)
    near = takewhile(lambda at: at < changed + day, times(schedule, max(after, changed - day)))
    before: deque[datetime] = deque(maxlen=1)
    later: list[datetime] = []
    for at in near:
        (before if at < changed else later).append(at)
        if len(later) == _AFTER_CHANGE:
            break
    near_change = [*before, *later]
    return SchedulePreview(
        coming,
        _at(changed, zone),
        _at(changed - timedelta(seconds=1), zone).offset,
        [_at(moment, zone) for moment in near_change],
    )


def _clock_change(zone: ZoneInfo, after: datetime) -> datetime | None:
    """Return the first moment, to the minute, at which the zone's distance to UTC differs."""
    start = after.astimezone(UTC).replace(second=0, microsecond=0)
    offset = start.astimezone(zone).utcoffset()
    for day in range(1, _AHEAD_DAYS + 1):
        if (start + timedelta(days=day)).astimezone(zone).utcoffset() != offset:
            low, high = (day - 1) * 1440, day * 1440
            while high - low > 1:
                middle = (low + high) // 2
                same = (start + timedelta(minutes=middle)).astimezone(zone).utcoffset() == offset
                low, high = (middle, high) if same else (low, middle)
            return start + timedelta(minutes=high)
    return None


def _at(utc: datetime, zone: ZoneInfo) -> PlannedTime:
    return PlannedTime(local=utc.astimezone(zone), utc=utc)
