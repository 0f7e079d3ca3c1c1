"""Take every image of the README and the docs from the demo, in a real browser, light and dark.

    HEADGATE_PASSWORD=… python bootstrap/screenshots.py [--url URL] [--user NAME] [--only NAME]…

Run `make run` first, and let the demo work for some minutes: the charts show the last 15. The
password is that of a user who can start queries; without HEADGATE_PASSWORD, the script prompts for
it. NAME.png is the light image, NAME-dark.png the dark one. If the demo has not failed yet, its
query with a bug is started.
"""

import argparse
import getpass
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from run import REPOSITORY, fail, print_line

sys.path.append(str(REPOSITORY))
from tests.pieces import chromium_arguments, missing_browser

IMAGES = REPOSITORY / "docs" / "images"
SIZE: ViewportSize = {"width": 1366, "height": 854}
THEMES = {"light": "", "dark": "-dark"}
#: The demo's query with a bug (examples/flights/definitions.py).
BUGGY = "delay-recovery"
PAGE_LIMIT_MS = 30_000
FAILURE_LIMIT_S = 300
LOOK_EVERY_S = 5


def _open_failure(page: Page) -> None:
    page.goto("/failures/")
    with page.expect_navigation():
        page.locator("main a[data-row-link]").first.click()


#: Image -> how its page is opened.
SHOTS: dict[str, Callable[[Page], object]] = {
    "queries": lambda page: page.goto("/queries/"),
    "query": lambda page: page.goto("/queries/flight-delays/"),
    "failure": _open_failure,
}


def sign_in(page: Page, user: str, password: str) -> None:
    """Sign in with a password; exit if it is wrong."""
    page.goto("/")
    page.locator("#id_username").fill(user)
    page.locator("#id_password").fill(password)
    with page.expect_navigation():
        page.get_by_role("button", name="Sign in", exact=True).click()
    if page.locator("#id_password").count():
        fail(f"Could not sign in as {user}.", "Check --user and HEADGATE_PASSWORD.")


def make_a_failure(page: Page) -> None:
    """Start the query with a bug unless there is a failure; wait for the first one."""
    page.goto("/failures/")
    if page.locator("main a[data-row-link]").count():
        return
    print_line(f"No failure yet: starting {BUGGY}.")
    page.goto(f"/queries/{BUGGY}/start/")
    with page.expect_navigation():
        page.locator("main form.confirm").get_by_role("button", name="Start").click()
    deadline = time.monotonic() + FAILURE_LIMIT_S
    while time.monotonic() < deadline:
        page.goto("/failures/")
        if page.locator("main a[data-row-link]").count():
            return
        time.sleep(LOOK_EVERY_S)
    fail(f"{BUGGY} has not failed within {FAILURE_LIMIT_S} s.", "Look at its page and its log.")


def shoot(page: Page, name: str, file: Path) -> None:
    """Open a page and save its visible part, once it is live and its fonts are loaded."""
    SHOTS[name](page)
    page.wait_for_load_state()
    page.locator('#live[data-state="live"]').wait_for()
    page.evaluate("document.fonts.ready.then(() => true)")
    page.mouse.move(SIZE["width"] - 1, SIZE["height"] - 1)  # hover over nothing
    page.screenshot(path=file, animations="disabled")
    print_line(f"  {file.relative_to(REPOSITORY)}")


def take(browser: Browser, url: str, user: str, password: str, names: list[str]) -> None:
    """Take the named images in each theme."""
    for theme, suffix in THEMES.items():
        context = browser.new_context(
            base_url=url,
            viewport=SIZE,
            color_scheme="dark" if theme == "dark" else "light",
            locale="en-GB",
            timezone_id="UTC",
        )
        context.set_default_timeout(PAGE_LIMIT_MS)
        page = context.new_page()
        sign_in(page, user, password)
        if "failure" in names:
            make_a_failure(page)
        for name in names:
            shoot(page, name, IMAGES / f"{name}{suffix}.png")
        context.close()


def main(arguments: list[str]) -> None:
    """Take the images that the command line names, otherwise all."""
    parser = argparse.ArgumentParser(description="Take the images of the README and the docs.")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="of a running `make run`")
    parser.add_argument("--user", default="admin", help="a user who can start queries")
    parser.add_argument(
        "--only", action="append", choices=sorted(SHOTS), default=[], help="take only this image"
    )
    options = parser.parse_args(arguments)
    if missing := missing_browser():
        fail("No browser was found.", missing)
    password = os.environ.get("HEADGATE_PASSWORD") or getpass.getpass(
        f"{options.user}'s password: "
    )
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium_arguments())
        try:
            take(browser, options.url, options.user, password, options.only or list(SHOTS))
        finally:
            browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
