"""The planned times of a cron expression, across clock changes, and other schedulers' expressions.

- Where the minute or the hour begins with `*`, elapsed time counts: a minute is planned if a clock
  of the zone then shows a time that matches. Local times that a change leaves out are not planned,
  and those that occur twice are planned twice.
- Otherwise each matching time of day is planned once: the first time that it occurs, or at the
  first moment after the gap that leaves it out. Several times in one gap are one planned time.

The rule is Debian cron's. cronsim reads the expression and matches dates; its own walk moves by
whole hours, and loses times where clocks change by half an hour.

Supported are the nicknames of vixie cron (`@daily`) and of Go (`@every 15m`), the prefixes `TZ=`
and `CRON_TZ=`, the six or seven fields of Quartz and Spring (seconds first) and of EventBridge (a
year at the end), and EventBridge's `cron(…)` and `rate(1 hour)`.

Sources: crontab(5); robfig/cron v3; Quartz's CronTrigger tutorial; Spring's CronExpression; the
schedule expressions of EventBridge Scheduler.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from queries.domain.definitions.spec import Schedule

#: Fields of a cron expression; Headgate looks every few seconds, so seconds cannot be planned.
FIELDS = 5
#: Days after which an expression without a match has no more times; 29 February on a given day of
#: the week occurs every 28 years, or after 40.
_NO_MORE_DAYS = 50 * 366
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _ZonedCron:
    """An expression in a zone."""

    cron: CronSim
    zone: ZoneInfo
    minutes: list[int]  # of a day that matches, since midnight; ascending
    elapsed: bool  # elapsed time counts

    def matches(self, day: date) -> bool:
        """Return whether times of a day are planned."""
        return day.month in self.cron.months and self.cron.match_day(day)

    def planned_on(self, day: date) -> list[datetime]:
        """Return the planned times, in UTC, of a local day that matches, in any order."""
        if (start := self._start_of_plain(day)) is not None:
            return [start + timedelta(minutes=minute) for minute in self.minutes]
        midnight = datetime.combine(day, time())
        return [
            at
            for minute in self.minutes
            for at in self._moments(midnight + timedelta(minutes=minute))
        ]

    def earliest(self, local: datetime) -> datetime:
        """Return the first moment, in UTC, at which a local time occurs or would have occurred."""
        return min(self._reading(local, fold) for fold in (0, 1))

    def _start_of_plain(self, day: date) -> datetime | None:
        """Return the UTC midnight of a day without a change of the clocks; None with one."""
        midnight = datetime.combine(day, time())
        readings = [
            self._reading(local, fold) - (local - midnight)
            for local in (midnight, midnight + _DAY)
            for fold in (0, 1)
        ]
        return readings[0] if len(set(readings)) == 1 else None

    def _moments(self, local: datetime) -> list[datetime]:
        """Return the moments at which a local time is planned."""
        readings = sorted({self._reading(local, fold) for fold in (0, 1)})
        real = [at for at in readings if self._shown(at) == local]
        if self.elapsed:
            return real
        return real[:1] or [self._after_gap(*readings)]

    def _after_gap(self, before: datetime, after: datetime) -> datetime:
        """Return the change of the clocks between two moments, to the second."""
        offset = after.astimezone(self.zone).utcoffset()
        while after - before > timedelta(seconds=1):
            middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
            if middle.astimezone(self.zone).utcoffset() == offset:
                after = middle
            else:
                before = middle
        return after

    def _reading(self, local: datetime, fold: int) -> datetime:
        return local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC)

    def _shown(self, at: datetime) -> datetime:
        return at.astimezone(self.zone).replace(tzinfo=None)


def times(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """Return all planned times later than `after`, in UTC, ascending and without repetition.

    Raises `ValueError` for an invalid expression. `schedule_problems` finds those, and time zones
    that do not exist.
    """
    return _walk(_clock(schedule), after)


def _clock(schedule: Schedule) -> _ZonedCron:
    fields = schedule.cron.split()
    if len(fields) != FIELDS:
        raise ValueError("a cron expression has five fields")
    try:
        cron = CronSim(schedule.cron, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(str(error)) from error
    minutes = [60 * hour + minute for hour in sorted(cron.hours) for minute in sorted(cron.minutes)]
    elapsed = any(field.startswith("*") for field in fields[:2])
    return _ZonedCron(cron, ZoneInfo(schedule.time_zone), minutes, elapsed)


def _walk(clock: _ZonedCron, after: datetime) -> Iterator[datetime]:
    # Clocks that go back over midnight show times of two days in turn: a time is given once no
    # later day can have an earlier one.
    day = after.astimezone(clock.zone).date() - _DAY
    waiting: list[datetime] = []
    matched = day
    while waiting or day - matched < timedelta(days=_NO_MORE_DAYS):
        if clock.matches(day):
            matched = day
            waiting = sorted({*waiting, *(at for at in clock.planned_on(day) if at > after)})
        day += _DAY
        if waiting:
            bound = clock.earliest(datetime.combine(day, time()))
            ready = bisect_left(waiting, bound)
            yield from waiting[:ready]
            del waiting[:ready]


def next_times(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    """Return the next `count` planned times; fewer if the expression has no more."""
    return list(islice(times(schedule, after), count))


def due_times(schedule: Schedule, cursor: datetime, now: datetime) -> list[datetime]:
    """Return the planned times after the cursor, up to and including `now`."""
    return list(takewhile(lambda at: at <= now, times(schedule, cursor)))


_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.+)")
_EVERY = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:0+s)?")
_WRAPPED = re.compile(r"(cron|rate)\((.*)\)", re.IGNORECASE)
_RATE = re.compile(r"(\d+) +(minute|hour|day)s?", re.IGNORECASE)
_MINUTES = {"minute": 1, "hour": 60, "day": 1440}
#: A day of the week of Quartz: 1 is Sunday, 7 is Saturday; not the number after `#` or `/`.
_QUARTZ_DAY = re.compile(r"(?<![\d#/])[1-7](?!\d)")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_STEPS_FROM = re.compile(r"(?<!-)\b([A-Z]{3})/")


@dataclass(frozen=True, slots=True)
class Foreign:
    """What another scheduler's expression has that a schedule's cannot have."""

    message: str
    cron: str = ""  # the same as five fields; "" if there is no such expression
    time_zone: str = ""  # that belongs to `cron`; "" if the expression names none


def foreign(expression: str) -> Foreign | None:
    """Return an expression's meaning in another scheduler; None if none is known for it."""
    text = expression.strip()
    if match := _ZONE.fullmatch(text):
        inner = foreign(match[2])
        cron = inner.cron if inner is not None else " ".join(match[2].split())
        return Foreign("names its time zone within the expression", cron, match[1])
    if match := _WRAPPED.fullmatch(text):
        if match[1].lower() == "rate":
            return _rate(match[2].strip())
        return foreign(match[2]) or Foreign("has parentheses", " ".join(match[2].split()))
    if text.startswith("@"):
        return _nickname(text.lower())
    fields = text.upper().split()
    if len(fields) in (6, 7):
        return _longer(fields)
    if len(fields) == 5 and "?" in fields:
        return Foreign('has a "?", which is "*" here', _plain(fields))
    if len(fields) == 5 and _has_nearest(fields[2]):
        return Foreign('has a "W" (the weekday nearest to a date), which cannot be planned')
    return None


