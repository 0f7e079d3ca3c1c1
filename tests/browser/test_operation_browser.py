"""The page of an operation in a real browser: its steps move, its buttons stay in reach."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.browser.conftest import Complaints, Open, Site
from tests.scenarios.async_logs import AsyncQuery
from tests.scenarios.stage import Stage
from tests.scenarios.test_async_off import Way
from tests.web.batches import batches

pytestmark = [pytest.mark.browser, pytest.mark.redis]

LIMIT_MS = 30_000


def test_the_way_off_is_followed_live_and_cancelled_in_a_dialog(
    look: Open, site: Site, author: User, stage: Stage, tmp_path: Path, complaints: Complaints,
    axe: str,
) -> None:  # fmt: skip
    flights = AsyncQuery(stage, tmp_path)
    flights.up()
    batches(stage.run("flights"), 11, until=stage.now, first=110, rows=4210)
    page = look(author, "/queries/flights/")
    expect(page.locator(f"#exposure-{flights.query.pk}")).to_contain_text("9 batches")
    page.get_by_role("link", name="Switch it off safely…").click()
    expect(page.get_by_text("until 2 batches have committed")).to_be_visible()
    way = Way(stage, flights)
    row = way.ask()
    page = look(author, f"/operations/{row.uuid}/")
    expect(page.locator(".step-now")).to_contain_text("Start the query with it")
    way.restarted()
    flights.commit()
    way.work()
    site.say(f"operation:{row.uuid}")
    expect(page.locator(".step-now")).to_contain_text("1 of 2 batches", timeout=LIMIT_MS)
    page.evaluate(axe)
    found = page.evaluate("axe.run().then((found) => found.violations.map((one) => one.id))")
    assert found == []
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the operation").click()
    expect(page.get_by_text("Cancelled").first).to_be_visible(timeout=LIMIT_MS)
    row.refresh_from_db()
    assert row.outcome == "CANCELLED"
    assert complaints.said == []
