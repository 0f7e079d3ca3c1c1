"""An application's page shows its drivers, pools and listeners, and acts by consequence."""

from copy import deepcopy
from dataclasses import asdict
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import Client

from headgate_ground.wire import HeartbeatBody as Told
from headgate_ground.wire import ListenerTimes, QueueCounters
from listeners.models import DroppedEvents, Heartbeat
from queries.models.applications import Application
from queries.models.drivers import Driver, Host
from queries.models.history import Operation
from tests.scenarios.stage import Stage
from tests.web.browserless import Page


@pytest.fixture(scope="module")
def played(story: None) -> Stage:
    """Return a stage with two queries of one application running, in pools of their own."""
    stage = Stage()
    application = stage.application("flights")
    application.pools.create(name="heavy", weight=1)
    application.pools.create(name="light", weight=3, min_share=1)
    stage.query("delays", "flights", pool="heavy")
    stage.query("alerts", "flights", pool="light")
    stage.query("other")
    stage.start("delays")
    stage.start("alerts")
    stage.ready("flights")
    stage.commit("delays")
    stage.commit("alerts")
    return stage


@pytest.fixture
def flights(played: Stage, db: None) -> Stage:
    return deepcopy(played)


def _see(client: Client, person: User, address: str) -> Page:
    client.force_login(person)
    return Page(client, address)


def _hear(
    stage: Stage,
    *,
    mode: str = "private",
    ours: QueueCounters | None = QueueCounters(0, 0, 10000, 0.6),  # noqa: B008  (frozen)
) -> None:
    driver = stage.driver("flights")
    told = Told(
        mode=mode,
        streams=QueueCounters(1211, 4, 5, 2900.0),
        ours=ours,
        listeners=(ListenerTimes("acme:Slow", 342, 0, "", 3001.0, 3104.0, True),),
        last_seq=2841,
        unsent=0,
        outbox_dropped=0,
        missing_batches=14,
        repaired=13,
    )
    Heartbeat.objects.create(
        driver=driver.pk,
        epoch=driver.epoch,
        seq=1,
        at=stage.now,
        received_at=stage.now,
        body=asdict(told),
    )


def test_the_list_shows_driver_queries_and_pools(
    client: Client, viewer: User, flights: Stage
) -> None:
    page = _see(client, viewer, "/applications/")
    assert "Live" in page.text
    assert "alerts" in page.text
    assert "heavy, light" in page.text
    assert "no driver" in page.text
    assert "New application" not in page.text


def test_the_page_shows_epoch_pids_pools_and_who_is_in_them(
    client: Client, viewer: User, flights: Stage
) -> None:
    driver = flights.driver("flights")
    page = _see(client, viewer, "/applications/flights/")
    assert f"epoch {driver.epoch}" in page.text
    assert str(driver.pid) in page.text
    assert "75 %" in page.text
    assert "25 %" in page.text
    assert "local[2]" in page.text


def test_a_slow_listener_is_named_and_the_dropped_events_are_exact(
    client: Client, viewer: User, flights: Stage
) -> None:
    _hear(flights)
    driver = flights.driver("flights")
    since = flights.now - timedelta(minutes=2)
    DroppedEvents.objects.create(
        driver=driver.pk, queue="streams", count=1211, total=1211, since=since, until=flights.now
    )
    page = _see(client, viewer, "/applications/flights/")
    assert "acme:Slow Slow" in page.text
    assert "3.00 s" in page.text
    assert "1,211" in page.text
    assert "14 gaps, 13 repaired" in page.text
    assert "private: other listeners" in page.text


def test_fallback_mode_is_said(client: Client, viewer: User, flights: Stage) -> None:
    _hear(flights, mode="fallback", ours=None)
    assert "fallback: one per session, with repair" in (
        _see(client, viewer, "/applications/flights/").text
    )


def test_a_pool_changed_under_a_living_driver_asks_for_a_restart(
    client: Client, viewer: User, flights: Stage
) -> None:
    Application.objects.get(name="flights").pools.filter(name="light").update(weight=9)
    page = _see(client, viewer, "/applications/flights/")
    assert "Restart the application to apply the change; affects alerts, delays" in page.text


def test_advice_on_pools_stands_below_them(client: Client, viewer: User, flights: Stage) -> None:
    Application.objects.get(name="flights").pools.update(min_share=2)
    assert "minimum shares add up to 4" in _see(client, viewer, "/applications/flights/").text


def test_restart_says_who_is_affected_and_asks_for_it(
    client: Client, operator: User, flights: Stage
) -> None:
    page = _see(client, operator, "/applications/flights/restart/")
    assert "alerts and delays stop after the batch in flight" in page.text
    assert not Operation.objects.filter(verb="restart").exists()
    after = page.press()
    assert "flights will restart in a new driver" in after.text
    assert Operation.objects.filter(verb="restart", actor="otto").exists()


