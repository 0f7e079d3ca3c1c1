"""A deploy in a real browser: its report fills live, and a query goes back by a button."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.browser.conftest import Complaints, Open, Site
from tests.scenarios.deploys.way import Way
from tests.scenarios.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.redis]

LIMIT_MS = 30_000


def _faults(page: Page, axe: str) -> object:
    page.evaluate(axe)
    return page.evaluate("axe.run().then((found) => found.violations.map((one) => one.id))")


def test_a_report_is_followed_live_and_a_query_is_rolled_back_in_a_dialog(
    look: Open, site: Site, author: User, stage: Stage, complaints: Complaints, axe: str
) -> None:
    stage.query("delays")
    stage.up("delays")
    way = Way(stage)
    deploy = way.change("delays")
    page = look(author, "/deploys/")
    expect(page.locator(f"#deploy-row-{deploy.pk}")).to_contain_text("Running")
    assert _faults(page, axe) == []
    page.get_by_role("link", name="repo").click()
    report = page.locator(f"#deploy-report-{deploy.pk}")
    expect(report).to_contain_text("It has not committed a batch")
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
    way.came_up("delays")
    site.say(f"deploy:{deploy.pk}")
    expect(report).to_contain_text("first batch 10", timeout=LIMIT_MS)
    expect(page.locator(f"#deploy-status-{deploy.pk}")).to_contain_text("Succeeded")
    expect(page.get_by_role("link", name="Cancel…")).to_be_hidden()
    assert _faults(page, axe) == []
    page.goto("/queries/delays/definition/")
    page.get_by_role("link", name="Roll back…").click()
    page.get_by_role("button", name="Roll back").click()
    done = page.get_by_text("delays is restarting on revision 1.").last
    expect(done).to_be_visible(timeout=LIMIT_MS)
    assert stage.row("delays").revisions.count() == 3
    assert complaints.said == []
