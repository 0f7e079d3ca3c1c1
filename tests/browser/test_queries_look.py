"""The pages are right in both themes, for the keyboard and for screen readers, and policy."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from queries.models.drivers import Run
from queries.models.failures import FailureGroup
from tests.browser.conftest import Complaints, Open, Site, too_wide
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, Stage
from tests.web.batches import batches

pytestmark = pytest.mark.browser

PAGES = (
    "/",
    "/queries/",
    "/queries/delays/",
    "/queries/delays/runs/",
    "/queries/broken/failures/",
    "/queries/delays/definition/",
    "/queries/delays/log/",
    "/queries/delays/activity/",
    "/queries/delays/stop/",
    "/bulk/queries/?verb=stop&name=delays&name=idle",
    "/queries/delays/edit/",
    "/queries/delays/labels/",
    "/queries/fatal/",
    "/shortcuts/",
    "/find/?q=delays",
    "/applications/",
    "/applications/delays/",
    "/failures/",
    "/failures/groups/{group}/",
    "/runs/",
    "/runs/{run}/",
    "/checkpoints/",
    "/connectors/",
    "/audit/",
    "/audit/?tab=operations",
    "/alerts/",
    "/alerts/rules/",
    "/alerts/channels/",
    "/alerts/maintenance/",
    "/settings/account/",
    "/settings/tokens/",
    "/settings/users/",
    "/new/query/",
    "/new/application/",
    "/api/v1/docs/",
    "/no/such/page/",
)


def pages() -> list[str]:
    """Return the addresses, with the numbers of what has happened."""
    group = FailureGroup.objects.earliest("pk").pk
    run = Run.objects.earliest("pk").pk
    return [address.format(group=group, run=run) for address in PAGES]


@pytest.fixture
def busy(stage: Stage) -> Stage:
    """Return an installation in which a good deal has happened."""
    stage.now = timezone.now()
    for name in ("delays", "broken", "idle"):
        stage.query(name)
    stage.up("delays")
    batches(stage.run("delays"), 30, until=timezone.now())
    stage.up("broken")
    stage.fail("broken", DIVIDE, batch=3)
    stage.query("fatal")
    stage.up("fatal")
    stage.fail("fatal", NO_SUCH_SOURCE)
    return stage


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_page_breaks_the_policy_or_bars_anybody(
    look: Open, busy: Stage, admin: User, axe: str, complaints: Complaints, dark: bool
) -> None:
    page = look(admin, "/", dark=dark)
    faults: list[str] = []
    for address in pages():
        page.goto(address)
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark" if dark else "light")
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        page.evaluate(axe)  # through the debugger, which the policy does not bind
        found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults += [
            f"{address} {fault['id']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
            for fault in found["violations"]
        ]
    assert not faults, "\n".join(faults)
    assert [said for said in complaints.said if "404" not in said] == []


def test_a_narrow_page_scrolls_only_downwards(look: Open, busy: Stage, admin: User) -> None:
    page = look(admin, "/", narrow=True)
    assert too_wide(page, pages()) == []


def test_a_laptops_page_scrolls_only_downwards_and_shows_a_rows_acts(
    look: Open, busy: Stage, admin: User
) -> None:
    page = look(admin, "/")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert too_wide(page, pages()) == []
    page.goto("/queries/")
    row = page.locator("tr[data-row]", has_text="delays")
    stop = row.get_by_role("button", name="Stop").or_(row.get_by_role("link", name="Stop"))
    box = stop.first.bounding_box()
    panel = page.locator("table.queries").locator("..").bounding_box()
    assert box is not None
    assert panel is not None
    assert box["x"] + box["width"] <= panel["x"] + panel["width"]
    page.goto("/queries/delays/")
    bars, cell = (page.locator(f".figures-beats {one}").bounding_box() for one in ("svg", "dd"))
    assert bars is not None
    assert cell is not None
    assert bars["width"] <= cell["width"]  # what hangs over would be cut off


def test_a_chosen_theme_stands_before_the_first_paint(
    look: Open, stage: Stage, viewer: User
) -> None:
    page = look(viewer, "/queries/")
    page.get_by_label("Dark theme").click()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    answer = page.request.get("/queries/")
    assert '<html lang="en" data-bs-theme="dark"' in answer.text()


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent.trim()"))


def test_the_keyboard_goes_through_the_rows_and_can_be_switched_off(
    look: Open, site: Site, stage: Stage, operator: User
) -> None:
    for name in ("alpha", "beta"):
        stage.query(name)
    page = look(operator, "/queries/")
    page.keyboard.press("j")
    assert focused(page) == "alpha"
    page.keyboard.press("j")
    assert focused(page) == "beta"
    page.keyboard.press("k")
    page.keyboard.press("x")
    expect(page.get_by_label("Select alpha")).to_be_checked()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("j")  # typed, not obeyed
    expect(page.locator("#search")).to_have_value("j")
    page.keyboard.press("Escape")
    page.locator("#main").focus()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Next and previous row")
    dialog.get_by_label("Turn these shortcuts off").check()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.locator("#main").focus()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") != "search"


def test_the_first_tab_leads_past_the_navigation(look: Open, stage: Stage, viewer: User) -> None:
    page = look(viewer, "/queries/")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_selecting_rows_leads_to_a_preview_of_the_bulk_act(
    look: Open, stage: Stage, operator: User
) -> None:
    for name in ("alpha", "beta"):
        stage.query(name)
    page = look(operator, "/queries/")
    page.get_by_label("Select all").check()
    expect(page.locator("[data-selected-text]")).to_have_text("2 selected")
    page.get_by_role("button", name="Start…", exact=True).click()
    expect(page.get_by_role("heading", name="Start 2 queries?")).to_be_visible()
    page.get_by_role("button", name="Start 2 queries").click()
    expect(page.get_by_text("alpha will start.")).to_be_visible()
    assert stage.row("beta").desired == "RUNNING"


def test_two_keys_go_to_another_page_even_where_its_entry_has_a_count(
    look: Open, busy: Stage, viewer: User
) -> None:
    page = look(viewer, "/queries/")
    expect(page.locator("#open-failures")).to_have_text("2")
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.get_by_role("heading", level=1, name="Failures")).to_be_visible()
