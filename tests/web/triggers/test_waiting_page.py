"""Who waits for whom: on the page, on the application's, and over REST."""

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from listeners.models import TaskTime
from queries.models.drivers import Run
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

HOUR = timedelta(hours=1)


@pytest.fixture
def flights(db: None) -> Stage:
    """Return a stage where two queries of one application have run for two hours."""
    stage = Stage()
    stage.application("flights")
    for name in ("delays", "alerts"):
        stage.query(name, "flights")
        stage.start(name)
    stage.ready("flights")
    for name in ("delays", "alerts"):
        stage.commit(name)
    Run.objects.update(created_at=timezone.now() - 2 * HOUR)
    return stage


def took(stage: Stage, name: str, at: datetime, task_s: int, waited: dict[str, int]) -> None:
    """Store what a query's driver had told by a moment, in sum."""
    runs = {str(stage.run(other).pk): s * 1000 for other, s in waited.items()}
    TaskTime.objects.create(
        run=stage.run(name).pk,
        start=at.replace(second=0, microsecond=0),
        at=at,
        task_ms=task_s * 1000,
        waited_ms=sum(runs.values()),
        waited_for=runs,
    )


@pytest.fixture
def starving(flights: Stage) -> Stage:
    """Return the stage where alerts waited 1,476 s of the last hour, and more before it."""
    now = timezone.now()
    took(flights, "alerts", now - 1.5 * HOUR, 10, {"delays": 900})
    took(flights, "alerts", now - 0.5 * HOUR, 40, {"delays": 1200})
    took(flights, "alerts", now - 0.01 * HOUR, 110, {"delays": 2376})
    took(flights, "delays", now - 0.01 * HOUR, 900, {})
    return flights


def test_the_page_tells_who_waited_for_whom_and_what_mends_it(
    client: Client, viewer: User, starving: Stage
) -> None:
    client.force_login(viewer)
    page = Page(client, "/applications/flights/waiting/")
    assert "alerts waited 41 % of its time in the last hour for delays." in page.text
    assert "Give alerts its own pool with a minimum share of 1" in page.text
    assert "when flights restarts with all its queries" in page.text
    assert "1 min 40 s" in page.text  # the task time of alerts in this hour


def test_a_longer_range_has_all_of_it(client: Client, viewer: User, starving: Stage) -> None:
    client.force_login(viewer)
    page = Page(client, "/applications/flights/waiting/?range=6h")
    assert "alerts waited 33 % of its time in the last 6 hours for delays." in page.text


def test_the_applications_page_says_it_too(client: Client, viewer: User, starving: Stage) -> None:
    client.force_login(viewer)
    page = Page(client, "/applications/flights/")
    assert "alerts waited 41 % of its time in the last hour for delays." in page.text


def test_without_waits_it_says_so(client: Client, viewer: User, flights: Stage) -> None:
    client.force_login(viewer)
    took(flights, "alerts", timezone.now(), 10, {"delays": 30})
    page = Page(client, "/applications/flights/waiting/?range=nonsense")
    assert "No query spent more than 10 % of its time waiting for others." in page.text
    assert "waited 0" not in Page(client, "/applications/flights/").text


def test_an_application_that_never_ran_shows_no_table(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.application("idle")
    client.force_login(viewer)
    assert ("No query of idle ran in this period.") in Page(
        client, "/applications/idle/waiting/"
    ).text


@pytest.mark.sql(
    "queries.selectors.triggers.cores.task_shares",
    "queries.selectors.triggers.cores._grown",
)
def test_rest_tells_the_same(client: Client, viewer: User, starving: Stage) -> None:
    client.force_login(viewer)
    body = client.get("/api/v1/applications/flights/waits/").json()
    assert body["hours"] == 1
    [alerts] = [one for one in body["queries"] if one["query"] == "alerts"]
    assert (alerts["task_s"], alerts["waited_s"]) == (100.0, 1476.0)
    assert alerts["waited_for"] == {"delays": 1476.0}
    assert alerts["covered_s"] == pytest.approx(3600, abs=5)
    assert [one["says"] for one in body["starved"]] == [
        "alerts waited 41 % of its time in the last hour for delays."
    ]


@pytest.mark.parametrize("hours", ["0", "169", "-1", "²", "many"])
def test_rest_refuses_what_is_no_range(
    client: Client, viewer: User, flights: Stage, hours: str
) -> None:
    client.force_login(viewer)
    answer = client.get("/api/v1/applications/flights/waits/", {"hours": hours})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "hours"
