"""Planned times at every change of the clocks, against a clock that is read minute by minute.

The oracle reads the zone's clock at each minute around a change, and knows the rule in its plainest
form: elapsed schedules are planned at each minute that shows a matching time; others once for each
matching time of day, at the first minute that shows it, or else at the first after the gap.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queries.domain.accepted_values import zone_names
from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.cron import due_times
from tests.examples import examples

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
#: Zones with daylight saving change within a year; two years hold changes of both kinds anywhere.
LOOKED = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))
#: Changes of other sizes, and a day that was left out: Samoa's 30 December 2011.
ODD = (
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21, 12, tzinfo=UTC)),
    ("America/Caracas", datetime(2016, 5, 1, 7, tzinfo=UTC)),
    ("Asia/Pyongyang", datetime(2015, 8, 14, 15, tzinfo=UTC)),
    ("America/St_Johns", datetime(1988, 4, 3, 3, tzinfo=UTC)),
    ("America/St_Johns", datetime(1988, 10, 30, 2, tzinfo=UTC)),
    ("America/St_Johns", datetime(2010, 11, 7, 2, tzinfo=UTC)),
    ("Antarctica/Casey", datetime(2010, 3, 4, 15, tzinfo=UTC)),
)


@dataclass(frozen=True)
class Field:
    """One field of an expression, and the values that it matches."""

    text: str
    values: frozenset[int]


@dataclass(frozen=True)
class Cron:
    """An expression whose meaning is known without a parser."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field  # 0: Sunday

    @property
    def text(self) -> str:
        fields = (self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(field.text for field in fields)

    @property
    def elapsed(self) -> bool:
        return "*" in (self.minute.text[0], self.hour.text[0])

    def matches(self, local: datetime) -> bool:
        day = local.day in self.day.values
        weekday = local.isoweekday() % 7 in self.weekday.values
        both = "*" in (self.day.text[0], self.weekday.text[0])
        return (
            local.minute in self.minute.values
            and local.hour in self.hour.values
            and local.month in self.month.values
            and (day and weekday if both else day or weekday)
        )


def _fields(low: int, high: int) -> st.SearchStrategy[Field]:
    """Return fields of every form that an expression can have."""
    all_of = range(low, high + 1)
    number = st.integers(low, high)
    pair = st.tuples(number, number).map(sorted)
    return st.one_of(
        st.just(Field("*", frozenset(all_of))),
        st.integers(2, 9).map(lambda step: Field(f"*/{step}", frozenset(all_of[::step]))),
        number.map(lambda one: Field(str(one), frozenset({one}))),
        pair.map(lambda ends: Field("{}-{}".format(*ends), frozenset(range(ends[0], ends[1] + 1)))),
        st.lists(number, min_size=2, max_size=4, unique=True).map(
            lambda some: Field(",".join(map(str, some)), frozenset(some))
        ),
    )


EVERY = {
    "day": Field("*", frozenset(range(1, 32))),
    "month": Field("*", frozenset(range(1, 13))),
    "weekday": Field("*", frozenset(range(7))),
}
CRONS = st.one_of(
    st.builds(
        Cron,
        minute=_fields(0, 59),
        hour=_fields(0, 23),
        **{k: st.just(v) for k, v in EVERY.items()},
    ),
    st.builds(
        Cron,
        minute=_fields(0, 59),
        hour=_fields(0, 23),
        day=_fields(1, 31),
        month=st.just(EVERY["month"]),
        weekday=_fields(0, 6),
    ),
)


@cache
def changes(name: str, begin: datetime, end: datetime) -> tuple[datetime, ...]:
    """Return the first minutes with another distance to UTC."""
    zone, found, low = ZoneInfo(name), [], begin
    while low < end:
        high = low + DAY
        offset = low.astimezone(zone).utcoffset()
        if high.astimezone(zone).utcoffset() != offset:
            early, late = 0, 1440
            while late - early > 1:
                middle = (early + late) // 2
                same = (low + middle * MINUTE).astimezone(zone).utcoffset() == offset
                early, late = (middle, late) if same else (early, middle)
            found.append(low + late * MINUTE)
        low = high
    return tuple(found)


@cache
def kinds_of_change() -> tuple[tuple[str, datetime], ...]:
    """Return one zone and moment for each kind of change: from which local time to which."""
    found: dict[tuple[object, ...], tuple[str, datetime]] = {}
    for name in sorted(zone_names()):
        zone = ZoneInfo(name)
        for at in changes(name, *LOOKED):
            before, after = ((at - MINUTE).astimezone(zone), at.astimezone(zone))
            found.setdefault((before.time(), after.time()), (name, at))
    return (*found.values(), *ODD)


def expected(cron: Cron, name: str, begin: datetime, end: datetime) -> list[datetime]:
    """Return the planned times after `begin`, up to `end`, read minute by minute."""
    zone = ZoneInfo(name)
    first = begin - 2 * DAY  # a time of day that occurs twice may have occurred before
    minutes = [first + count * MINUTE for count in range(int((end - first) / MINUTE) + 1)]
    shown = [at.astimezone(zone).replace(tzinfo=None) for at in minutes]
    if cron.elapsed:
        found = [at for at, local in zip(minutes, shown, strict=True) if cron.matches(local)]
    else:
        planned: dict[datetime, datetime] = {}
        for count, (at, local) in enumerate(zip(minutes, shown, strict=True)):
            left_out = shown[count - 1] + MINUTE if count else local
            while left_out < local:
                planned.setdefault(left_out, at)
                left_out += MINUTE
            planned.setdefault(local, at)
        found = sorted({at for local, at in planned.items() if cron.matches(local)})
    return [at for at in found if begin < at <= end]


@settings(max_examples=examples(300))
@given(cron=CRONS, where=st.sampled_from(kinds_of_change()), hours=st.integers(2, 30))
def test_planned_times_around_a_change_are_those_of_the_clock(
    cron: Cron, where: tuple[str, datetime], hours: int
) -> None:
    name, at = where
    begin, end = at - timedelta(hours=hours), at + timedelta(hours=32 - hours)
    schedule = Schedule(cron=cron.text, time_zone=name)
    assert due_times(schedule, begin, end) == expected(cron, name, begin, end)


def test_every_zone_keeps_the_rule_at_each_of_its_changes() -> None:
    """Each zone's changes are of one of these kinds; each expression hits the change."""
    assert len(kinds_of_change()) > 15
    minute = Field("*/7", frozenset(range(0, 60, 7)))
    for name, at in kinds_of_change():
        hour = (at - MINUTE).astimezone(ZoneInfo(name)).hour
        near = frozenset({hour, (hour + 1) % 24, (hour + 2) % 24})
        hours = Field(",".join(map(str, sorted(near))), near)
        fixed = Field("0,15,30,45", frozenset({0, 15, 30, 45}))
        for cron in (Cron(minute, hours, **EVERY), Cron(fixed, hours, **EVERY)):
            begin, end = at - DAY / 4, at + DAY / 4
            planned = due_times(Schedule(cron=cron.text, time_zone=name), begin, end)
            assert planned == expected(cron, name, begin, end), (name, cron.text)


@pytest.mark.parametrize(
    ("cron", "begin", "count"),
    [
        ("* 2 * * *", datetime(2026, 4, 4, 0, 30, tzinfo=UTC), 60),
        ("*/7 */5 * * *", datetime(2026, 4, 4, 0, 30, tzinfo=UTC), 45),
        ("* 2 * * *", datetime(2026, 10, 3, 0, 30, tzinfo=UTC), 30),
    ],
)
def test_half_an_hour_of_lord_howe_loses_no_time(cron: str, begin: datetime, count: int) -> None:
    schedule = Schedule(cron=cron, time_zone="Australia/Lord_Howe")
    assert len(due_times(schedule, begin, begin + DAY)) == count
