"""The forms in a real browser: nicer with JavaScript, whole without it."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect
from pytest_django.live_server_helper import LiveServer

from queries.models.alerts import FigureSample
from queries.models.definitions import Query
from tests.browser.conftest import sign_in
from tests.scenarios.stage import Stage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure
AXE = (Path(__file__).parents[1] / "vendor" / "axe.min.js").read_text()


@pytest.fixture
def form(page: Page, context: BrowserContext, live_server: LiveServer, author: User) -> Page:
    sign_in(context, live_server.url, author)
    page.goto(f"{live_server.url}/new/query/")
    return page


@pytest.fixture
def plain(browser: Browser, live_server: LiveServer, author: User) -> Iterator[Page]:
    """Return the form in a browser whose JavaScript is off."""
    context = browser.new_context(java_script_enabled=False)
    sign_in(context, live_server.url, author)
    page = context.new_page()
    page.goto(f"{live_server.url}/new/query/")
    yield page
    context.close()


def _fill(page: Page) -> None:
    page.get_by_label("Name", exact=True).first.fill("ticks")
    page.locator("#id_sources-0-name").fill("ticks")
    page.locator("#id_sources-0-format").fill("rate")
    page.get_by_label("SQL", exact=True).first.click()
    page.locator("#id_sql").fill("SELECT value FROM ticks")
    page.locator("#id_sink_format").fill("noop")


def test_a_source_is_added_without_a_reload_and_takes_the_focus(form: Page) -> None:
    _fill(form)
    form.evaluate("window.stayed = true")
    form.get_by_role("button", name="Add a source").click()
    expect(form.locator("#id_sources-1-name")).to_be_focused()
    expect(form.locator("#id_sql")).to_have_value("SELECT value FROM ticks")
    assert form.evaluate("window.stayed")
    form.get_by_role("button", name="Remove source 2").click()
    expect(form.locator("#id_sources-1-name")).to_have_count(0)
    expect(form.locator("#id_sources-0-name")).to_have_value("ticks")


def test_only_the_fields_of_the_chosen_kind_are_shown(form: Page) -> None:
    expect(form.locator("#id_sql")).to_be_visible()
    expect(form.locator("#id_function")).to_be_hidden()
    hinted = ("params", "sink_format", "trigger_interval")
    hints = form.locator(", ".join(f"#id_{name}_helptext" for name in hinted))
    assert [one.inner_text() for one in hints.all()] == [
        "A JSON object of names and defaults. A start can give other values. "
        "SQL uses them as :name.",
        "parquet, json, kafka, console, noop…",
        "For example 10 seconds. 0 seconds means as fast as possible.",
    ]
    form.get_by_text("Python", exact=True).click()
    expect(form.locator("#id_sql")).to_be_hidden()
    expect(form.locator("#id_function")).to_be_visible()
    form.locator("#id_trigger_kind").select_option("real_time")
    assert [one.locator(".only-python, .only-real-time").inner_text() for one in hints.all()] == [
        "The function gets them as params.",
        "Leave it empty if the function returns a writer.",
        "5 seconds or more.",
    ]
    form.get_by_text("a shared application", exact=True).click()
    expect(form.locator("#id_application")).to_be_visible()
    expect(form.locator("#id_own-memory")).to_be_hidden()
    form.get_by_label("Trigger", exact=True).select_option("available_now")
    expect(form.locator("#id_trigger_interval")).to_be_hidden()


def test_a_new_application_is_described_by_its_kind(form: Page) -> None:
    form.goto(form.url.replace("/query/", "/application/"))
    lead = form.locator("p.lead")
    assert lead.inner_text().strip().startswith("One Spark driver for several queries.")
    assert "script" not in lead.inner_text()
    form.locator("#id_kind").select_option("script")
    expect(form.locator("#id_script_file")).to_be_visible()
    assert lead.inner_text().strip() == (
        "One Spark driver for your own script, which starts its queries."
    )


def test_a_mistake_is_read_out_with_its_field(form: Page) -> None:
    _fill(form)
    form.locator("#id_sql").fill("SELECT value FROM elsewhere")
    form.get_by_role("button", name="Create", exact=True).last.click()
    expect(form.locator("#problems")).to_contain_text("fix 1 field")
    sql = form.locator("#id_sql")
    expect(sql).to_have_attribute("aria-invalid", "true")
    described = sql.get_attribute("aria-describedby") or ""
    told = " ".join(form.locator(f"#{one}").inner_text() for one in described.split())
    assert "elsewhere" in told


def test_a_query_is_defined_without_javascript(plain: Page) -> None:
    _fill(plain)
    plain.get_by_role("button", name="Add a table").click()
    expect(plain.locator("#id_tables-0-name")).to_be_visible()
    expect(plain.locator("#id_sql")).to_have_value("SELECT value FROM ticks")
    plain.get_by_role("button", name="Create", exact=True).last.click()
    expect(plain.get_by_text("ticks was created")).to_be_visible()
    assert Query.objects.get().name == "ticks"


def test_the_policy_of_the_page_blocks_nothing_of_ours(
    page: Page, context: BrowserContext, live_server: LiveServer, author: User
) -> None:
    sign_in(context, live_server.url, author)
    said: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text or "Content-Security" in message.text:
            said.append(message.text)

    page.on("console", hear)
    page.goto(f"{live_server.url}/new/query/")
    page.get_by_role("button", name="Add a source").click()
    expect(page.locator("#id_sources-1-name")).to_be_visible()
    assert said == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_threshold_is_added_and_previewed_on_an_existing_querys_form(
    page: Page,
    context: BrowserContext,
    live_server: LiveServer,
    author: User,
    theme: str,
) -> None:
    query = Stage().query("delays")
    minute = timezone.now().replace(second=0, microsecond=0)
    FigureSample.objects.bulk_create(
        FigureSample(query=query, at=minute - timedelta(minutes=back), records=3_000_000, late=0)
        for back in range(60, 0, -1)
    )
    sign_in(context, live_server.url, author)
    context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    page.goto(f"{live_server.url}/queries/delays/edit/")
    page.get_by_role("button", name="Add a threshold").click()
    expect(page.locator("#id_thresholds-0-figure")).to_be_focused()
    page.get_by_role("button", name="Preview threshold 1").click()
    preview = page.locator("#threshold-preview-0")
    expect(preview).to_contain_text("Set a value above 0.")
    page.locator("#id_thresholds-0-value").fill("1000000")
    page.get_by_role("button", name="Preview threshold 1").click()
    expect(preview).to_contain_text("There are figures for only ")
    expect(preview).to_contain_text("it would have fired once (first ")
    page.evaluate(AXE)
    found = page.evaluate("axe.run('#thresholds-0').then((result) => result.violations)")
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_schedules_next_times_are_shown_while_it_is_typed(
    form: Page, context: BrowserContext, live_server: LiveServer, theme: str
) -> None:
    context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    form.reload()
    shown = form.locator("#schedule-times")
    form.locator("#id_schedule_cron").fill("30 2 * *")
    expect(shown).to_contain_text("five fields")
    form.locator("#id_schedule_cron").fill("30 2 * * *")
    expect(shown).to_contain_text("Next times in UTC")
    form.locator("#id_schedule_time_zone").fill("Europe/Berlin")
    expect(shown).to_contain_text("The clocks change on")
    form.evaluate(AXE)
    found = form.evaluate("axe.run('#schedule').then((result) => result.violations)")
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("address", ["/new/query/", "/new/application/", "/settings/tokens/"])
def test_axe_finds_nothing_serious(
    page: Page,
    context: BrowserContext,
    live_server: LiveServer,
    author: User,
    address: str,
    theme: str,
) -> None:
    sign_in(context, live_server.url, author)
    context.add_cookies([{"name": "theme", "value": theme, "url": live_server.url}])
    page.goto(live_server.url + address)
    page.evaluate(AXE)
    found = page.evaluate("axe.run().then((result) => result.violations)")
    serious = [
        (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == []
