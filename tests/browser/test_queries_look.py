"""The pages are right in both themes, for the keyboard and for screen readers, and policy."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.utils import timezone
from playwright.sync_api import Page, expect

from queries.models.history import Operation
from tests.browser.conftest import Complaints, Open, Site, too_wide
from tests.scenarios.stage import Stage
from tests.services.bulk import advance_many
from tests.web.pages import pages
from tests.web.test_lineage import flow, told

pytestmark = pytest.mark.browser


#: All rules of axe, and those that depend on the colours.
ALL_RULES = "axe.run(document, {resultTypes: ['violations']})"
COLOUR_RULES = "axe.run(document, {runOnly: ['color-contrast', 'link-in-text-block']})"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_page_breaks_the_policy_or_bars_anybody(
    look: Open, busy: Stage, admin: User, axe: str, complaints: Complaints, dark: bool
) -> None:
    page = look(admin, "/", dark=dark)
    faults: list[str] = []
    for address, _ in pages(admin):
        page.goto(address)
        expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark" if dark else "light")
        expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=60_000)
        page.evaluate(axe)  # through the debugger, which the policy does not bind
        found: Any = page.evaluate(COLOUR_RULES if dark else ALL_RULES)
        faults += [
            f"{address} {fault['id']}: {[node['html'][:160] for node in fault['nodes'][:3]]}"
            for fault in found["violations"]
        ]
    assert not faults, "\n".join(faults)
    assert [said for said in complaints.said if "404" not in said] == []


#: Rules of axe that depend on the width: what scrolls there, and what is close together.
NARROW_RULES = "axe.run(document, {runOnly: ['scrollable-region-focusable', 'target-size']})"


def test_a_narrow_page_scrolls_only_downwards_and_each_part_can_be_reached(
    look: Open, busy: Stage, admin: User, axe: str
) -> None:
    page = look(admin, "/", narrow=True)
    faults: list[Any] = []
    for address, _ in pages(admin):
        faults += too_wide(page, [address])
        page.evaluate(axe)
        found: Any = page.evaluate(NARROW_RULES)
        faults += [(address, one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
    assert faults == []


def test_each_key_that_leads_somewhere_is_in_the_list(
    look: Open, stage: Stage, admin: User
) -> None:
    page = look(admin, "/shortcuts/")
    script = Path(str(finders.find("js/shell.js"))).read_text()
    leads = re.search(r"const go = \{(.*?)\};", script)
    assert leads is not None
    listed = page.locator(".shortcuts dl").inner_text()
    for key, name in re.findall(r'(\w): "(\w+)"', leads[1]):
        assert re.search(rf"g\s+{key}\b", listed), f"g {key} is not in the list"
        assert name in listed


def test_a_laptops_page_scrolls_only_downwards_and_shows_a_rows_acts(
    look: Open, busy: Stage, admin: User
) -> None:
    page = look(admin, "/")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert too_wide(page, [address for address, _ in pages(admin)]) == []
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
    expect(page.get_by_text("The start of 2 queries was requested.")).to_be_visible()
    expect(page.get_by_role("heading", name="Outcomes")).to_be_visible()
    advance_many(Operation.objects.get().pk, now=timezone.now())
    assert stage.row("alpha").desired == stage.row("beta").desired == "RUNNING"
    page.reload()
    expect(page.get_by_text("2 in progress", exact=True)).to_be_visible()
    page.get_by_role("link", name="Back to queries").click()
    expect(page.get_by_role("heading", name="Queries", exact=True)).to_be_visible()


@pytest.mark.parametrize("narrow", [False, True], ids=["wide", "narrow"])
def test_the_bulk_bar_stays_in_sight_while_something_is_selected(
    look: Open, stage: Stage, operator: User, narrow: bool
) -> None:
    for number in range(40):
        stage.query(f"query-{number:02}")
    page = look(operator, "/queries/", narrow=narrow)
    start = page.locator("#bulk").get_by_role("button", name="Start…", exact=True)
    expect(page.locator("#bulk")).not_to_be_in_viewport()
    page.get_by_label("Select query-00", exact=True).check()
    expect(page.locator("#bulk")).to_be_in_viewport(ratio=1)
    expect(start).to_be_visible()
    last = page.get_by_label("Select query-39", exact=True)
    last.check()  # the bar does not cover it
    last.uncheck()
    expect(page.locator("#bulk")).to_contain_text("1 selected")
    page.get_by_label("Select query-00", exact=True).uncheck()
    expect(page.locator("#bulk")).not_to_be_in_viewport()


def test_all_that_match_can_be_selected_without_a_row(
    look: Open, stage: Stage, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.views.supervision.query_list.ROWS", 2)
    for number in range(3):
        stage.query(f"query-{number}")
    page = look(operator, "/queries/")
    page.get_by_label("All 3 queries that match").check()
    expect(page.locator("#bulk")).to_contain_text("All selected")
    page.locator("#bulk").get_by_role("button", name="Start…", exact=True).click()
    expect(page.locator("h1")).to_have_text("Start 3 queries?")


def test_two_keys_go_to_another_page_even_where_its_entry_has_a_count(
    look: Open, busy: Stage, viewer: User
) -> None:
    page = look(viewer, "/queries/")
    expect(page.locator("#open-failures")).to_have_text("2")
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.get_by_role("heading", level=1, name="Failures")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_lineage_is_drawn_for_few_and_for_many_and_bars_nobody(
    look: Open,
    stage: Stage,
    viewer: User,
    axe: str,
    complaints: Complaints,
    dark: bool,
    tmp_path: Path,
) -> None:
    flow(stage)
    told(stage, "code", "KafkaV2[Subscribe[flights]]", "ForeachBatchSink")
    page = look(viewer, "/", dark=dark)
    for address in ("/lineage/", "/queries/late/lineage/", "/lineage/#many"):
        if address.endswith("many"):
            many(stage)
        page.goto(address)
        if address.endswith("many"):
            page.reload()
        expect(page.locator("svg.lineage a").first).to_be_visible()
        page.evaluate(axe)
        found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        faults = [(one["id"], one["nodes"][0]["html"][:160]) for one in found["violations"]]
        assert faults == [], address
        overflow = page.evaluate(CUT_LABELS)
        assert overflow == [], address
        page.screenshot(path=tmp_path / f"{address.strip('/').replace('/', '-')}-{dark}.png")
    assert page.locator("svg.lineage rect").count() > 190
    assert complaints.said == []
    page.locator("svg.lineage a", has_text="late").first.click()
    expect(page.get_by_role("heading", name="late")).to_be_visible()


#: Labels of the picture that are wider than their node.
CUT_LABELS = """[...document.querySelectorAll('svg.lineage g')]
  .filter((g) => g.querySelector('text').getBBox().width + 24
    > g.querySelector('rect').getBBox().width)
  .map((g) => g.textContent)"""


def many(stage: Stage) -> None:
    """Define a hundred queries, each of which reads what one before it writes."""
    for at in range(95):
        source = {"name": "s", "format": "json", "options": {"path": f"/lake/bronze/{at // 3}"}}
        sink = {"format": "json", "options": {"path": f"/lake/bronze/{at + 1}"}}
        stage.query(f"step-{at:02}-of-a-long-flow", sources=[source], sink=sink)
