"""The audit shows who asked for what and what changed, page by page."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.applications import Application
from queries.models.history import Transition
from queries.views.console.fragments import ROWS
from tests.scenarios.stage import Stage
from tests.web.browserless import Page


@pytest.fixture
def acted(stage: Stage) -> Stage:
    stage.query("delays")
    stage.query("ticks")
    stage.up("delays")
    stage.stop("delays")
    return stage


def _see(client: Client, person: User, address: str) -> Page:
    client.force_login(person)
    return Page(client, address)


def test_acts_of_people_are_shown_and_supervisions_where_asked(
    client: Client, viewer: User, acted: Stage
) -> None:
    page = _see(client, viewer, "/audit/")
    assert "olga" in page.text
    assert "start requested" in page.text
    assert "first commit" not in page.text
    assert "first commit" in _see(client, viewer, "/audit/?all=1").text


@pytest.mark.parametrize(
    "asked", ["?query=ticks", "?actor=nobody", "?application=ticks", "?tab=operations&query=ticks"]
)
def test_filters_stand_in_the_address(
    client: Client, viewer: User, acted: Stage, asked: str
) -> None:
    assert "No entries" in _see(client, viewer, f"/audit/{asked}").text


def test_operations_show_verb_actor_and_outcome(client: Client, viewer: User, acted: Stage) -> None:
    page = _see(client, viewer, "/audit/?tab=operations")
    assert "Start" in page.text
    assert "Done" in page.text
    assert "In progress" in page.text  # the stop


def test_pages_go_on_where_the_last_one_ended_though_rows_arrive(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.query("delays")
    application = Application.objects.get()

    def change(number: int) -> None:
        Transition.objects.create(
            at=stage.now + timedelta(seconds=number // 3),  # several at one instant
            application=application,
            subject="desired",
            before="",
            after=f"change-{number:03}",
            reason="",
            actor="ann",
        )

    for number in range(ROWS + 20):
        change(number)
    first = _see(client, viewer, "/audit/")
    for number in range(1000, 1010):
        change(number)
    older = re.search(r'rel="next" href="([^"]+)"', first.html)
    assert older is not None
    second = Page(client, "/audit/" + older[1].replace("&amp;", "&"))
    seen = re.findall(r"<strong>(change-\d+)", first.html + second.html)
    assert seen == [f"change-{number:03}" for number in reversed(range(ROWS + 20))]


def test_a_cursor_that_cannot_be_read_starts_from_the_beginning(
    client: Client, viewer: User, acted: Stage
) -> None:
    page = _see(client, viewer, "/audit/?after=nonsense~x")
    assert page.status == 200
    assert "start requested" in page.text


def test_an_outsider_is_refused(client: Client, outsider: User) -> None:
    client.force_login(outsider)
    assert client.get("/audit/").status_code == 403
