"""Async progress tracking over REST: exposure, the safe way off, what a run did again."""

from pathlib import Path

import pytest
from rest_framework.test import APIClient

from queries.models.drivers import Run
from tests.scenarios.async_logs import AsyncQuery
from tests.scenarios.stage import Stage
from tests.web.batches import batches


@pytest.fixture
def flights(stage: Stage, tmp_path: Path) -> AsyncQuery:
    found = AsyncQuery(stage, tmp_path)
    found.up()
    batches(stage.run("flights"), 11, until=stage.now, first=110, rows=20)
    return found


def test_it_tells_what_a_crash_now_would_do_again(
    as_viewer: APIClient, flights: AsyncQuery
) -> None:
    body = as_viewer.get("/api/v1/queries/flights/exposure/").json()
    assert body["async_progress"] is True
    told = body["exposure"]
    assert (told["kept"], told["missing"], told["newest"], told["running"]) == (112, 111, 120, 121)
    assert (told["batches"], told["rows"], told["rows_from"]) == (9, 180, "progress")
    assert told["rows_in_flight"] == 20


def test_a_query_without_it_is_exposed_to_nothing(as_viewer: APIClient, stage: Stage) -> None:
    stage.query("plain")
    body = as_viewer.get("/api/v1/queries/plain/exposure/").json()
    assert body == {"async_progress": False, "exposure": None}
    links = as_viewer.get("/api/v1/queries/plain/").json()["links"]
    assert links["exposure"] == "/api/v1/queries/plain/exposure/"
    assert links["async-off"] == "/api/v1/queries/plain/async-off/"


def test_the_safe_way_off_is_an_operation_in_steps(
    as_author: APIClient, flights: AsyncQuery
) -> None:
    answer = as_author.post("/api/v1/queries/flights/async-off/")
    assert answer.status_code == 202
    body = answer.json()
    assert body["verb"] == "async-off"
    assert [step["state"] for step in body["steps"]] == ["TODO"] * 7
    assert body["arguments"] == {"revision": 1, "was": "RUNNING", "missing_batch": 111}
    assert as_author.post("/api/v1/queries/flights/async-off/").status_code == 409
    cancelled = as_author.post(body["links"]["cancel"]).json()
    assert cancelled["outcome"] == "CANCELLED"


def test_an_operator_may_not_change_the_definition_that_way(
    as_operator: APIClient, flights: AsyncQuery
) -> None:
    assert as_operator.post("/api/v1/queries/flights/async-off/").status_code == 403


def test_an_edit_that_would_kill_it_is_refused_with_the_way_out(
    as_author: APIClient, flights: AsyncQuery
) -> None:
    answer = as_author.patch(
        "/api/v1/queries/flights/",
        {"spec": {"sink": {"options": {"asyncProgressTrackingEnabled": "false"}}}},
        format="json",
    )
    assert answer.status_code == 422
    [problem] = answer.json()["problems"]
    assert problem["field"] == "sink.options.asyncProgressTrackingEnabled"
    assert "batch 111 doesn't exist" in problem["message"]
    assert "/api/v1/queries/flights/async-off/" in problem["way_out"]


def test_a_run_tells_what_it_did_again(as_viewer: APIClient, flights: AsyncQuery) -> None:
    run = flights.stage.run("flights")
    body = as_viewer.get(f"/api/v1/runs/{run.pk}/").json()
    assert body["replayed"] == Run.objects.get(pk=run.pk).replayed
    Run.objects.filter(pk=run.pk).update(replayed={"batches": 8, "rows": 160, "seconds": 8.0})
    body = as_viewer.get(f"/api/v1/runs/{run.pk}/").json()
    assert (body["replayed"]["batches"], body["replayed"]["rows"]) == (8, 160)
