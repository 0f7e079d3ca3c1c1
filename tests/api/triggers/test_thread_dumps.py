"""A thread dump on request, over REST and on the Trigger page."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from headgate_ground.wire import EventKind
from listeners.models import Event
from queries.models.drivers import Driver, Run
from tests.scenarios.stage import Stage

URL = "/api/v1/queries/delays/thread-dump/"


@pytest.fixture(autouse=True)
def _running(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")


def taken(run: Run, **more: str) -> None:
    """Store a dump as the driver sends it."""
    Event.objects.create(
        driver=run.driver_id,
        epoch=run.driver.epoch,
        seq=7,
        at=timezone.now(),
        received_at=timezone.now(),
        kind=EventKind.THREAD_DUMP,
        query=run.query_id,
        run=run.pk,
        body={"quiet_s": 3, "threads": '"main" <waiting>', "heap": "[B", **more},
    )


@pytest.mark.sql("queries.selectors.triggers.advice.thread_dumps")
def test_the_driver_is_asked_and_its_dump_is_shown(
    as_operator: APIClient, as_viewer: APIClient, stage: Stage, client: Client, viewer: User
) -> None:
    assert as_viewer.get(URL).json() == {"newest": None, "asked_at": None, "overdue": False}
    assert as_viewer.post(URL).status_code == 403
    asked = as_operator.post(URL)
    assert asked.status_code == 200, asked.json()
    assert asked.json()["asked_at"] is not None
    run = stage.run("delays")
    stage.now = timezone.now()
    stage.settle()
    [entry] = stage.launcher.assignment("delays").queries
    assert run.dump_asked_at is not None
    assert entry.dump == run.dump_asked_at.isoformat()

    client.force_login(viewer)
    page = client.get("/queries/delays/trigger/").content.decode()
    assert "Reload the page in a few seconds" in page
    assert "Take a thread dump" not in page

    taken(run)
    newest = as_viewer.get(URL).json()
    assert newest["asked_at"] is None
    assert newest["newest"]["threads"] == '"main" <waiting>'
    page = client.get("/queries/delays/trigger/").content.decode()
    assert "&lt;waiting&gt;" in page
    assert "3.00 s after the last sign of progress" in page


def test_a_driver_that_does_not_answer_is_named(
    as_operator: APIClient, stage: Stage, client: Client, operator: User
) -> None:
    as_operator.post(URL)
    Run.objects.update(dump_asked_at=timezone.now() - timedelta(seconds=61))
    assert as_operator.get(URL).json()["overdue"] is True
    client.force_login(operator)
    page = client.get("/queries/delays/trigger/").content.decode()
    assert "The driver has not answered for a minute" in page


def test_a_request_that_helps_nobody_is_refused(
    as_operator: APIClient, stage: Stage, client: Client, operator: User
) -> None:
    client.force_login(operator)
    assert client.post("/queries/delays/trigger/dump/").status_code == 302
    again = as_operator.post(URL)
    assert again.status_code == 409
    assert "was requested a moment ago" in again.json()["detail"]
    stage.query("orders")
    refused = as_operator.post("/api/v1/queries/orders/thread-dump/")
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith("orders is not running")


def test_a_driver_of_another_release_is_asked_nothing(as_operator: APIClient, stage: Stage) -> None:
    Driver.objects.update(release="0123")
    refused = as_operator.post(URL)
    assert refused.status_code == 409
    assert "runs another release of Headgate" in refused.json()["detail"]
    assert stage.run("delays").dump_asked_at is None


def test_a_driver_whose_clock_is_behind_has_answered(as_operator: APIClient, stage: Stage) -> None:
    as_operator.post(URL)
    run = stage.run("delays")
    assert run.dump_asked_at is not None
    taken(run, asked=run.dump_asked_at.isoformat())
    Event.objects.update(at=run.dump_asked_at - timedelta(seconds=5))
    assert as_operator.get(URL).json()["asked_at"] is None
