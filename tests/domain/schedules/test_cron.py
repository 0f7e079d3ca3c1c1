"""Planned times: each once, in order, through both changes of the clock."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.cron import due_times, next_times


def _utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=UTC)


def _berlin(cron: str) -> Schedule:
    return Schedule(cron=cron, time_zone="Europe/Berlin")


# Berlin: 2026-03-29 02:00 becomes 03:00; 2026-10-25 03:00 becomes 02:00.
@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("30 2 * * *", _utc(2026, 3, 28, 12), [_utc(2026, 3, 29, 1), _utc(2026, 3, 30, 0, 30)]),
        (
            "30 2 * * *",
            _utc(2026, 10, 24, 12),
            [_utc(2026, 10, 25, 0, 30), _utc(2026, 10, 26, 1, 30)],
        ),
        (
            "30 2 * * *",
            _utc(2026, 10, 25, 1, 10),
            [_utc(2026, 10, 26, 1, 30), _utc(2026, 10, 27, 1, 30)],
        ),
        ("0 * * * *", _utc(2026, 3, 29, 0, 30), [_utc(2026, 3, 29, 1), _utc(2026, 3, 29, 2)]),
        ("0 * * * *", _utc(2026, 10, 24, 23, 30), [_utc(2026, 10, 25, 0), _utc(2026, 10, 25, 1)]),
        ("0,30 2 * * *", _utc(2026, 3, 28, 12), [_utc(2026, 3, 29, 1), _utc(2026, 3, 30, 0)]),
    ],
)
def test_a_change_of_the_clock_neither_loses_nor_doubles_a_time(
    cron: str, after: datetime, expected: list[datetime]
) -> None:
    assert next_times(_berlin(cron), after, 2) == expected


@settings(max_examples=30)
@given(
    cron=st.sampled_from(
        ["30 2 * * *", "*/7 * * * *", "0 */5 * * *", "15,45 1-3 * * 0", "0 0 1 * *"]
    ),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    start=st.integers(0, 365 * 24 * 60),
    cuts=st.lists(st.integers(1, 48), min_size=1, max_size=6),
)
def test_however_often_one_looks_the_times_are_the_same(
    cron: str, zone: str, start: int, cuts: list[int]
) -> None:
    schedule, begin = (
        Schedule(cron=cron, time_zone=zone),
        _utc(2026, 1, 1) + timedelta(minutes=start),
    )
    looked, cursor, now = [], begin, begin
    for hours in cuts:
        now += timedelta(hours=hours)
        looked += due_times(schedule, cursor, now)
        cursor = now
    assert looked == due_times(schedule, begin, now)
    assert looked == sorted(set(looked))


def test_a_planned_time_is_due_at_its_very_moment() -> None:
    schedule = Schedule(cron="* * * * *")
    begin = _utc(2026, 1, 1)
    assert due_times(schedule, begin, begin + timedelta(minutes=1)) == [_utc(2026, 1, 1, 0, 1)]


def test_rare_dates_are_found_and_dates_that_never_come_end() -> None:
    leap = Schedule(cron="0 0 29 2 */7", time_zone="Europe/Berlin")  # only Sundays
    assert next_times(leap, _utc(2026, 1, 1), 2) == [_utc(2032, 2, 28, 23), _utc(2060, 2, 28, 23)]
    never = Schedule(cron="0 0 30 2 *")
    with pytest.raises(ValueError, match="day-of-month"):
        next_times(never, _utc(2026, 1, 1), 1)
    assert next_times(Schedule(cron="0 0 */31 2 MON#5"), _utc(2026, 1, 1), 1) == []
