"""The Schedule tab: right in both themes and narrow, and its pause works."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.browser.conftest import Open, too_wide
from tests.scenarios.stage import Stage
from tests.web.schedules.test_planned import TAB, planned

pytestmark = pytest.mark.browser


def test_the_tab_in_both_themes_and_narrow(
    look: Open, axe: str, operator: User, stage: Stage
) -> None:
    planned(stage)
    themes: tuple[dict[str, bool], ...] = ({}, {"dark": True}, {"narrow": True})
    for more in themes:
        page = look(operator, TAB, **more)
        expect(page.get_by_role("img", name="The last run took")).to_be_visible()
        page.evaluate(axe)
        found = page.evaluate("axe.run().then((result) => result.violations)")
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        assert too_wide(page, [TAB]) == []
    page.get_by_role("button", name="Pause schedule").click()
    expect(page.get_by_text("is paused: its planned times are skipped")).to_be_visible()
    page.get_by_role("button", name="Resume schedule").click()
    expect(page.get_by_role("button", name="Pause schedule")).to_be_visible()