def _nickname(text: str) -> Foreign:
    name, _, rest = text.partition(" ")
    if name != "@every":
        return Foreign("is a nickname", _NICKNAMES.get(text, ""))
    match = _EVERY.fullmatch(rest.strip())
    hours, minutes = (int(part or 0) for part in match.groups()) if match else (0, 0)
    return _interval(60 * hours + minutes)


def _rate(text: str) -> Foreign:
    match = _RATE.fullmatch(text)
    return _interval(int(match[1]) * _MINUTES[match[2].lower()] if match else 0)


def _interval(minutes: int) -> Foreign:
    """Return an interval as times on a clock, if it divides an hour or a day."""
    cron = ""
    if minutes and 60 % minutes == 0:
        cron = f"*/{minutes} * * * *" if minutes < 60 else "0 * * * *"
    elif minutes and minutes % 60 == 0 and 24 % (minutes // 60) == 0:
        cron = f"0 */{minutes // 60} * * *" if minutes < 1440 else "0 0 * * *"
    return Foreign("is an interval, and not times on a clock", cron)


def _longer(fields: list[str]) -> Foreign:
    """Drop the seconds and year from six or seven fields, if they do not matter.

    Without a `?`, six fields are Spring's, whose days of the week are cron's. EventBridge has its
    `?` in the third or fifth field, where Quartz has hours or months.
    """
    if len(fields) == 6 and "?" in (fields[2], fields[4]):
        seconds, rest, year = "0", fields[:5], fields[5]
    else:
        seconds, rest, year = fields[0], fields[1:6], (fields[6:] or ["*"])[0]
    if year not in ("*", "?"):
        return Foreign("has a year, which cannot be planned")
    if _has_nearest(rest[2]):
        return Foreign('has a "W" (the weekday nearest to a date), which cannot be planned')
    if "?" in fields:
        rest[4] = _weekdays_of_quartz(rest[4])
    elif "*" not in (rest[2][0], rest[4][0]):
        days = "a day of the month and a day of the week, which must both match there"
        return Foreign(f"has {days}: in five fields, one of them is enough")
    if seconds not in ("0", "00"):
        return Foreign("has seconds, which cannot be planned: leave them out", _plain(rest))
    return Foreign("has more than five fields: it is another scheduler's", _plain(rest))


def _weekdays_of_quartz(field: str) -> str:
    """Replace days of the week, which Quartz counts from 1, with their names."""
    if "0" in re.split(r"[,\-]", field):
        return field
    named = _QUARTZ_DAY.sub(lambda one: _DAYS[int(one[0]) - 1], "SAT" if field == "L" else field)
    # Steps from a day end on Saturday, and cron has no name before L: "6L" of Quartz is "5L".
    named = _STEPS_FROM.sub(r"\1-SAT/", named)
    return re.sub("|".join(f"{day}(?=L)" for day in _DAYS), _number, named)


def _number(day: re.Match[str]) -> str:
    return str(_DAYS.index(day[0]))


def _has_nearest(day: str) -> bool:
    return "W" in day and day != "LW"


def _plain(fields: list[str]) -> str:
    """Return the fields in cron's own notation: `*` for `?`, and for a start at 0."""
    return " ".join("*" if field == "?" else re.sub(r"^0/", "*/", field) for field in fields)
