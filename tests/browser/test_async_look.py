"""The Async tab in a real browser: drawn live, barred to nobody, in both themes."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.browser.conftest import Complaints, Open
from tests.scenarios.stage import Stage
from tests.web.test_async_calls import tell

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_async_tab_is_drawn_and_bars_nobody(
    look: Open,
    stage: Stage,
    viewer: User,
    axe: str,
    complaints: Complaints,
    dark: bool,
    tmp_path: Path,
) -> None:
    tell(stage, errors=2000.0, retries=1990.0, dead_letters=10.0)
    page = look(viewer, "/queries/delays/async/", dark=dark)
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
    expect(page.get_by_role("heading", name="planes")).to_be_visible()
    expect(page.get_by_text("20% of the calls of 'planes' fail")).to_be_visible()
    page.evaluate(axe)
    found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    faults = [
        f"{fault['id']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
        for fault in found["violations"]
    ]
    assert not faults, "\n".join(faults)
    assert complaints.said == []
    page.screenshot(path=tmp_path / f"async-{dark}.png", full_page=True)
