"""The SQL field is an editor over the textarea that is sent, in a real browser."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Page, expect

from queries.domain.definitions.sql_verdict import SqlVerdict
from queries.services.definitions import query_plans
from tests.browser.conftest import Complaints, Open
from tests.scenarios.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure

EDIT = "/queries/delays/edit/"


@pytest.fixture
def edit(look: Open, author: User, stage: Stage) -> Callable[..., Page]:
    """Return what opens the form of a query."""
    stage.query("delays")
    return lambda **more: look(author, EDIT, **more)


def _style(page: Page, selector: str, name: str) -> str:
    found = page.locator(selector).first.evaluate(
        "(node, name) => getComputedStyle(node).getPropertyValue(name)", name
    )
    return str(found)


@pytest.mark.guarantee("G-SUPPLY-2")
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_coloured_in_both_themes_within_the_policy_and_has_a_name(
    edit: Callable[..., Page], complaints: Complaints, axe: str, dark: bool
) -> None:
    page = edit(dark=dark)
    text = page.get_by_role("textbox", name="SQL", exact=True)
    text.fill("SELECT 'a' AS one, 7 -- a remark\nFROM flights")
    expect(page.locator(".cm-line .k")).to_have_text(["SELECT", "AS", "FROM"])
    expect(page.locator(".cm-line .s")).to_have_text(["'a'"])
    expect(page.locator(".cm-line .c")).to_have_text(["-- a remark"])
    ink = {name: _style(page, f".cm-line {name}", "color") for name in (".k", ".s", ".m", ".c")}
    assert len(set(ink.values())) == 4, ink
    # What its own stylesheet says: without the nonce, the policy would have kept it out.
    assert _style(page, ".cm-scroller", "display") == "flex"
    assert complaints.said == []
    page.evaluate(axe)
    wrong = page.evaluate("axe.run('.cm-editor').then((result) => result.violations)")
    assert [(one["id"], one["nodes"][0]["html"]) for one in wrong] == []


def test_what_is_typed_is_sent_and_tab_leaves_the_field(edit: Callable[..., Page]) -> None:
    page = edit()
    text = page.get_by_role("textbox", name="SQL", exact=True)
    page.locator("label[for=id_sql]").click()
    expect(text).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("SELECT value\nFROM flights\nWHERE value > 9")
    expect(page.locator("textarea[name=sql]")).to_have_value(
        "SELECT value\nFROM flights\nWHERE value > 9"
    )
    page.keyboard.press("Tab")
    expect(page.locator("[name=sink_format]")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(text).to_be_focused()
    page.get_by_role("button", name="Review changes").click()
    expect(page.locator(".review")).to_contain_text("WHERE value > 9")
    expect(page.locator(".cm-content")).to_contain_text("WHERE value > 9")


def test_a_row_that_is_added_keeps_the_text_and_its_name_is_offered(
    edit: Callable[..., Page],
) -> None:
    page = edit()
    text = page.get_by_role("textbox", name="SQL", exact=True)
    text.fill("SELECT value FROM ")
    page.get_by_role("button", name="Add a source").click()
    page.locator("[name=sources-1-name]").fill("late-arrivals")
    page.locator("[name=sources-1-ddl_schema]").fill("carrier STRING, legs ARRAY<STRUCT<a: INT>>")
    expect(page.locator(".cm-editor")).to_have_count(1)
    text.focus()
    page.keyboard.press("Control+End")
    page.keyboard.type("late")
    offered = page.get_by_role("option", name="late-arrivals")
    expect(offered).to_be_visible()
    offered.click()
    expect(page.locator("textarea[name=sql]")).to_have_value("SELECT value FROM `late-arrivals`")
    page.keyboard.type(" WHERE leg")
    expect(page.get_by_role("option", name="legs")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".cm-tooltip")).to_have_count(0)
    expect(text).to_be_focused()


def test_the_line_that_spark_refuses_is_marked(
    edit: Callable[..., Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 2, pos 0)"
    verdict = SqlVerdict(ok=False, message=said, line=2, column=1)
    monkeypatch.setattr(query_plans, "ask_spark_of_many", lambda *_, **__: [verdict])
    page = edit()
    text = page.get_by_role("textbox", name="SQL", exact=True)
    text.fill("\nSELECT value\nFORM flights")  # the server counts from the first word
    page.get_by_role("button", name="Review changes").click()
    expect(page.locator(".field-error")).to_contain_text("line 2, column 1")
    expect(page.locator(".cm-failing")).to_have_text("FORM flights")
    expect(page.locator(".cm-failing-at")).to_have_text("FORM")
    expect(text).to_have_attribute("aria-invalid", "true")
    expect(text).to_have_attribute("aria-describedby", "id_sql_helptext id_sql_error")
    expect(text).not_to_be_focused()


def test_without_javascript_the_textarea_is_the_field(
    edit: Callable[..., Page], context: BrowserContext
) -> None:
    page = edit(java_script_enabled=False)
    field = page.get_by_role("textbox", name="SQL", exact=True)
    assert field.evaluate("node => node.tagName") == "TEXTAREA"
    field.fill("SELECT value FROM flights WHERE value > 3")
    page.get_by_role("button", name="Review changes").click()
    expect(page.locator(".review")).to_contain_text("WHERE value > 3")
