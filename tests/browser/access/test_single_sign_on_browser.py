"""One clicks the button, signs in at a real identity provider, and is in: with a real browser."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Complaints, Site
from tests.oidc.conftest import give, trust
from tests.oidc.real import RealProvider, real_provider

pytestmark = [pytest.mark.browser, pytest.mark.oidc]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure

ACCESSIBLE = "axe.run(document, {resultTypes: ['violations']})"


@pytest.fixture
def provider(site: Site, settings: Any, tmp_path: Path) -> Iterator[RealProvider]:
    """Run a provider that leads back to the console."""
    with real_provider(tmp_path, site.address) as running:
        trust(settings, running.issuer)
        yield running


@pytest.fixture
def visit(
    browser: Browser, site: Site, complaints: Complaints
) -> Iterator[Callable[[bool, bool], Page]]:
    """Return what opens a browser in which nobody is signed in: `visit(narrow, dark)`."""
    contexts = []

    def open_browser(narrow: bool, dark: bool) -> Page:
        context = browser.new_context(
            base_url=site.address,
            viewport={"width": 390 if narrow else 1440, "height": 900},
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        # The provider's own pages ask for a font of the network's.
        context.route(lambda address: "127.0.0.1" not in address, lambda route: route.abort())
        page = context.new_page()
        page.on(
            "console",
            lambda said: (
                complaints.said.append(said.text)
                if said.type == "error" and page.url.startswith(site.address)
                else None
            ),
        )
        return page

    yield open_browser
    for context in contexts:
        context.close()


def _seen(page: Page, axe: str, name: str) -> None:
    page.evaluate(axe)
    found: Any = page.evaluate(ACCESSIBLE)
    assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]  # type: ignore[index]
    if folder := os.environ.get("HEADGATE_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize(("narrow", "dark"), [(False, False), (True, True)])
def test_the_button_leads_to_the_provider_and_back_to_the_page_that_was_asked_for(
    visit: Callable[[bool, bool], Page],
    provider: RealProvider,
    site: Site,
    axe: str,
    complaints: Complaints,
    narrow: bool,
    dark: bool,
) -> None:
    give(data="admin")
    provider.has(nina=["data"])
    page = visit(narrow, dark)
    page.goto("/settings/groups/")
    button = page.get_by_role("link", name="Sign in with Acme ID")
    expect(button).to_be_visible()
    _seen(page, axe, f"sign-in-{narrow}")
    button.click()
    page.wait_for_url(f"{provider.issuer}/**")
    page.locator("input[name=login]").fill("nina")
    page.locator("input[name=password]").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(f"{site.address}/settings/groups/")
    expect(page.get_by_role("heading", name="Group roles")).to_be_visible()
    expect(page.get_by_role("rowheader", name="data")).to_be_visible()
    _seen(page, axe, f"group-roles-{narrow}")
    page.goto("/settings/users/")
    expect(page.get_by_role("row", name="nina")).to_contain_text("single sign-on")
    _seen(page, axe, f"users-{narrow}")
    assert complaints.said == []


def test_who_has_no_group_of_the_table_reads_which_they_came_with(
    visit: Callable[[bool, bool], Page], provider: RealProvider, axe: str
) -> None:
    provider.has(olaf=["sales", "/acme/data-platform/with-a-rather-long-name-of-a-group"])
    page = visit(False, False)
    page.goto("/login/")
    page.get_by_role("link", name="Sign in with Acme ID").click()
    page.locator("input[name=login]").fill("olaf")
    page.locator("input[name=password]").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="None of your groups has a role here")).to_be_visible()
    expect(page.get_by_text("data-platform@example.org")).to_be_visible()
    _seen(page, axe, "without-a-role")
    page.goto("/sso/callback/?state=used&code=x")
    expect(page.get_by_role("heading", name="Not signed in")).to_be_visible()
    _seen(page, axe, "not-signed-in")
