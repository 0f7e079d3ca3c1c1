"""A schedule gives values for parameters, with the planned time among them."""

from datetime import UTC, datetime

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.planning import rendered


def test_texts_have_the_planned_time_in_utc_and_its_date_in_the_zone() -> None:
    given = {"from": "{time}", "day": "day={date}", "low": 3, "all": True}
    schedule = Schedule(cron="30 0 * * *", time_zone="Europe/Berlin", params=given)
    assert rendered(schedule, datetime(2026, 11, 24, 23, 30, tzinfo=UTC)) == {
        "from": "2026-11-24T23:30:00Z",
        "day": "day=2026-11-25",
        "low": 3,
        "all": True,
    }
