"""Ctrl-K from any page to a query, an act, a failure, in a real browser."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.conftest import sign_in
from tests.scenarios.stage import DIVIDE, Stage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()


@pytest.fixture
def console(
    page: Page, context: BrowserContext, live_server: LiveServer, operator: User, stage: Stage
) -> Page:
    for name in ("flight-delays", "long-delays"):
        stage.query(name)
        stage.up(name)
    stage.fail("long-delays", DIVIDE, batch=7)
    sign_in(context, live_server.url, operator)
    page.goto(f"{live_server.url}/audit/")
    page.wait_for_load_state()
    return page


def _open(page: Page) -> None:
    page.keyboard.press("Control+k")
    expect(page.locator("#dialog #find")).to_be_focused()


def test_a_query_is_three_keys_and_enter_away(console: Page) -> None:
    _open(console)
    console.keyboard.type("flight-d")
    expect(console.locator("#dialog [data-found]").first).to_contain_text("flight-delays")
    expect(console.get_by_role("region", name="Queries")).to_contain_text("flight-delays")
    console.get_by_role("region", name="Queries").get_by_role("link").press("Enter")
    console.wait_for_url("**/queries/flight-delays/")


def test_an_act_asks_for_its_confirmation_where_one_is(console: Page) -> None:
    _open(console)
    console.keyboard.type("restart flight-d")
    expect(console.locator("#dialog [data-found]")).to_have_count(1)
    console.keyboard.press("Enter")
    expect(console.locator("#dialog .confirm")).to_contain_text("flight-delays")
    assert console.url.endswith("/audit/")


def test_arrows_move_and_escape_closes(console: Page) -> None:
    _open(console)
    console.keyboard.type("division zero")
    expect(console.get_by_role("region", name="Failures")).to_be_visible()
    console.keyboard.press("ArrowDown")
    expect(console.locator("#dialog [data-found]").first).to_be_focused()
    console.keyboard.press("ArrowUp")
    expect(console.locator("#dialog #find")).to_be_focused()
    console.keyboard.press("Escape")
    expect(console.locator("#dialog")).to_be_hidden()


def test_axe_finds_nothing_and_it_fits_a_phone(console: Page) -> None:
    console.set_viewport_size({"width": 390, "height": 800})
    _open(console)
    console.keyboard.type("delays")
    expect(console.get_by_role("region", name="Queries")).to_be_visible()
    console.evaluate(AXE)
    found = console.evaluate("axe.run('#dialog').then((result) => result.violations)")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    width = console.evaluate("document.documentElement.scrollWidth")
    assert width <= 390


def test_without_a_keyboard_the_link_opens_it_and_without_scripts_a_page(
    console: Page, live_server: LiveServer
) -> None:
    console.locator("[data-find-open]").click()
    expect(console.locator("#dialog #find")).to_be_focused()
    console.goto(f"{live_server.url}/find/?q=delays")
    expect(console.get_by_role("heading", name="Find", exact=True).first).to_be_visible()
    expect(console.get_by_role("link", name="flight-delays Running")).to_be_visible()
