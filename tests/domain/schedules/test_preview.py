"""The preview shows local time and UTC, and what a change of the clocks does."""

from datetime import UTC, datetime

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.checks import preview

BERLIN = "Europe/Berlin"


def _around(cron: str, at: datetime) -> list[tuple[str, str]]:
    shown = preview(Schedule(cron=cron, time_zone=BERLIN), at)
    return [(one.local_text, one.utc_text) for one in shown.around]


def test_the_next_five_times_are_shown_in_both_clocks() -> None:
    shown = preview(Schedule(cron="0 3 * * *", time_zone=BERLIN), datetime(2026, 6, 1, tzinfo=UTC))
    assert len(shown.times) == 5
    assert shown.times[0].local_text == "Mon 2026-06-01 03:00 (UTC+02:00)"
    assert shown.times[0].utc_text == "Mon 2026-06-01 01:00"


def test_a_time_that_spring_leaves_out_is_shown_after_the_gap() -> None:
    assert _around("30 2 * * *", datetime(2026, 3, 1, tzinfo=UTC)) == [
        ("Sat 2026-03-28 02:30 (UTC+01:00)", "Sat 2026-03-28 01:30"),
        ("Sun 2026-03-29 03:00 (UTC+02:00)", "Sun 2026-03-29 01:00"),
        ("Mon 2026-03-30 02:30 (UTC+02:00)", "Mon 2026-03-30 00:30"),
    ]


def test_an_hour_that_autumn_repeats_is_shown_twice_for_an_hourly_schedule() -> None:
    assert _around("30 * * * *", datetime(2026, 10, 1, tzinfo=UTC)) == [
        ("Sun 2026-10-25 02:30 (UTC+02:00)", "Sun 2026-10-25 00:30"),
        ("Sun 2026-10-25 02:30 (UTC+01:00)", "Sun 2026-10-25 01:30"),
        ("Sun 2026-10-25 03:30 (UTC+01:00)", "Sun 2026-10-25 02:30"),
    ]


def test_the_change_itself_is_named() -> None:
    shown = preview(Schedule(cron="0 3 * * 3", time_zone=BERLIN), datetime(2026, 3, 1, tzinfo=UTC))
    assert shown.change is not None
    assert shown.change.local_text == "Sun 2026-03-29 03:00 (UTC+02:00)"
    assert shown.offset_before == "UTC+01:00"
    assert shown.around == []


def test_a_zone_without_changes_shows_none() -> None:
    shown = preview(Schedule(cron="0 3 * * *"), datetime(2026, 3, 1, tzinfo=UTC))
    assert shown.change is None
    assert shown.around == []
