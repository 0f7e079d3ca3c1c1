"""A browser has six connections to a host over HTTP/1.1: all its tabs share one stream."""

import time
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from queries.domain.states import Phase
from queries.models.definitions import Query
from queries.views.console import hub as served
from tests.browser.conftest import Open, Site
from tests.browser.test_live_pages import LIMIT_MS, live
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.browser
TABS = 8  # two more than a browser has connections


def _tabs(first: Page, count: int) -> list[Page]:
    pages = [first]
    for _ in range(count - 1):
        page = first.context.new_page()
        page.goto(first.url, timeout=LIMIT_MS)
        pages.append(page)
    return pages


def _streams(person: User) -> int:
    assert served._hub is not None
    return served._hub.streams_of(person.pk)


def _until(true: Callable[[], bool], what: str) -> None:
    # Eight pages start at once: on a loaded machine that takes longer than one page is given.
    deadline = time.monotonic() + 6 * LIMIT_MS / 1000
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def _watched() -> int:
    assert served._hub is not None
    return sum(len(viewer._tabs) for viewer in served._hub.viewers)


def test_eight_tabs_are_live_over_one_stream(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    query = stage.query("delays")
    pages = _tabs(look(viewer, "/queries/"), TABS - 1)
    pages += _tabs(look_in(pages[0], site, "/queries/delays/"), 1)
    for page in pages:
        live(page)
    _until(lambda: (_streams(viewer), _watched()) == (1, TABS), "one stream with eight tabs")
    Query.objects.filter(pk=query.pk).update(phase=Phase.PENDING)
    site.say(f"query:{query.pk}")
    for page in pages[:-1]:
        row = page.locator(f"#row-{query.pk}")
        expect(row).to_have_attribute("data-phase", "PENDING", timeout=LIMIT_MS)
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
    expect(pages[-1].locator("main")).to_contain_text("Pending", timeout=LIMIT_MS)
    # A tab that is closed is no longer drawn for; the others stay.
    for page in pages[2:]:
        page.close()
    _until(lambda: _watched() == 2, "two tabs to be left")
    Query.objects.filter(pk=query.pk).update(phase=Phase.STOPPED)
    site.say(f"query:{query.pk}")
    row = pages[0].locator(f"#row-{query.pk}")
    expect(row).to_have_attribute("data-phase", "STOPPED", timeout=LIMIT_MS)


def look_in(page: Page, site: Site, address: str) -> Page:
    """Open another page in the same browser."""
    other = page.context.new_page()
    other.goto(f"{site.address}{address}", timeout=LIMIT_MS)
    return other


def test_a_browser_without_shared_workers_has_a_stream_for_each_tab(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    stage.query("delays")
    first = look(viewer, "/healthz")
    first.context.add_init_script("delete window.SharedWorker")
    pages = [look_in(first, site, "/queries/") for _ in range(2)]
    for page in pages:
        live(page)
    _until(lambda: _streams(viewer) == 2, "two streams")
