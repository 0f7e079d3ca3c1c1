"""The planned times of a schedule, through changes of the clocks of any size.

- Where the minute or the hour begins with `*`, elapsed time counts: a minute is planned if a clock
  of the zone then shows a time that matches. Local times that a change leaves out are not planned,
  and those that occur twice are planned twice.
- Otherwise each matching time of day is planned once: the first time that it occurs, or at the
  first moment after the gap that leaves it out. Several of one gap are one planned time.

The rule is Debian cron's. cronsim reads the expression and matches dates; its own walk moves by
whole hours, and loses times where clocks change by half an hour.
"""

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
        """Return when a local time is planned."""
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
