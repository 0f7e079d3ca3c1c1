"""A failure in a real browser: found in the list, read, copied, resolved."""

from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from queries.models.failures import FailureGroup
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
    client = Client()
    client.force_login(operator)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_server.url}])
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.route("**/live/**", lambda route: route.abort())  # the streams have tests of their own
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
