"""A failure in a real browser: found in the list, read, copied, resolved."""

from dataclasses import replace
from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from queries.models.history import FailureGroup
from tests.browser.conftest import sign_in
from tests.scenarios.stage import DIVIDE, Stage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()


@pytest.fixture
def failures(
    page: Page, context: BrowserContext, live_server: LiveServer, operator: User, stage: Stage
) -> Page:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", DIVIDE, batch=7)
    sign_in(context, live_server.url, operator)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{live_server.url}/failures/")
    return page


def test_from_the_list_to_the_cause_to_resolved(failures: Page) -> None:
    failures.get_by_role("link", name="DIVIDE_BY_ZERO").click()
    expect(failures.get_by_role("heading", name="Root cause", exact=True)).to_be_visible()
    expect(failures.get_by_text("Use try_divide(a, b)")).to_be_visible()
    failures.get_by_role("button", name="Resolve").click()
    expect(failures.get_by_text("It reopens automatically")).to_be_visible()
    expect(failures.get_by_role("button", name="Reopen")).to_be_visible()
    assert FailureGroup.objects.get().status == "RESOLVED"


def test_the_root_cause_is_copied_whole(failures: Page) -> None:
    failures.get_by_role("link", name="DIVIDE_BY_ZERO").click()
    failures.wait_for_url("**/failures/*/")
    failures.wait_for_load_state()  # the button is drawn before its script is there
    failures.get_by_role("button", name="Copy the root cause").click()
    expect(failures.locator("#announcer")).to_have_text("Copied")
    assert failures.evaluate("navigator.clipboard.readText()") == DIVIDE.root_cause


def test_editing_opens_the_sql_at_the_failing_line_and_caret(
    failures: Page, operator: User, stage: Stage
) -> None:
    operator.groups.add(Group.objects.get(name="author"))
    stage.query(
        "rows", sql="\n".join(["SELECT value,", *["-- a line"] * 60, "1/0 AS n FROM flights"])
    )
    stage.up("rows")
    placed = f"{DIVIDE.message}\n== SQL (line 62, position 3) ==\n1/0 AS n\n  ^\n"
    stage.fail("rows", replace(DIVIDE, message=placed), batch=3)
    failures.goto(failures.url.replace("/failures/", "/queries/rows/failures/"))
    failures.get_by_role("link", name="DIVIDE_BY_ZERO").first.click()
    failures.get_by_role("link", name="Edit", exact=False).filter(has_text="…").click()
    expect(failures.get_by_role("textbox", name="SQL", exact=True)).to_be_focused()
    line = failures.locator(".cm-failing")
    expect(line).to_be_in_viewport()
    expect(line).to_have_text("1/0 AS n FROM flights")
    before = """() => {
        const { anchorNode, anchorOffset } = getSelection(), range = document.createRange();
        range.setStart(document.querySelector(".cm-failing"), 0);
        range.setEnd(anchorNode, anchorOffset);
        return range.toString();
    }"""
    assert failures.evaluate(before) == "1/"


def _serious(page: Page) -> list[tuple[str, list[str]]]:
    page.evaluate(AXE)
    found = page.evaluate("axe.run().then((result) => result.violations)")
    return [
        (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_axe_finds_nothing_serious(failures: Page) -> None:
    assert _serious(failures) == []
    failures.get_by_role("link", name="DIVIDE_BY_ZERO").click()
    expect(failures.get_by_role("heading", name="Root cause", exact=True)).to_be_visible()
    assert _serious(failures) == []
