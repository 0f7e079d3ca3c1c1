"""What is wrong with a schedule is named with its field and a way out."""

from datetime import UTC, datetime
from typing import Any

import pytest

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.checks import (
    listing_cost,
    schedule_problems,
    skipped_words,
    when_words,
)
from queries.domain.schedules.planning import SkipReason


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cron": "61 * * * *"}, "schedule.cron"),
        ({"cron": "* * * * * *"}, "schedule.cron"),
        ({"cron": "0 0 30 2 *"}, "schedule.cron"),
        ({"cron": "daily"}, "schedule.cron"),
        ({"cron": "0 3 * * *", "time_zone": "Mars/Olympus"}, "schedule.time_zone"),
        ({"cron": "0 3 * * *", "time_zone": "../etc/passwd"}, "schedule.time_zone"),
        ({"cron": "0 3 * * *", "time_zone": ""}, "schedule.time_zone"),
        ({}, "schedule"),
        ({"cron": "0 3 * * *", "after": "orders"}, "schedule"),
        ({"files": "relative/path"}, "schedule.files"),
        ({"files": "/data/in/*.json"}, "schedule.files"),
        ({"files": "/data/../etc"}, "schedule.files"),
    ],
)
def test_what_cannot_be_planned_is_named_with_its_field(given: dict[str, Any], field: str) -> None:
    (problem,) = schedule_problems(Schedule(**given), ends=True)
    assert problem.field == field
    assert problem.way_out


def test_only_what_ends_by_itself_can_have_a_schedule() -> None:
    assert not schedule_problems(None, ends=False)
    for schedule in (
        Schedule(cron="0 3 * * *"),
        Schedule(after="orders"),
        Schedule(files="s3a://in/orders"),
    ):
        assert not schedule_problems(schedule, ends=True)
        (problem,) = schedule_problems(schedule, ends=False)
        assert "available_now" in problem.way_out


def test_what_starts_a_query_is_said_in_words() -> None:
    assert when_words(Schedule(cron="0 3 * * *")) == "0 3 * * * in UTC"
    assert when_words(Schedule(after="orders")) == "after each completed run of orders"
    any_end = Schedule(after="orders", after_end="any")
    assert when_words(any_end) == "after each run of orders, whatever its outcome"
    files = Schedule(files="s3a://in/orders", poll_interval_s=300)
    assert when_words(files) == (
        "60 s after the last new file in s3a://in/orders, which is listed every 300 s"
    )
    assert "288 listings a day. An object store" in listing_cost(files)
    here = listing_cost(Schedule(files="/data/in"))
    assert here == "1,440 listings a day on the application's host."


def test_times_that_were_skipped_together_are_counted() -> None:
    first, last = datetime(2026, 1, 1, 0, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    assert skipped_words(SkipReason.PAUSED, 1, None, last) == "The schedule was paused."
    assert skipped_words(SkipReason.PAUSED, 1440, first, last) == (
        "1,440 due times were skipped, 2026-01-01 00:01 to 2026-01-02 00:00 UTC."
        " The schedule was paused."
    )


@pytest.mark.parametrize(
    ("cron", "way_out"),
    [
        ("@daily", 'Write "0 0 * * *".'),
        ("@Weekly", 'Write "0 0 * * 0".'),
        ("@every 15m", 'Write "*/15 * * * *".'),
        ("@every 1h0m0s", 'Write "0 * * * *".'),
        ("@every 6h", 'Write "0 */6 * * *".'),
        ("@every 24h", 'Write "0 0 * * *".'),
        ("TZ=Europe/Berlin 0 3 * * *", 'Write "0 3 * * *", and set time_zone to "Europe/Berlin".'),
        ("CRON_TZ=UTC @hourly", 'Write "0 * * * *", and set time_zone to "UTC".'),
        ("0 0 12 * * ?", 'Write "0 12 * * *".'),
        ("0 0/5 14,18 * * ?", 'Write "*/5 14,18 * * *".'),
        ("0 15 10 ? * 2-6", 'Write "15 10 * * MON-FRI".'),
        ("0 15 10 ? * MON-FRI 2026/1", ""),
        ("0 15 10 ? * 6#3", 'Write "15 10 * * FRI#3".'),
        ("0 15 10 ? * 6L", 'Write "15 10 * * 5L".'),
        ("0 15 10 ? * 2/2", 'Write "15 10 * * MON-SAT/2".'),
        ("0 15 10 ? * MON/2,2-6/2", 'Write "15 10 * * MON-SAT/2,MON-FRI/2".'),
        ("0 15 10 ? * L", 'Write "15 10 * * SAT".'),
        ("cron(15 10 ? * 6L 2027)", ""),
        ("cron(15 10 ? * 6L *)", 'Write "15 10 * * 5L".'),
        ("rate(1 hour)", 'Write "0 * * * *".'),
        ("rate(15 minutes)", 'Write "*/15 * * * *".'),
        ("rate(1 day)", 'Write "0 0 * * *".'),
        ("rate(7 minutes)", ""),
        ("rate(often)", ""),
        ("cron(0 3 * * *)", 'Write "0 3 * * *".'),
        ("H 3 * * *", ""),
        ("0 0 3 1 * MON", ""),  # Spring's: a Monday that is the first
        ("0 15 10 L * ?", 'Write "15 10 L * *".'),
        ("0 15 10 15W * ?", ""),
        ("0 0 3 * * 1-5", 'Write "0 3 * * 1-5".'),
        ("0 0 3 ? * 0", 'Write "0 3 * * 0".'),
        ("0 0 3 * * ? *", 'Write "0 3 * * *".'),
        ("30 0 3 * * *", 'Write "0 3 * * *".'),
        ("0 3 ? * 2 *", 'Write "0 3 * * MON".'),
        ("0 3 * * ? 2027", ""),
        ("0 3 ? * MON", 'Write "0 3 * * MON".'),
        ("0 3 15W * *", ""),
        ("@reboot", ""),
        ("@every 7m", ""),
        ("@every 90s", ""),
        ("@every 36h", ""),
        ("TZ=Mars 0 3 * * *", ""),
        ("TZ=UTC 0 61 * * *", ""),
    ],
)
def test_another_schedulers_expression_is_refused_with_its_translation(
    cron: str, way_out: str
) -> None:
    (problem,) = schedule_problems(Schedule(cron=cron), ends=True)
    assert problem.field == "schedule.cron"
    if way_out:
        assert problem.way_out == way_out
    else:
        assert problem.way_out.startswith("Give minute, hour")


@pytest.mark.parametrize("cron", ["0 3 L * *", "0 3 LW * *", "0 3 * * 5#3", "0 3 * * 5L"])
def test_what_five_fields_can_say_is_accepted(cron: str) -> None:
    assert not schedule_problems(Schedule(cron=cron), ends=True)
