"""The schedule on a query's form: its next times, and what saving does to it."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.domain.definitions.spec import Schedule
from queries.models.definitions import Query
from queries.models.schedules import ScheduleState
from queries.services.definitions import catalog
from tests.web.browserless import Page

SCHEDULE = {
    "cron": "30 2 * * *",
    "time_zone": "Europe/Berlin",
    "overlap": "queue",
    "missed": "skip",
    "catch_up_window_s": 600,
    "timeout_s": 3600,
    "params": {"day": "{date}"},
}
SPEC = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate", "options": {"rowsPerSecond": "5"}}],
    "sql": "SELECT value, :day AS day FROM ticks",
    "params": {"day": ""},
    "sink": {"format": "noop"},
    "trigger": {"kind": "available_now"},
    "schedule": SCHEDULE,
}


@pytest.fixture
def form(client: Client, author: User, now: datetime) -> Page:
    catalog.create_query(name="ticks", spec=SPEC, actor="aude", now=now)
    client.force_login(author)
    return Page(client, "/queries/ticks/edit/", form="definition")


def _saved() -> object:
    revision = Query.objects.get().revisions.order_by("-number").first()
    assert revision is not None
    assert revision.number == 2
    return revision.spec.get("schedule")


def test_a_save_keeps_the_schedule_as_it_was(form: Page) -> None:
    form.press("review", description="counts ticks").press("save")
    assert _saved() == Schedule.model_validate(SCHEDULE).model_dump(mode="json")
    assert ScheduleState.objects.count() == 1


def test_a_schedule_is_removed_by_emptying_its_expression(form: Page) -> None:
    form.press("review", schedule_cron="").press("save")
    assert _saved() is None
    assert not ScheduleState.objects.exists()


def test_a_wrong_expression_is_shown_at_its_field(form: Page) -> None:
    shown = form.press("review", schedule_cron="61 2 * * *")
    assert "is not a valid cron expression" in shown.text


def test_the_next_times_are_shown_in_local_time_and_utc(client: Client, author: User) -> None:
    client.force_login(author)
    asked = {"schedule_cron": "30 2 * * *", "schedule_time_zone": "Europe/Berlin"}
    shown = client.get("/schedule/preview/", asked).content.decode()
    assert shown.count("<tr><td>") >= 5
    assert "02:30 (UTC+0" in shown
    assert "The clocks change on" in shown


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"schedule_cron": ""}, ""),
        ({"schedule_cron": "0 3 * *"}, "five fields"),
        ({"schedule_cron": "0 3 * * *", "schedule_time_zone": "Mars"}, "is not an IANA time zone"),
        ({"schedule_cron": "0 3 * * *", "schedule_timeout_s": "x"}, "timeout_s"),
        ({"schedule_cron": "0 3 30 2 *"}, "is not a valid cron expression"),
    ],
)
def test_a_preview_says_what_is_wrong(
    client: Client, author: User, asked: dict[str, str], said: str
) -> None:
    client.force_login(author)
    shown = client.get("/schedule/preview/", asked).content.decode()
    assert said in shown
    assert "Next times" not in shown


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"schedule_after": "orders"}, "It starts after each completed run of orders."),
        (
            {"schedule_files": "s3a://in/orders", "schedule_poll_interval_s": "600"},
            "144 listings a day.",
        ),
        ({"schedule_after": "orders", "schedule_cron": "0 3 * * *"}, "Set exactly one of cron"),
    ],
)
def test_what_starts_it_is_said_in_words(
    client: Client, author: User, asked: dict[str, str], said: str
) -> None:
    client.force_login(author)
    assert said in client.get("/schedule/preview/", asked).content.decode()


def test_a_schedule_is_changed_to_follow_a_query(form: Page) -> None:
    form.press("review", schedule_cron="", schedule_after="orders").press("save")
    state = ScheduleState.objects.get()
    assert (state.kind, state.problem) == ("after", "There is no query orders.")
