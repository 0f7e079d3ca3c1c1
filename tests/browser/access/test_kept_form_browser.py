"""A form that met a busy database: kept by the page, sent once more, and left alone by htmx."""

import itertools

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from queries.domain.errors import Busy
from queries.services.access.accounts import refuse_second_team
from tests.browser.conftest import Open

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure


def test_what_was_entered_is_sent_again_with_one_click(
    look: Open, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = itertools.count(1)

    def busy_once() -> None:
        if next(attempts) == 1:
            raise Busy
        refuse_second_team()

    monkeypatch.setattr("queries.services.access.teams.refuse_second_team", busy_once)
    page = look(admin, "/settings/teams/")
    page.fill("input[name=name]", "data")
    page.get_by_role("button", name="Create team").click()
    expect(page.get_by_text("Your input is kept on this page")).to_be_visible()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("Team data was created")).to_be_visible()
    assert next(attempts) == 3


def test_a_form_that_htmx_sends_stays_and_the_reason_is_shown(look: Open, author: User) -> None:
    page = look(author, "/new/query/")
    page.fill("input[name=name]", "delays")
    page.context.clear_cookies(name="csrftoken")
    page.get_by_role("button", name="Add a source").click()
    expect(page.locator(".toasts .note")).to_contain_text("What you entered is still here")
    expect(page.locator("input[name=name]")).to_have_value("delays")
