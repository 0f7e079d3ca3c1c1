"""The page of all schedules: found in the navigation, right in both themes and narrow."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from queries.domain.schedules.planning import PlannedState, SkipReason
from queries.models.schedules import PlannedRun
from queries.services.schedules import ticks
from tests.browser.conftest import Complaints, Open, too_wide
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.browser


@pytest.fixture
def night(stage: Stage) -> Stage:
    """A schedule that ran once and was skipped at once many times."""
    query = stage.query(
        "delays", trigger={"kind": "available_now"}, schedule={"cron": "30 2 * * *"}
    )
    ticks.follow_schedule(query.revisions.get())
    at = timezone.now() - timedelta(hours=2)
    PlannedRun.objects.create(
        query=query,
        key="ran",
        due_at=at,
        state=PlannedState.DONE,
        started_at=at + timedelta(seconds=100),
        ended_at=at + timedelta(seconds=160),
    )
    PlannedRun.objects.create(
        query=query,
        key="missed",
        due_at=at + timedelta(hours=1),
        first_due_at=at + timedelta(minutes=1),
        due_times=60,
        state=PlannedState.SKIPPED,
        skipped=SkipReason.MISSED,
    )
    return stage


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_night_is_one_click_away(
    look: Open, night: Stage, viewer: User, axe: str, complaints: Complaints, dark: bool
) -> None:
    page = look(viewer, "/", dark=dark)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Schedules").click()
    expect(page.get_by_role("heading", name="Schedules", level=1)).to_be_visible()
    row = page.get_by_role("row").filter(has_text="delays")
    expect(row.first).to_contain_text("60 missed")
    expect(row.first).to_contain_text("1, up to 1 min 40 s")
    runs = page.get_by_role("table", name="Planned runs of delays")
    expect(runs).to_contain_text("60 due times were missed")
    page.get_by_label("Window").select_option("6")
    page.wait_for_url("**/schedules/?hours=6**")
    page.evaluate(axe)
    assert page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"] == []
    assert complaints.said == []


def test_a_narrow_page_scrolls_only_downwards(look: Open, night: Stage, viewer: User) -> None:
    page = look(viewer, "/schedules/", narrow=True)
    row = page.get_by_role("row").filter(has_text="60 missed").first
    skipped = row.locator('[data-is="Skipped"]').bounding_box()
    assert skipped is not None
    assert skipped["x"] + skipped["width"] <= 390  # seen without scrolling sideways
    assert too_wide(page, ["/schedules/"]) == []
