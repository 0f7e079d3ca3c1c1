"""The lineage over REST."""

import pytest
from rest_framework.test import APIClient

from queries.api import lineage
from tests.scenarios.stage import Stage
from tests.web.test_lineage import flow, told

pytestmark = pytest.mark.django_db


def test_edges_say_what_they_are_known_from(as_viewer: APIClient, stage: Stage) -> None:
    flow(stage)
    told(stage, "code", "FileStreamSource[file:/data/late]", "ForeachBatchSink")
    found = as_viewer.get("/api/v1/lineage/").json()
    edges = {(one["query"], one["writes"]): one for one in found["edges"]}
    assert edges["raw", True] == {
        "query": "raw",
        "writes": True,
        "kind": "topic",
        "dataset": "flights",
        "store": "b1:9092",
        "via": "",
        "known_from": "definition",
        "as_of": None,
    }
    assert edges["code", False]["dataset"] == "file:///data/late"
    assert edges["code", False]["known_from"] == "spark"
    assert edges["code", False]["as_of"].startswith("2026-01-05T03:00:00")
    assert found["unknown"] == [{"query": "code", "says": ["Writes by foreachBatch: unknown."]}]
    assert found["left_out"] == 0


def test_filters_keep_matches_and_their_neighbours(as_viewer: APIClient, stage: Stage) -> None:
    flow(stage)
    for asked in ({"search": "daily"}, {"application": "daily"}):
        found = as_viewer.get("/api/v1/lineage/", asked).json()
        assert {one["query"] for one in found["edges"]} == {"daily", "late"}
    assert as_viewer.get("/api/v1/lineage/", {"label": "team"}).json()["edges"] == []


def test_a_querys_lineage_names_both_directions(as_viewer: APIClient, stage: Stage) -> None:
    flow(stage)
    found = as_viewer.get("/api/v1/queries/raw/lineage/").json()
    assert (found["upstream"], found["downstream"]) == ([], ["late", "daily"])
    assert found["edges"][0]["query"] == "raw"
    assert (found["unsure_upstream"], found["unsure_downstream"]) == ([], [])
    unread = {"relations": [], "unknown": ["Spark's parser rejects it"]}
    stage.row("apart").revisions.update(reads=unread)
    found = as_viewer.get("/api/v1/queries/raw/lineage/").json()
    assert (found["unsure_upstream"], found["unsure_downstream"]) == ([], ["apart"])
    assert as_viewer.get("/api/v1/queries/none/lineage/").status_code == 404


def test_what_does_not_fit_is_counted(
    as_viewer: APIClient, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow(stage)
    monkeypatch.setattr(lineage, "MOST_EDGES", 2)
    found = as_viewer.get("/api/v1/lineage/").json()
    assert (len(found["edges"]), found["left_out"]) == (2, 3)
