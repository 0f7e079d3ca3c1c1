"""The trigger's page draws its curves, keeps the policy, and bars nobody, in both themes."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.browser.conftest import Complaints, Open
from tests.scenarios.stage import Stage
from tests.web.triggers.test_trigger_page import kafka, lag, measured, slow

pytestmark = pytest.mark.browser


@pytest.fixture
def advised(stage: Stage) -> Stage:
    """Return an installation with measured queries, and one that outgrew its cores."""
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    stage.query("delays", "kafkas", **kafka())
    stage.up("delays", "kafkas")
    measured(stage, "delays", 60)
    slow(stage, "delays")
    trigger = {"kind": "continuous", "interval": "1 second"}
    stage.application("small", master="local[4]", connectors=["kafka"])
    grown = stage.query("grown", "small", **kafka(trigger=trigger))
    stage.up("grown", "small")
    lag(grown, 6)
    return stage


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_trigger_page_is_drawn_and_bars_nobody(
    look: Open, advised: Stage, author: User, axe: str, complaints: Complaints, dark: bool
) -> None:
    page = look(author, "/queries/delays/trigger/", dark=dark)
    expect(page.locator(".advice-charts canvas")).to_have_count(2, timeout=60_000)
    faults = []
    for address in ("/queries/delays/trigger/", "/queries/grown/trigger/"):
        page.goto(address)
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        page.evaluate(axe)
        found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults += [
            f"{address} {fault['id']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
            for fault in found["violations"]
        ]
    assert not faults, "\n".join(faults)
    assert complaints.said == []
    expect(page.locator("[id^=head-]")).to_contain_text("in has 6; the application has 4 cores")


def test_one_click_saves_the_revision(look: Open, advised: Stage, author: User) -> None:
    page = look(author, "/queries/delays/trigger/")
    page.get_by_role("button", name="Save the revision").first.click()
    expect(page.get_by_text("Revision 2 was saved")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("next restart")).to_be_visible()


def test_the_trigger_page_scrolls_only_downwards(look: Open, advised: Stage, author: User) -> None:
    page = look(author, "/queries/delays/trigger/", narrow=True)
    expect(page.locator(".advice-charts canvas")).to_have_count(2, timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
