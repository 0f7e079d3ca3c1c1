"""Open pages follow what happens, without a reload, and without moving under the cursor."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from headgate_ground import wire
from listeners.models import Heartbeat, Progress
from queries.domain.states import DriverState, Phase
from queries.models.definitions import Query
from queries.models.history import FailureGroup
from queries.services import failures
from tests.browser.conftest import Complaints, Open, Site
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, Stage
from tests.web.batches import batches

pytestmark = pytest.mark.browser
LIMIT_MS = 60_000  # generous: the machine may be busy


def live(page: Page) -> None:
    """Wait until the page's stream is open."""
    expect(page.locator("#live")).to_have_attribute("data-state", "live", timeout=LIMIT_MS)


def names(page: Page) -> list[str]:
    return [row.get_attribute("data-name") or "" for row in page.locator("tr[data-row]").all()]


def mark(page: Page) -> None:
    """Leave a mark that a reload would wipe away."""
    page.evaluate("window.untouched = true")


def untouched(page: Page) -> bool:
    return bool(page.evaluate("window.untouched === true"))


def test_a_batch_moves_its_row_without_a_reload(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    page = look(viewer, "/queries/")
    live(page)
    mark(page)
    row = page.locator(f"#row-{query.pk}")
    expect(row.locator(".beat-ok")).to_have_count(0)
    batches(stage.run("delays"), 3, until=timezone.now(), rows=500)
    site.say(f"query:{query.pk}")
    expect(row.locator(".beat-ok")).to_have_count(3, timeout=LIMIT_MS)
    expect(row).to_contain_text("100/s")
    assert untouched(page)


def test_rows_change_in_place_and_keep_their_order_and_their_buttons(
    look: Open, site: Site, stage: Stage, operator: User
) -> None:
    for name in ("alpha", "beta", "gamma"):
        stage.query(name)
    stage.up("gamma")
    page = look(operator, "/queries/")
    live(page)
    row = page.locator("tr[data-name=gamma]")
    row.locator("input[type=checkbox]").check()
    stage.fail("gamma", NO_SUCH_SOURCE)
    site.say(f"query:{stage.row('gamma').pk}")
    expect(row).to_have_attribute("data-phase", "FAILED", timeout=LIMIT_MS)
    assert names(page) == ["alpha", "beta", "gamma"]
    box = row.locator("input[type=checkbox]")
    expect(box).to_be_checked()
    expect(box).to_be_focused()
    expect(row.locator("td:first-child input[type=checkbox]")).to_have_count(1)  # in its own column
    expect(row.get_by_label("Start gamma", exact=True)).to_be_visible()
    expect(row.get_by_label("Restart gamma", exact=True)).to_be_hidden()
    expect(page.locator("#announcer")).to_have_text("gamma: failed")


def test_the_pill_says_live_only_while_data_are_fresh(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    stage.query("delays")
    stage.up("delays")
    run, now = stage.run("delays"), timezone.now()
    body = wire.HeartbeatBody(
        mode="private",
        streams=None,
        ours=None,
        listeners=(),
        last_seq=1,
        unsent=0,
        outbox_dropped=0,
        missing_batches=0,
        repaired=0,
    ).body()
    row = {"driver": run.driver_id, "epoch": 1, "seq": 1, "at": now, "body": body}
    heartbeat = Heartbeat.objects.create(received_at=now + timedelta(hours=1), **row)
    page = look(viewer, "/queries/delays/")
    live(page)
    word = page.locator("#live .live-word")
    expect(word).to_have_text("Live")
    heartbeat.received_at = now - timedelta(minutes=3)  # its JVM, or the ingester, is frozen
    heartbeat.save()
    expect(word).to_have_text("Stale", timeout=LIMIT_MS)
    expect(page.locator("#live-age")).to_have_text("3 min")
    heartbeat.received_at = now + timedelta(hours=1)
    heartbeat.save()
    expect(word).to_have_text("Live", timeout=LIMIT_MS)


def test_the_pill_is_not_green_while_no_driver_sends(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    stage.query("delays")
    stage.up("delays")
    run, now = stage.run("delays"), timezone.now()
    batches(run, 1, until=now - timedelta(minutes=14))
    run.driver.state = DriverState.ENDED
    run.driver.save()
    page = look(viewer, "/queries/delays/")
    live(page)
    expect(page.locator("#live .live-word")).to_have_text("No events", timeout=LIMIT_MS)
    expect(page.locator("#live-age")).to_have_text("14 min")
    said = re.compile("^Connected, but no driver")
    expect(page.locator("#live")).to_have_attribute("title", said)
    # In one step: the page sets the attribute again with every second.
    calm, live_green = page.locator("#live").evaluate(
        """(pill) => {
            const colour = () => getComputedStyle(pill.querySelector(".live-dot")).backgroundColor;
            const calm = colour();
            pill.removeAttribute("data-quiet");
            return [calm, colour()];
        }"""
    )
    assert calm != live_green, "it is drawn as live"


def test_the_counts_above_the_list_follow(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    query = stage.query("delays")
    page = look(viewer, "/queries/")
    live(page)
    expect(page.locator("#count-running")).to_have_text("0")
    stage.up("delays")
    site.say(f"query:{query.pk}")
    expect(page.locator("#count-running")).to_have_text("1", timeout=LIMIT_MS)


# A page that did nothing for half a minute, as its clock shows it; then two of its looks.
BUSY = """() => new Promise((looked) => {
  const real = Date.now;
  Date.now = () => real() + 30000;
  setTimeout(looked, 2500);
})"""


def test_a_page_that_was_busy_keeps_its_stream(
    look: Open, stage: Stage, viewer: User, complaints: Complaints
) -> None:
    stage.query("delays")
    page = look(viewer, "/queries/")
    live(page)
    page.evaluate(BUSY)
    live(page)
    assert complaints.said == []


def test_a_failure_appears_on_the_open_page_of_failures(
    look: Open, site: Site, stage: Stage, operator: User, complaints: Complaints
) -> None:
    stage.query("delays")
    stage.query("ticks")
    stage.up("delays")
    stage.up("ticks")
    page = look(operator, "/failures/")
    live(page)
    mark(page)
    expect(page.get_by_text("No failures yet")).to_be_visible()
    stage.fail("delays", DIVIDE, batch=7)
    site.say(f"group:{group_of('delays')}")
    title = page.get_by_role("link", name="DIVIDE_BY_ZERO")
    expect(title).to_be_visible(timeout=LIMIT_MS)
    expect(page.get_by_text("No failures yet")).to_be_hidden()
    expect(page.locator("#failures-open")).to_have_text("1")
    expect(page.locator("#open-failures")).to_have_text("1")
    title.hover()  # what is new waits while somebody points at the list
    stage.fail("ticks", NO_SUCH_SOURCE)
    site.say(f"group:{group_of('ticks')}")
    expect(page.locator("#failures-open")).to_have_text("2", timeout=LIMIT_MS)
    expect(page.get_by_role("link", name="DATA_SOURCE_NOT_FOUND")).to_be_hidden()
    page.locator("h1").hover()
    expect(page.get_by_role("link", name="DATA_SOURCE_NOT_FOUND")).to_be_visible()
    assert untouched(page)
    assert complaints.said == []


def group_of(query: str) -> int:
    return FailureGroup.objects.get(query__name=query).pk


def test_a_group_resolved_by_somebody_else_keeps_its_place_and_offers_to_reopen_it(
    look: Open, site: Site, stage: Stage, operator: User
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", DIVIDE, batch=7)
    page = look(operator, "/failures/")
    live(page)
    expect(page.get_by_role("button", name="Resolve")).to_be_visible()
    expect(page.get_by_role("link", name="DIVIDE_BY_ZERO")).to_have_count(1)  # not twice
    group = FailureGroup.objects.get()
    failures.resolve_group(group=group, actor="ada", now=timezone.now())
    site.say(f"group:{group.pk}")
    expect(page.get_by_role("button", name="Reopen")).to_be_visible(timeout=LIMIT_MS)
    expect(page.get_by_role("button", name="Resolve")).to_be_hidden()
    page.get_by_role("button", name="Reopen").click()
    expect(page.get_by_text("Reopened.")).to_be_visible()


@pytest.mark.parametrize("address", ["/runs/", "/audit/?all=1"])
def test_what_begins_arrives_in_the_open_list(
    look: Open, site: Site, stage: Stage, viewer: User, address: str
) -> None:
    query = stage.query("delays")
    page = look(viewer, address)
    live(page)
    mark(page)
    stage.up("delays")
    site.say(f"query:{query.pk}")
    row = page.locator(".arrivals tr").first
    expect(row).to_contain_text("delays", timeout=LIMIT_MS)
    assert untouched(page)


def test_an_open_page_of_a_run_follows_it_to_its_end(
    look: Open, site: Site, stage: Stage, viewer: User, complaints: Complaints
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    run = stage.run("delays")
    page = look(viewer, f"/runs/{run.pk}/")
    live(page)
    mark(page)
    batches(run, 3, until=timezone.now(), rows=500)
    site.say(f"query:{query.pk}")
    expect(page.locator(f"#run-edges-{run.pk}")).to_contain_text("First and last", timeout=LIMIT_MS)
    stage.fail("delays", DIVIDE, batch=7)
    site.say(f"query:{query.pk}")
    expect(page.locator("h1")).to_contain_text("Failed", timeout=LIMIT_MS)
    expect(page.get_by_role("link", name="DIVIDE_BY_ZERO")).to_be_visible()
    assert untouched(page)
    assert complaints.said == []


def test_an_applications_page_follows_and_keeps_its_buttons(
    look: Open, site: Site, stage: Stage, author: User, complaints: Complaints
) -> None:
    application = stage.application("shared")
    application.pools.create(name="heavy", weight=2)
    query = stage.query("delays", "shared", pool="heavy")
    page = look(author, "/applications/shared/")
    live(page)
    expect(page.get_by_text("No driver. It starts")).to_be_visible()
    stage.up("delays", "shared")
    site.say(f"application:{application.pk}")
    site.say(f"query:{query.pk}")
    expect(page.locator("h1")).to_contain_text("Live", timeout=LIMIT_MS)
    expect(page.locator("#pool-default, [id^=pool-]").first).to_contain_text("Running")
    expect(page.get_by_role("link", name="Edit pool heavy")).to_be_visible()
    assert complaints.said == []


def test_a_paused_page_stands_still_until_it_is_live_again(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    query = stage.query("delays")
    page, beside = look(viewer, "/queries/"), look(viewer, "/queries/")
    live(page)
    live(beside)
    page.locator("#live").click()
    expect(page.locator("#live")).to_contain_text("Paused")
    row, told = (one.locator(f"#row-{query.pk}") for one in (page, beside))
    for phase in (Phase.STARTING, Phase.RUNNING):  # by the second, both have had the first
        Query.objects.filter(pk=query.pk).update(phase=phase)
        site.say(f"query:{query.pk}")
        expect(told).to_have_attribute("data-phase", phase, timeout=LIMIT_MS)
    assert row.get_attribute("data-phase") == "STOPPED"
    page.locator("#live").click()
    expect(row).to_have_attribute("data-phase", "RUNNING", timeout=LIMIT_MS)


def test_where_the_stream_is_down_the_page_asks_by_itself(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    def no_stream(route: Route) -> None:
        if "json" in route.request.headers.get("accept", ""):
            route.continue_()
        else:
            route.abort()

    query = stage.query("delays")
    page = look(viewer, "/healthz")
    page.add_init_script("delete window.SharedWorker")  # whose requests no route sees
    page.route("**/live/**", no_stream)
    page.goto("/queries/")
    expect(page.locator("#live")).to_have_attribute("data-state", "polling", timeout=LIMIT_MS)
    Query.objects.filter(pk=query.pk).update(phase=Phase.PENDING)
    row = page.locator(f"#row-{query.pk}")
    expect(row).to_have_attribute("data-phase", "PENDING", timeout=LIMIT_MS)


def test_a_stream_that_breaks_is_opened_again_and_misses_nothing(
    look: Open, site: Site, stage: Stage, viewer: User
) -> None:
    query = stage.query("delays")
    page = look(viewer, "/queries/")
    live(page)
    page.context.set_offline(True)
    Query.objects.filter(pk=query.pk).update(phase=Phase.PENDING)
    site.say(f"query:{query.pk}")
    page.context.set_offline(False)
    row = page.locator(f"#row-{query.pk}")
    expect(row).to_have_attribute("data-phase", "PENDING", timeout=LIMIT_MS)


def test_the_charts_grow_with_each_batch(
    look: Open, site: Site, stage: Stage, viewer: User, complaints: Complaints
) -> None:
    query = stage.query("delays")
    stage.up("delays")
    batches(stage.run("delays"), 20, until=timezone.now(), rows=500)
    page = look(viewer, "/queries/delays/")
    live(page)
    legend = page.locator("[data-legend=rates]")
    expect(legend).to_contain_text("100/s", timeout=LIMIT_MS)
    expect(page.locator(".chart canvas")).to_have_count(2)  # no watermark, no state: said so
    expect(page.locator("[data-chart=watermark]")).to_have_text("This query has no watermark")
    batches(stage.run("delays"), 1, until=timezone.now(), first=20, rows=2000)
    site.say(f"query:{query.pk}")
    expect(legend).to_contain_text("400/s", timeout=LIMIT_MS)
    assert complaints.said == []


def test_of_an_epoch_of_continuous_processing_the_whole_is_drawn(
    look: Open, stage: Stage, viewer: User
) -> None:
    stage.query("delays")
    stage.up("delays")
    batches(stage.run("delays"), 20, until=timezone.now())
    Progress.objects.update(body={"durationMs": {"triggerExecution": 520}})
    page = look(viewer, "/queries/delays/")
    expect(page.locator("[data-legend=phases]")).to_contain_text("Epoch", timeout=LIMIT_MS)
    expect(page.locator("[data-chart=phases] canvas")).to_have_count(1)


def test_a_start_is_followed_from_requested_to_running(
    look: Open, site: Site, stage: Stage, operator: User
) -> None:
    query = stage.query("delays")
    page = look(operator, "/queries/delays/")
    live(page)
    mark(page)
    page.get_by_role("button", name="Start").click()
    way = page.locator(".way")
    expect(page.locator(".toasts")).to_contain_text("delays will start.", timeout=LIMIT_MS)
    site.say(f"query:{query.pk}")
    expect(way.locator(".way-now")).to_have_text("Requested", timeout=LIMIT_MS)
    stage.look()
    site.say(f"query:{query.pk}")
    expect(way.locator(".way-done").first).to_have_text("Requested", timeout=LIMIT_MS)
    stage.ready("delays")
    stage.commit("delays")
    site.say(f"query:{query.pk}")
    expect(way.locator(".way-done")).to_have_count(4, timeout=LIMIT_MS)
    expect(page.get_by_role("link", name="Stop…")).to_be_visible()
    expect(page.get_by_role("button", name="Start")).to_be_hidden()
    assert untouched(page)


def test_a_start_takes_values_and_keeps_what_was_typed_until_they_are_right(
    look: Open, axe: str, stage: Stage, operator: User
) -> None:
    sql = "SELECT value FROM flights WHERE value > :low"
    stage.query("delays", sql=sql, params={"low": 1})
    page = look(operator, "/queries/")
    mark(page)
    page.get_by_label("Start delays", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("low").fill("many")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Use a whole number", timeout=LIMIT_MS)
    expect(dialog.get_by_label("low")).to_have_value("many")
    page.evaluate(axe)
    assert page.evaluate("axe.run('#dialog').then((found) => found.violations)") == []
    dialog.get_by_label("low").fill("5")
    dialog.get_by_role("button", name="Start").click()
    expect(page.locator(".toasts")).to_contain_text("delays will start.", timeout=LIMIT_MS)
    assert stage.row("delays").params == {"low": 5}
    assert untouched(page)


def test_a_stop_is_confirmed_in_place_by_what_it_does(
    look: Open, site: Site, stage: Stage, operator: User
) -> None:
    stage.query("delays")
    stage.up("delays")
    page = look(operator, "/queries/")
    mark(page)
    page.get_by_label("Stop delays", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("so its driver ends too")
    dialog.get_by_text("Immediately").click()
    dialog.get_by_role("button", name="Stop").click()
    expect(page.locator(".toasts")).to_contain_text("delays will stop.", timeout=LIMIT_MS)
    expect(dialog).to_be_hidden()
    row = stage.row("delays")
    assert (row.desired, row.stop_mode) == ("STOPPED", "now")
    assert untouched(page)


def test_without_javascript_everything_still_works(
    look: Open, stage: Stage, operator: User
) -> None:
    stage.query("delays")
    page = look(operator, "/queries/", java_script_enabled=False)
    expect(page.locator("#live")).to_be_hidden()
    page.get_by_label("Start delays", exact=True).click()
    expect(page.locator(".messages")).to_contain_text("delays will start.")
    page.get_by_label("Stop delays", exact=True).click()
    expect(page.get_by_role("heading", name="Stop delays?")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page).to_have_url(re.compile(r"/queries/$"))
    assert stage.row("delays").desired == "STOPPED"
