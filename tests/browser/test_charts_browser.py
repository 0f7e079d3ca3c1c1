"""Marks on a query's charts are seen, read and followed; a zoom can be given to others."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from queries.models.history import Failure
from tests.browser.conftest import sign_in
from tests.scenarios.stage import DIVIDE, Stage
from tests.web.batches import batches

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure


@pytest.fixture
def charts(
    page: Page, context: BrowserContext, live_server: LiveServer, viewer: User, stage: Stage
) -> Page:
    stage.now = timezone.now() - timedelta(minutes=8)
    stage.query("delays")
    stage.up("delays")
    stage.commit("delays")
    batches(stage.run("delays"), 30, until=stage.now + timedelta(minutes=4), every_s=8)
    stage.now += timedelta(minutes=4)
    stage.fail("delays", DIVIDE, batch=31)
    sign_in(context, live_server.url, viewer)
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.goto(f"{live_server.url}/queries/delays/")
    expect(page.locator(".u-over").first).to_be_visible()
    return page


def _place(page: Page, at: float) -> tuple[float, float]:
    """Return where a moment is on the first chart, in pixels of the page."""
    box = page.locator(".u-over").first.bounding_box()
    assert box is not None
    now = page.evaluate("headgate.now() / 1000")
    share = (at - (now - 900)) / 900
    return box["x"] + share * box["width"], box["y"] + box["height"] / 2


def test_a_mark_is_read_on_hover_and_followed_by_a_click(charts: Page) -> None:
    failure = Failure.objects.get()
    x, y = _place(charts, failure.at.timestamp())
    charts.mouse.move(x - 30, y)
    charts.mouse.move(x, y, steps=4)
    expect(charts.locator(".chart-mark").first).to_contain_text("DIVIDE_BY_ZERO")
    charts.mouse.click(x, y)
    charts.wait_for_url(f"**/failures/{failure.pk}/")


def test_a_zoom_has_an_address_that_shows_the_same_time(charts: Page) -> None:
    expect(charts.locator("#share-range")).to_be_hidden()
    box = charts.locator(".u-over").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    charts.mouse.move(box["x"] + box["width"] * 0.5, y)
    charts.mouse.down()
    charts.mouse.move(box["x"] + box["width"] * 0.7, y, steps=5)
    charts.mouse.up()
    expect(charts.locator("#share-range")).to_be_visible()
    asked = parse_qs(urlsplit(charts.locator("#share-range").get_attribute("href") or "").query)
    charts.locator("#share-range").click()
    charts.wait_for_url("**since=**")
    expect(charts.locator(".u-over").first).to_be_visible()
    assert asked["since"][0][:16].replace("T", " ") in charts.locator(".range-line").inner_text()
