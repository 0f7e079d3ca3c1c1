"""Signing in, where one is signed in, and the audit log, in a real browser."""

import re
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect

from queries.services.access.accounts import end_sessions
from queries.services.access.tokens import create_token
from tests.browser.conftest import Complaints, Site, too_wide
from tests.scenarios.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure

PASSWORD = "a password of the cast"
SHOTS = ""


def _sign_in(page: Page, name: str, password: str = PASSWORD) -> None:
    page.goto("/login/")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", password)
    page.locator("main button, form button").first.click()


@pytest.fixture
def page_of(browser: Browser, site: Site) -> Iterator[Callable[[], Page]]:
    """Return what opens a browser in which nobody is signed in."""
    contexts = []

    def opened() -> Page:
        context = browser.new_context(
            base_url=site.address, viewport={"width": 1440, "height": 900}
        )
        contexts.append(context)
        return context.new_page()

    yield opened
    for context in contexts:
        context.close()


def test_what_is_done_stands_in_the_audit_log_with_address_and_number(
    page_of: Callable[[], Page], stage: Stage, admin: User, viewer: User
) -> None:
    stage.query("delays")
    create_token(user=viewer, name="nightly", actor="ada", now=stage.now)
    other = page_of()
    _sign_in(other, "vera", "not the password")
    page = page_of()
    _sign_in(page, "ada")
    page.goto("/queries/delays/start/")
    page.get_by_role("button", name="Start").first.click()
    page.goto("/audit/")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(page.locator("tbody")).to_contain_text("sign-in failed")
    expect(rows.first).to_contain_text("requested an operation")
    expect(rows.first).to_contain_text("127.0.0.1")
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/audit.png", full_page=True)
    page.locator("select[name=act]").select_option(label="signed in")
    expect(rows).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as JSON lines").click()
    assert download.value.suggested_filename == "headgate-audit.jsonl"
    assert '"kind":"sign-in-failed"' in download.value.path().read_text()


def test_one_ends_the_session_of_another_browser_and_its_open_page_notices(
    page_of: Callable[[], Page], site: Site, stage: Stage, viewer: User
) -> None:
    other, page = page_of(), page_of()
    for one in (other, page):
        _sign_in(one, "vera")
    other.goto("/queries/")
    expect(other.locator("#live")).to_have_attribute("data-state", "live")
    page.goto("/settings/account/")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody")).to_contain_text("Chrome on Linux")
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/account.png", full_page=True)
    page.get_by_role("button", name=re.compile("Sign out of Chrome")).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(other.locator("#live")).not_to_have_attribute("data-state", "live")
    other.goto("/queries/")
    expect(other).to_have_url(re.compile("/login/"))


def test_the_pages_fit_a_phone(
    look: Callable[..., Page], complaints: Complaints, stage: Stage, admin: User
) -> None:
    page = look(admin, "/audit/", narrow=True)
    assert too_wide(page, ["/audit/", "/settings/account/", "/settings/users/"]) == []
    if SHOTS:
        page.goto("/audit/")
        page.screenshot(path=f"{SHOTS}/audit-narrow.png")
    assert complaints.said == []
    end_sessions(user=admin, actor="ada", now=stage.now)
