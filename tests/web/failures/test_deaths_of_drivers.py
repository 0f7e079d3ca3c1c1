"""A shared driver's death shows at each of its queries: when, what ran, who did it."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.drivers import Driver
from queries.models.history import Failure
from queries.views.supervision.charts import lanes
from tests.scenarios.stage import Stage


@pytest.fixture
def shared(db: None) -> Stage:
    """Two queries in one driver, for half an hour."""
    stage = Stage(obliging=True)
    stage.now = timezone.now() - timedelta(minutes=40)
    stage.application("flights")
    for name in ("arrivals", "delays"):
        stage.query(name, "flights")
        stage.start(name)
    stage.look()
    stage.now += timedelta(minutes=30)
    return stage


def read(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def test_each_query_of_a_dead_driver_shows_its_death(
    client: Client, viewer: User, shared: Stage
) -> None:
    client.force_login(viewer)
    shared.launcher.die("flights", python="1")
    shared.look()
    for name in ("arrivals", "delays"):
        html = read(client, f"/queries/{name}/failures/")
        assert "No failures yet" not in html
        assert "Driver died: Python exited with 1" in html


def test_a_query_that_had_left_the_driver_is_not_burdened_with_its_death(
    client: Client, viewer: User, shared: Stage
) -> None:
    client.force_login(viewer)
    shared.stop("arrivals")
    shared.wait(2)
    shared.launcher.die("flights", python="1")
    shared.look()
    assert "No failures yet" in read(client, "/queries/arrivals/failures/")


@pytest.mark.sql(
    "queries.selectors.failures.what_changed.death_of",
    "queries.selectors.failures.what_changed._last_good_driver",
)
def test_the_failure_names_its_candidates_and_says_that_the_culprit_is_unknown(
    client: Client, viewer: User, shared: Stage
) -> None:
    client.force_login(viewer)
    shared.launcher.silent = {"delays"}
    shared.restart("delays")
    shared.look()
    shared.launcher.die("flights", python="1")
    shared.look()
    death = Failure.objects.get()
    html = read(client, f"/failures/{death.pk}/")
    assert "Culprit unknown" in html
    assert "starting, no batch committed yet" in html
    body = client.get(f"/api/v1/failures/{death.pk}/").json()
    assert [(one["query"], one["was"]) for one in body["candidates"]] == [("delays", "STARTING")]
    assert body["culprit"] is None


def test_the_failure_names_the_culprit_that_is_held(
    client: Client, viewer: User, shared: Stage
) -> None:
    client.force_login(viewer)
    shared.launcher.kills["delays"] = "start"
    shared.restart("delays")
    shared.wait(60)
    held = Failure.objects.get(run__query__name="delays")
    assert "only this query was starting" in read(client, "/queries/delays/")
    assert "separate application" in read(client, f"/failures/{held.pk}/")
    death = Failure.objects.get(run=None, driver=held.driver)
    assert "delays killed the driver and is on hold." in read(client, f"/failures/{death.pk}/")
    assert client.get(f"/api/v1/failures/{death.pk}/").json()["culprit"] == "delays"
    assert "No failures yet" not in read(client, "/queries/arrivals/failures/")


def test_a_lane_is_red_only_for_the_time_that_the_query_was_down(shared: Stage) -> None:
    shared.launcher.silent = {"arrivals", "delays"}
    for _ in range(3):
        shared.launcher.die("flights", python="1")
        shared.look()
    down_from = shared.now
    shared.now += timedelta(minutes=5)
    picture = lanes(shared.now)
    lane = next(lane for lane in picture.lanes if lane.name == "delays")
    ran = lane.stretches[0]
    assert (ran.kind, round(ran.width)) == ("ended", 300)  # half an hour of 600 units an hour
    red = [one for one in lane.stretches if one.kind == "failed"]
    first = min(one.x for one in red)
    hour = timedelta(hours=1)
    assert first == pytest.approx(600 * (1 - (shared.now - down_from) / hour), abs=1)
    assert max(one.x + one.width for one in red) == pytest.approx(600, abs=2.1)


@pytest.mark.sql("queries.selectors.failures.occurrences.standby_after")
def test_the_pages_of_a_killed_driver_and_its_query_say_that_a_standby_took_over(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.now = timezone.now() - timedelta(minutes=5)
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    standby = stage.stands_by("delays", "flights")
    client.force_login(viewer)
    assert "took over" not in read(client, "/queries/delays/")
    stage.launcher.die("flights")
    stage.look("flights")
    failure = Failure.objects.get()
    assert f"The standby driver (epoch {standby.epoch}) took over" in read(
        client, f"/failures/{failure.pk}/"
    )
    assert "was a standby and took over" in read(client, "/queries/delays/")
    Driver.objects.filter(pk=standby.pk).update(took_over_at=stage.now - timedelta(days=2))
    assert "was a standby" not in read(client, "/queries/delays/")