def test_stop_says_who_is_affected_and_stops_them_all(
    client: Client, operator: User, flights: Stage
) -> None:
    page = _see(client, operator, "/applications/flights/stop/")
    assert "alerts and delays will not run until a user starts them again" in page.text
    page.press(mode="now")
    assert [flights.row(name).desired for name in ("alerts", "delays")] == ["STOPPED"] * 2
    assert flights.row("alerts").stop_mode == "now"


def test_revisions_stand_against_the_one_before(
    client: Client, author: User, flights: Stage
) -> None:
    application = Application.objects.get(name="flights")
    application.revisions.create(
        number=2, spec={"memory": "3g"}, author="ann", created_at=flights.now
    )
    page = _see(client, author, "/applications/flights/revisions/")
    assert "memory: 3g" in page.text
    assert "Restore" in page.text


@pytest.mark.parametrize("act", ["restart", "stop"])
def test_a_viewer_can_neither_restart_nor_stop(
    client: Client, viewer: User, flights: Stage, act: str
) -> None:
    client.force_login(viewer)
    assert client.get(f"/applications/flights/{act}/").status_code == 403
    assert client.post(f"/applications/flights/{act}/").status_code == 403


@pytest.mark.parametrize(
    "address", ["/applications/", "/applications/flights/", "/applications/flights/revisions/"]
)
def test_an_outsider_is_refused(
    client: Client, outsider: User, flights: Stage, address: str
) -> None:
    client.force_login(outsider)
    assert client.get(address).status_code == 403


@pytest.mark.parametrize(
    "address",
    [
        "/new/application/",
        "/new/query/",
        "/queries/delays/edit/",
        "/queries/delays/delete/",
        "/applications/flights/edit/",
        "/applications/flights/delete/",
        "/applications/flights/pools/new/",
        "/applications/flights/pools/light/edit/",
    ],
)
def test_only_authors_define(
    client: Client, operator: User, author: User, flights: Stage, address: str
) -> None:
    client.force_login(operator)
    assert client.get(address).status_code == 403
    assert client.post(address).status_code == 403
    client.force_login(author)
    assert client.get(address).status_code == 200


def test_a_cluster_drivers_executors_stand_there_the_lost_ones_with_the_reason(
    client: Client, viewer: User, flights: Stage
) -> None:
    lost = flights.now - timedelta(minutes=1)
    common = {"cores": 1, "added_at": (flights.now - timedelta(hours=1)).isoformat()}
    Driver.objects.update(
        executors=[
            {"id": "0", "address": "10.0.0.1:7000", "active": True, **common},
            {
                "id": "1",
                "address": "10.0.0.2:7000",
                "active": False,
                "removed_at": lost.isoformat(),
                "reason": "worker lost",
                **common,
            },
        ]
    )
    text = _see(client, viewer, "/applications/flights/").text
    assert "1 active, 1 core" in text
    assert "worker lost" in text


def test_a_dialog_is_answered_in_place(client: Client, operator: User, flights: Stage) -> None:
    client.force_login(operator)
    ask = {"accept": "application/json"}
    answer = client.post("/applications/flights/restart/", headers=ask)
    assert answer.json() == {"tone": "ok", "text": "flights will restart in a new driver."}
    assert "will restart" not in client.get("/applications/").content.decode()  # said once


def test_a_silent_host_is_said_and_declared_gone_by_its_name(
    client: Client, operator: User, flights: Stage
) -> None:
    ago = timedelta(minutes=5)
    Application.objects.filter(name="flights").update(host="host-b")
    Driver.objects.filter(application__name="flights").update(host="host-b", release="earlier")
    for name, seen in (("host-b", Now() - ago), ("host-a", Now() + ago)):
        Host.objects.create(name=name, seen_at=seen, steady_since=Now() - ago)

    page = _see(client, operator, "/applications/flights/")
    assert "Host host-b has sent no heartbeat since" in page.text
    assert "Changed since the driver started: Headgate's release." in page.text
    stop = _see(client, operator, "/applications/flights/stop/")
    assert "the stop takes effect once it is back" in stop.text

    address = "/applications/flights/host-gone/"
    asked = _see(client, operator, address)
    assert "If it cannot reach Redis, it continues to write to its sinks" in asked.text
    client.post(address, {"typed": "host-a"})
    assert flights.driver("flights").end_wanted == ""
    client.post(address, {"typed": "host-b"})
    assert flights.driver("flights").end_wanted == "HOST_GONE"
