"""What somebody types into a definition is not lost by a wrong click, in a real browser."""

import time

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import BrowserContext, Dialog, Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.conftest import sign_in
from tests.scenarios.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

LIMIT_S = 30.0  # for a busy machine, never a measure
expect.set_options(timeout=LIMIT_S * 1000)

TYPED = "SELECT value FROM flights WHERE value > 7"


@pytest.fixture
def editor(
    page: Page, context: BrowserContext, live_server: LiveServer, author: User, stage: Stage
) -> Page:
    stage.query("delays")
    sign_in(context, live_server.url, author)
    page.goto(f"{live_server.url}/queries/delays/edit/")
    page.wait_for_load_state()
    return page


def test_leaving_asks_first_and_what_was_typed_can_be_restored(editor: Page) -> None:
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    editor.on("dialog", leave)
    editor.locator("textarea[name=sql]").fill(TYPED)
    editor.get_by_role("link", name="Overview").click()
    expect(editor.get_by_role("heading", name="Overview")).to_be_visible()
    assert asked == ["beforeunload"]

    editor.go_back()
    expect(editor.locator("#draft")).to_contain_text("Your unsaved input from")
    editor.get_by_role("button", name="Restore").click()
    expect(editor.locator("textarea[name=sql]")).to_have_value(TYPED)


def test_who_discards_or_types_nothing_is_not_asked(editor: Page, live_server: LiveServer) -> None:
    asked: list[str] = []

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    editor.on("dialog", leave)
    editor.locator("textarea[name=sql]").fill(TYPED)
    editor.get_by_role("link", name="Discard changes").click()
    editor.wait_for_url("**/queries/delays/")
    editor.goto(f"{live_server.url}/queries/delays/edit/")
    expect(editor.locator("#draft")).to_have_count(0)
    editor.get_by_role("link", name="Overview").click()
    expect(editor.get_by_role("heading", name="Overview")).to_be_visible()
    assert asked == []


def test_a_definition_that_was_saved_leaves_no_draft(editor: Page, live_server: LiveServer) -> None:
    editor.locator("textarea[name=sql]").fill(TYPED)
    editor.get_by_role("button", name="Review changes").click()
    editor.get_by_role("button", name="Save revision 2").click()
    editor.wait_for_url("**/queries/delays/")
    # The script of the page after it is what drops it. To wait for a function, Playwright evaluates
    # text in the page, which our policy refuses.
    end = time.monotonic() + LIMIT_S
    while _draft(editor):
        assert time.monotonic() < end, "the draft is still there"
        editor.wait_for_timeout(50)
    editor.goto(f"{live_server.url}/queries/delays/edit/")
    expect(editor.locator("textarea[name=sql]")).to_have_value(TYPED)
    expect(editor.locator("#draft")).to_have_count(0)


def _draft(page: Page) -> str:
    """Return all that the browser keeps of drafts."""
    told = page.evaluate(
        "Object.entries(sessionStorage).filter(([key]) => key.startsWith('headgate-draft')).join()"
    )
    return str(told)


@pytest.mark.guarantee("G-FILE-2")
def test_a_secret_that_is_typed_in_clear_is_never_kept(editor: Page) -> None:
    code = f"{TYPED} AND token = 'a word of the text'"
    editor.locator("textarea[name=sql]").fill(code)
    options = editor.locator("textarea[name$=options]").last
    options.fill(
        "topic = out\nkafka.ssl.key.password = hunter2-in-clear\n"
        'kafka.sasl.jaas.config = o.a.k.Login required username="u" password="hunter2-too";\n'
        "kafka.ssl.keystore.key = file:keystore"
    )
    kept = _draft(editor)
    assert "hunter2" not in kept
    assert "a word of the text" in kept
    assert "kafka.ssl.key.password = " in kept
    assert "file:keystore" in kept
    assert "topic = out" in kept


@pytest.mark.guarantee("G-FILE-2")
def test_signing_out_forgets_every_draft(editor: Page, live_server: LiveServer) -> None:
    editor.on("dialog", lambda dialog: dialog.accept())
    editor.locator("textarea[name=sql]").fill(TYPED)
    assert TYPED in _draft(editor)
    editor.goto(f"{live_server.url}/")
    assert TYPED in _draft(editor)
    editor.locator("details.menu:has([data-sign-out]) > summary").click()
    editor.get_by_role("button", name="Sign out").click()
    editor.wait_for_url("**/login/**")
    assert _draft(editor) == ""
