"""From the address in a message to the healed query: three clicks at most, in a real browser.

The first click is the address itself; what is typed is no click.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from queries.domain.alerts.forms import IncidentKind
from queries.domain.protocol import RunError
from queries.domain.states import Desired, Phase, StopMode, Verb
from queries.domain.system import SystemHealth
from queries.models.alerts import Incident
from queries.models.history import Operation
from queries.services.alerts import incidents
from queries.services.kafka import go_on_after_loss, lag
from tests.browser.conftest import sign_in
from tests.conftest_brokers import Brokers, MakeQuery, brokers, make, said
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, Stage

__all__ = ["brokers", "make"]  # fixtures

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

expect.set_options(timeout=30_000)  # a limit for a busy machine, never a measure

LOST = RunError(
    "",
    "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
    "Some data may have been lost because they are not available in Kafka any more",
    "Could not read records in offset [100, 180) for topic partition flights-0",
)


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.BROKER_HOSTS = ["*"]  # brokers of queries that no run has read from yet


@pytest.fixture
def aude(
    page: Page,
    context: BrowserContext,
    live_server: LiveServer,
    author: User,
    monkeypatch: pytest.MonkeyPatch,
) -> Page:
    """A browser in which Aude, an author, is signed in."""
    monkeypatch.setattr(incidents, "system_health", lambda now: SystemHealth(now, ()))
    sign_in(context, live_server.url, author)
    return page


def _open_message(page: Page, site: LiveServer, stage: Stage, kind: IncidentKind) -> None:
    """Follow the address that the message about this trouble holds."""
    incidents.watch_incidents(now=stage.now)
    incident = Incident.objects.get(kind=kind)
    page.goto(f"{site.url}/alerts/{incident.uuid}/")
    _look(page, f"{kind}-1")


def _look(page: Page, name: str) -> None:
    """Keep a picture where somebody wants to see them: HEADGATE_PICTURES names the folder."""
    if folder := os.environ.get("HEADGATE_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_a_division_by_zero(aude: Page, live_server: LiveServer, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    for _ in range(3):
        stage.fail("delays", DIVIDE, batch=7)
        if stage.phase("delays") == Phase.BACKOFF:
            stage.pause("delays")
            stage.ready("delays")
    _open_message(aude, live_server, stage, IncidentKind.ON_HOLD)
    aude.get_by_role("link", name="Edit and restart…").click()
    aude.locator("textarea[name=sql]").fill("SELECT value / nullif(value, 0) AS x FROM flights")
    _look(aude, "division-2")
    aude.locator(".form-acts").get_by_role("button", name="Save and restart").click()
    expect(aude.locator(".messages")).to_contain_text("the query is starting on it")
    _look(aude, "division-3")
    row = stage.row("delays")
    assert (row.desired, row.revisions.count()) == (Desired.RUNNING, 2)


def test_a_bad_revision(aude: Page, live_server: LiveServer, stage: Stage) -> None:
    first = stage.query("delays").revisions.get().spec
    stage.up("delays")
    stage.commit("delays")
    stage.revise("delays", sql="SELECT nothing FROM flights")
    stage.restart("delays")
    stage.launcher.leave("delays")
    stage.wait(2)
    stage.ready("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    _open_message(aude, live_server, stage, IncidentKind.FAILED)
    aude.get_by_role("link", name="Back to revision 1…").click()
    _look(aude, "revision-2")
    aude.locator(".review-acts").get_by_role("button", name="Save and restart").click()
    expect(aude.locator(".messages")).to_contain_text("the query is starting on it")
    newest = stage.row("delays").revisions.first()
    assert newest is not None
    assert (newest.number, newest.spec["sql"]) == (3, first["sql"])


def test_a_stop_that_hangs(aude: Page, live_server: LiveServer, stage: Stage) -> None:
    stage.application("shop")
    for name in ("clicks", "orders"):
        stage.query(name, "shop")
        stage.start(name)
    stage.ready("shop")
    for name in ("clicks", "orders"):
        stage.commit(name)
    stage.stop("orders", StopMode.NOW)
    stage.launcher.hang_stop(stage.run("orders").pk)
    stage.look()
    _open_message(aude, live_server, stage, IncidentKind.STUCK_STOP)
    aude.get_by_role("link", name="End the driver…").click()
    expect(aude.locator("#dialog")).to_contain_text("clicks")
    _look(aude, "stop-2")
    aude.locator("#dialog").get_by_role("button", name="Restart").click()
    expect(aude.locator(".toasts")).to_contain_text("shop")
    assert Operation.objects.filter(application__name="shop", verb=Verb.RESTART).exists()


def test_offsets_that_are_lost(
    aude: Page,
    live_server: LiveServer,
    stage: Stage,
    make: MakeQuery,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make("delays")
    brokers.said["one:9092"] = said({0: (180, 5100), 1: (0, 100)})
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    monkeypatch.setattr(
        go_on_after_loss, "look_at_sources", partial(lag.look_at_sources, readers=brokers)
    )
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", LOST)
    _open_message(aude, live_server, stage, IncidentKind.FAILED)
    aude.get_by_role("link", name="Skip lost data…").click()
    aude.locator("input[name=typed]").fill("80")
    _look(aude, "lost-2")
    aude.locator("form.confirm button.btn-danger, form.confirm button.btn-primary").click()
    aude.wait_for_url("**/operations/**")
    assert Operation.objects.filter(query__name="delays", verb=Verb.GO_ON).exists()
