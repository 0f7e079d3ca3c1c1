"""The page of the REST API, all of it opened, in both themes and at three widths."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tests.browser.conftest import Complaints, Open, too_wide

pytestmark = pytest.mark.browser

OPEN_ALL = "document.querySelectorAll('details.api-item').forEach((one) => { one.open = true; })"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_the_whole_reference(
    look: Open, viewer: User, axe: str, complaints: Complaints, dark: bool
) -> None:
    page = look(viewer, "/api/v1/docs/", dark=dark)
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
    page.evaluate(OPEN_ALL)
    expect(page.locator("#create_query")).to_be_visible()
    page.evaluate(axe)
    found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    faults = [
        f"{fault['id']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
        for fault in found["violations"]
    ]
    assert not faults, "\n".join(faults)
    assert complaints.said == []


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_the_reference_scrolls_only_downwards(look: Open, viewer: User, width: int) -> None:
    page = look(viewer, "/")
    page.set_viewport_size({"width": width, "height": 900})
    assert too_wide(page, ["/api/v1/docs/"]) == []
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_link_to_a_form_opens_it(look: Open, viewer: User, complaints: Complaints) -> None:
    page = look(viewer, "/api/v1/docs/")
    page.get_by_text("List queries, sorted by name.").click()
    item = page.locator("#list_queries")
    expect(item.get_by_role("region", name="Example of GET /api/v1/queries/")).to_be_visible()
    item.get_by_role("link", name="QueryPage").click()
    expect(page.locator("#form-QueryPage")).to_be_visible()
    assert complaints.said == []
