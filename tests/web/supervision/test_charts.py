"""The charts' data: batches over a range, marks of what happened, outages, files, shared ranges."""

import csv
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.definitions import QueryRevision
from queries.models.history import Failure
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE, Stage
from tests.web.batches import batches
from tests.web.browserless import Page


@pytest.fixture
def recent(stage: Stage) -> Stage:
    """Return a stage whose story began ten minutes ago."""
    stage.now = timezone.now() - timedelta(minutes=10)
    stage.query("delays")
    stage.up("delays")
    return stage


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def _series(client: Client, asked: str = "range=1h") -> Any:
    answer = client.get(f"/queries/delays/series/?{asked}")
    assert answer.status_code == 200
    return answer.json()


def _texts(body: Any, kind: str) -> list[str]:
    return [mark["text"] for mark in body["marks"] if mark["kind"] == kind]


@pytest.mark.sql(
    "queries.selectors.definitions.definitions.revisions_of",
    "queries.selectors.supervision.history.edge_batches",
    "queries.selectors.supervision.history.runs",
    "queries.selectors.supervision.history.run_with_neighbours",
    "queries.selectors.failures.what_changed._last_good_run",
    "queries.selectors.failures.what_changed._acts",
    "queries.selectors.failures.failures.failures",
)
def test_runs_failures_deaths_and_revisions_are_marks_with_an_address(
    vera: Client, recent: Stage
) -> None:
    recent.wait(30)
    recent.fail("delays", DIVIDE, batch=7)
    recent.pause("delays")
    recent.ready("delays")
    recent.launcher.die("delays")
    recent.look()
    spec = recent.row("delays").revisions.get().spec
    QueryRevision.objects.create(
        query=recent.row("delays"),
        number=2,
        kind="sql",
        spec=spec,
        author="ada",
        created_at=recent.now,
    )
    body = _series(vera)
    assert _texts(body, "run")[0].startswith("Run ")
    assert "DIVIDE_BY_ZERO: Division by zero." in _texts(body, "failure")
    assert any("its driver died" in text for text in _texts(body, "death"))
    assert "Revision 2 by ada" in _texts(body, "revision")
    times = [mark["at"] for mark in body["marks"]]
    assert times == sorted(times)
    for mark in body["marks"]:
        assert vera.get(mark["href"]).status_code == 200, mark


@pytest.mark.sql(
    "queries.selectors.supervision.history._marks",
    "queries.selectors.supervision.history.outages",
)
def test_the_time_in_which_it_was_down_is_an_outage_with_its_reason(
    vera: Client, recent: Stage
) -> None:
    assert _series(vera)["outages"] == []
    for _ in range(3):  # the first attempts follow at once, then it pauses
        recent.fail("delays", BROKEN_PIPE, batch=7)
        if recent.phase("delays") == "BACKOFF":
            break
        recent.ready("delays")
    began = recent.now
    (lasting,) = _series(vera)["outages"]
    assert lasting["until"] is None
    assert lasting["since"] == pytest.approx(began.timestamp())
    assert "Connection refused" in lasting["text"]
    recent.pause("delays")
    recent.ready("delays")
    recent.commit("delays")
    (over,) = _series(vera)["outages"]
    assert over["until"] > over["since"]


def test_what_lies_outside_of_the_range_is_left_out(vera: Client, recent: Stage) -> None:
    recent.fail("delays", NO_SUCH_SOURCE)
    since = (timezone.now() - timedelta(minutes=2)).isoformat().replace("+", "%2B")
    body = _series(vera, f"since={since}")
    assert body["marks"] == []
    (lasting,) = body["outages"]  # it began before, and goes on
    assert lasting["since"] == pytest.approx(body["since"])


def test_a_shared_range_shows_that_time_and_follows_nothing(vera: Client, recent: Stage) -> None:
    rows = batches(recent.run("delays"), 20, until=recent.now, every_s=10)
    since, until = rows[5].at, rows[10].at
    asked = f"since={since.isoformat()}&until={until.isoformat()}".replace("+", "%2B")
    assert _series(vera, asked)["batches"] == [5, 6, 7, 8, 9]
    page = Page(vera, f"/queries/delays/?{asked}")
    assert "data-fixed" in page.html
    assert "data-live-event" not in page.html
    assert 'aria-current="true">15m' not in page.html


@pytest.mark.parametrize("asked", ["since=yesterday&until=now", "until=2020-01-01", "range=9y"])
def test_a_range_that_is_none_is_the_usual_one(vera: Client, recent: Stage, asked: str) -> None:
    body = _series(vera, asked)
    assert body["until"] - body["since"] == pytest.approx(900, abs=5)


def test_the_data_can_be_had_as_files(vera: Client, recent: Stage) -> None:
    batches(recent.run("delays"), 3, until=recent.now, every_s=10)
    answer = vera.get("/queries/delays/series/?range=1h&format=csv")
    assert answer["Content-Disposition"] == 'attachment; filename="delays.csv"'
    lines = list(csv.DictReader(answer.content.decode().splitlines()))
    assert [line["batch"] for line in lines] == ["0", "1", "2"]
    assert {"at", "batch", "batch_duration_ms", "num_input_rows"} <= lines[0].keys()
    assert lines[0]["at"].endswith("+00:00")
    answer = vera.get("/queries/delays/series/?range=1h&format=json")
    assert answer["Content-Disposition"] == 'attachment; filename="delays.json"'
    assert answer.json()["batches"] == [0, 1, 2]


def test_a_query_that_never_committed_shows_its_failure_instead_of_empty_charts(
    client: Client, author: User, stage: Stage
) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    client.force_login(author)
    page = Page(client, "/queries/delays/")
    assert "No batch has ever been committed" in page.text
    assert "Failed to find the data source: kafka" in page.text
    assert f'href="/failures/{Failure.objects.get().pk}/"' in page.html
    assert "Edit and restart…" in page.text
    assert "data-charts" not in page.html
