"""GET queries/{name}/advice/: cost, curve, suggestions and limits, as the page has them."""

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from listeners.models import SlowBatch
from queries.models.definitions import Query
from tests.scenarios.stage import Stage
from tests.web.batches import batches
from tests.web.triggers.test_trigger_page import kafka, measured


@pytest.fixture
def delays(stage: Stage) -> Query:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    query = stage.query("delays", "kafkas", **kafka())
    stage.up("delays", "kafkas")
    return query


def test_it_tells_what_the_page_shows(as_viewer: APIClient, stage: Stage, delays: Query) -> None:
    measured(stage, "delays")
    body = as_viewer.get("/api/v1/queries/delays/advice/").json()
    assert (body["revision"], body["measured_revision"], body["batches"]) == (1, 1, 29)
    assert body["untold"] == body["overload"] == body["outgrown"] == ""
    assert body["cost"]["fixed_low_ms"] <= body["cost"]["fixed_ms"] <= body["cost"]["fixed_high_ms"]
    assert body["cost"]["per_row_ms"] == pytest.approx(0.1, rel=0.05)
    assert 0.2 < body["checkpoint_tax"] < 0.8
    assert body["now"]["interval_ms"] == 5000
    assert len(body["curve"]) == 49
    assert [one["key"] for one in body["triggers"] if one["chosen"]] == ["processing_time"]
    assert len(body["triggers"]) == 7
    shorter = next(one for one in body["suggestions"] if one["key"] == "interval")
    assert shorter["spec"]["trigger"]["interval"] == "500 milliseconds"


def test_it_tells_why_batches_were_slow(as_viewer: APIClient, stage: Stage, delays: Query) -> None:
    run = stage.run("delays")
    batches(run, 1, until=timezone.now(), duration_ms=41_000, rows=7)
    SlowBatch.objects.create(
        driver=run.driver_id,
        seq=1,
        query=run.query_id,
        run=run.pk,
        batch=0,
        took_ms=41_000,
        at=timezone.now(),
        body={"stages": []},
    )
    (slow,) = as_viewer.get("/api/v1/queries/delays/advice/").json()["slow_batches"]
    assert (slow["batch"], slow["run"], slow["rows"], slow["took_ms"]) == (0, run.pk, 7, 41_000)
    assert slow["says"] == "Batch 0 took 41 s: the driver took 41 s outside Spark's tasks."
    assert [(one["cause"], one["ms"]) for one in slow["causes"]] == [
        ("driver", 40_900),
        ("checkpoint", 100),
    ]


def test_a_suggestion_is_put_as_it_is(as_author: APIClient, stage: Stage, delays: Query) -> None:
    measured(stage, "delays")
    body = as_author.get("/api/v1/queries/delays/advice/").json()
    shorter = next(one for one in body["suggestions"] if one["key"] == "interval")
    answer = as_author.put(
        "/api/v1/queries/delays/",
        {"spec": shorter["spec"]},
        format="json",
        HTTP_IF_MATCH=as_author.get("/api/v1/queries/delays/")["ETag"],
    )
    assert answer.status_code == 200, answer.content
    assert delays.revisions.count() == 2


def test_a_query_without_batches_tells_why(as_viewer: APIClient, stage: Stage) -> None:
    stage.query("rates")
    body = as_viewer.get("/api/v1/queries/rates/advice/").json()
    assert (body["cost"], body["now"], body["curve"], body["suggestions"]) == (None, None, [], [])
    assert "at least 12 are needed" in body["untold"]
    assert body["measured_revision"] is None


def test_a_definition_that_cannot_be_read_is_a_conflict(
    as_viewer: APIClient, delays: Query
) -> None:
    delays.revisions.update(spec={"kind": "sql", "gone": True})
    assert as_viewer.get("/api/v1/queries/delays/advice/").status_code == 409
