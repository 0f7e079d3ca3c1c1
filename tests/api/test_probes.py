"""Preflights and state inspections over REST, as CI asks for them."""

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services.definitions import catalog
from tests.api.conftest import SPEC


@pytest.fixture
def ticks(db: None) -> Query:
    return catalog.create_query(name="ticks", spec=SPEC, actor="aude", now=timezone.now())


def test_a_definition_is_tried_with_a_body_as_for_put(as_author: APIClient, ticks: Query) -> None:
    spec = {**SPEC, "sql": "SELECT value FROM ticks"}
    read = as_author.get("/api/v1/queries/ticks/").json()
    answer = as_author.post("/api/v1/queries/ticks/preflight/", {**read, "spec": spec}, "json")
    assert answer.status_code == 202, answer.json()
    body: dict[str, Any] = answer.json()
    assert (body["verb"], body["query"]) == ("preflight", "ticks")
    assert answer["Location"] == f"/api/v1/operations/{body['id']}/"
    assert body["arguments"]["revision"] is None
    assert [step["name"] for step in body["steps"]][-1] == "Delete the copy"


def test_without_a_body_the_newest_revision_is_tried_by_an_operator(
    as_operator: APIClient, as_viewer: APIClient, ticks: Query
) -> None:
    assert as_viewer.post("/api/v1/queries/ticks/preflight/").status_code == 403
    answer = as_operator.post("/api/v1/queries/ticks/preflight/")
    assert answer.status_code == 202
    assert answer.json()["arguments"]["revision"] == 1
    own = as_operator.post("/api/v1/queries/ticks/preflight/", {"spec": SPEC}, "json")
    assert own.status_code == 403
    assert "authors" in own.json()["detail"]


def test_another_spark_is_tried_by_an_author(
    as_author: APIClient, as_operator: APIClient, ticks: Query, settings: Any, tmp_path: Path
) -> None:
    settings.SPARKS_DIR = tmp_path
    address = "/api/v1/queries/ticks/preflight/"
    assert as_operator.post(address, {"spark": "4.2"}, "json").status_code == 403
    missing = as_author.post(address, {"spark": "4.2"}, "json")
    assert missing.status_code == 422
    assert "is not installed on this host" in missing.content.decode()
    assert as_author.post(address, {"spark": "3.4"}, "json").status_code == 422
    (tmp_path / "4.2" / "pyspark").mkdir(parents=True)
    answer = as_author.post(address, {"spark": "4.2"}, "json")
    assert answer.status_code == 202
    operation = Operation.objects.get()
    assert operation.arguments["application_spec"]["spark"] == "4.2"


def test_state_is_not_inspected_on_a_spark_that_cannot_read_it(
    as_author: APIClient, ticks: Query
) -> None:
    revision = ticks.application.revisions.get()
    type(revision).objects.filter(pk=revision.pk).update(spec={**revision.spec, "spark": "3.5"})
    answer = as_author.post("/api/v1/queries/ticks/x-ray/", {}, "json")
    assert answer.status_code == 409
    assert "Spark 3.5 cannot read the state in a checkpoint." in answer.content.decode()
    assert "Spark 4.0 or newer" in answer.content.decode()
    assert not Operation.objects.exists()


def test_what_could_not_be_saved_is_refused_field_by_field(
    as_author: APIClient, ticks: Query
) -> None:
    body = {"spec": {**SPEC, "sql": "DROP TABLE ticks"}}
    answer = as_author.post("/api/v1/queries/ticks/preflight/", body, "json")
    assert answer.status_code == 422
    assert answer.json()["problems"]
    assert not Operation.objects.exists()


def test_where_it_is_required_a_start_is_refused_with_the_way_out(
    as_operator: APIClient, ticks: Query
) -> None:
    revision = ticks.application.revisions.get()
    revision.spec = {**revision.spec, "require_preflight": True}
    revision.save()
    answer = as_operator.post("/api/v1/queries/ticks/start/")
    assert answer.status_code == 409
    assert "/api/v1/queries/ticks/preflight/" in answer.json()["way_out"]


def test_an_x_ray_is_for_authors_and_hides_the_key_it_looks_for(
    as_author: APIClient, as_operator: APIClient, ticks: Query
) -> None:
    address = "/api/v1/queries/ticks/x-ray/"
    assert as_operator.post(address, {}, "json").status_code == 403
    answer = as_author.post(address, {"contains": "somebody", "rows": 5}, "json")
    assert answer.status_code == 202
    assert "somebody" not in answer.content.decode()
    assert as_author.post(address, {"rows": 0}, "json").status_code == 422
    rows = as_author.get(f"{address}{answer.json()['id']}/")
    assert rows.status_code == 404
    assert "has not ended" in rows.json()["detail"]
    assert as_operator.get(f"{address}{answer.json()['id']}/").status_code == 403
