"""What the next planned times look like on a clock of the schedule's zone."""

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.cron import next_times, times

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
    """The next planned times, and what the next change of the clocks does to them."""

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
