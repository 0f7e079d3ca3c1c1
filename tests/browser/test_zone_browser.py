"""Times in the zone that one has chosen, on pages and charts, with UTC on hover."""

import re
from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from queries.models.history import Transition
from tests.browser.conftest import sign_in
from tests.scenarios.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure


def test_moments_are_drawn_in_the_chosen_zone(
    page: Page, context: BrowserContext, live_server: LiveServer, viewer: User, stage: Stage
) -> None:
    stage.query("delays")
    stage.start("delays")  # at three in the morning, UTC
    sign_in(context, live_server.url, viewer)
    page.goto(f"{live_server.url}/settings/account/")
    page.locator("select[name=zone]").select_option("Asia/Kolkata")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("select[name=zone]")).to_have_value("Asia/Kolkata")
    page.goto(f"{live_server.url}/queries/delays/activity/")
    first = Transition.objects.filter(query__name="delays", subject="phase").earliest("at")
    there = first.at.astimezone(ZoneInfo("Asia/Kolkata"))
    utc = first.at.astimezone(UTC)
    shown = page.locator(f"main time:not([data-age])[title^='{utc:%Y-%m-%d %H:%M:%S}']").first
    expect(shown).to_have_text(f"{there:%Y-%m-%d %H:%M:%S}")
    expect(shown).to_have_attribute("title", re.compile(r"UTC; in Asia/Kolkata "))
