"""Put and patch: If-Match guards the definition, and only the definition."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from queries.domain.definitions.sql_verdict import SqlVerdict
from queries.models.definitions import Query
from queries.services.definitions import query_plans
from tests.api.conftest import SPEC
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind

URL = "/api/v1/queries/ticks/"


@pytest.fixture
def ticks(as_author: APIClient) -> dict[str, Any]:
    """Create a query; return its body."""
    answer = as_author.post("/api/v1/queries/", {"name": "ticks", "spec": SPEC}, format="json")
    body: dict[str, Any] = answer.json()
    return body


def slower(body: dict[str, Any], interval: str = "30 seconds") -> dict[str, Any]:
    trigger = {"kind": "processing_time", "interval": interval}
    return {**body, "spec": {**body["spec"], "trigger": trigger}}


def test_a_put_of_what_was_got_edited_makes_a_revision(
    as_author: APIClient, ticks: dict[str, Any]
) -> None:
    answer = as_author.put(URL, slower(ticks), format="json", headers={"If-Match": ticks["etag"]})
    assert answer.status_code == 200, answer.json()
    assert answer.json()["revision"] == 2
    assert answer.json()["spec"]["trigger"]["interval"] == "30 seconds"
    assert answer["ETag"] != ticks["etag"]


@pytest.mark.sql(
    "queries.api.definitions.changes._newest",
    "queries.api.supervision.queries._store",
)
def test_a_put_without_if_match_is_told_to_send_it(
    as_author: APIClient, ticks: dict[str, Any]
) -> None:
    answer = as_author.put(URL, slower(ticks), format="json")
    assert answer.status_code == 428
    assert "If-Match" in answer.json()["detail"]
    assert as_author.get(URL).json()["revision"] == 1


def test_a_put_on_what_somebody_else_changed_is_stale(
    as_author: APIClient, ticks: dict[str, Any]
) -> None:
    match = {"If-Match": ticks["etag"]}
    as_author.put(URL, slower(ticks), format="json", headers=match)
    answer = as_author.put(URL, slower(ticks, "1 minute"), format="json", headers=match)
    assert answer.status_code == 412
    assert answer.json()["type"] == "urn:headgate:problem:stale-revision"
    assert as_author.get(URL).json()["spec"]["trigger"]["interval"] == "30 seconds"


def test_what_a_query_does_never_makes_its_etag_stale(as_author: APIClient, stage: Stage) -> None:
    stage.query("ticks")
    before = as_author.get(URL)["ETag"]
    stage.up("ticks")
    assert as_author.get(URL).json()["phase"] == "RUNNING"
    assert as_author.get(URL)["ETag"] == before


def test_a_query_made_anew_under_its_old_name_has_another_etag(
    as_author: APIClient, ticks: dict[str, Any]
) -> None:
    as_author.delete(URL)
    as_author.post("/api/v1/queries/", {"name": "ticks", "spec": SPEC}, format="json")
    body = {"spec": slower(ticks)["spec"]}
    answer = as_author.put(URL, body, format="json", headers={"If-Match": ticks["etag"]})
    assert answer.status_code == 412
    assert as_author.get(URL).json()["revision"] == 1


def test_the_star_matches_whatever_is_there(as_author: APIClient, ticks: dict[str, Any]) -> None:
    answer = as_author.put(URL, slower(ticks), format="json", headers={"If-Match": "*"})
    assert answer.status_code == 200
    assert answer.json()["revision"] == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "tocks"), ("application", "other"), ("checkpoint", "file:///elsewhere")],
)
def test_what_cannot_change_is_named(
    as_author: APIClient, ticks: dict[str, Any], field: str, value: str
) -> None:
    body = {**slower(ticks), field: value}
    answer = as_author.put(URL, body, format="json", headers={"If-Match": ticks["etag"]})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == field
    assert as_author.get(URL).json()["revision"] == 1


def test_an_equal_put_makes_no_revision(as_author: APIClient, ticks: dict[str, Any]) -> None:
    answer = as_author.put(URL, ticks, format="json", headers={"If-Match": ticks["etag"]})
    assert answer.json()["revision"] == 1


@pytest.mark.parametrize("media_type", ["application/json", "application/merge-patch+json"])
def test_a_patch_changes_what_it_names_and_nothing_else(
    as_author: APIClient, ticks: dict[str, Any], media_type: str
) -> None:
    answer = as_author.generic(
        "PATCH", URL, '{"spec": {"trigger": {"interval": "1 minute"}}}', content_type=media_type
    )
    assert answer.status_code == 200, answer.content
    assert answer.json()["spec"] == {
        **ticks["spec"],
        "trigger": {"kind": "processing_time", "interval": "1 minute"},
    }


def test_null_in_a_patch_removes(as_author: APIClient, ticks: dict[str, Any]) -> None:
    as_author.patch(URL, {"spec": {"description": "counts ticks"}}, format="json")
    answer = as_author.patch(URL, {"spec": {"description": None}}, format="json")
    assert answer.json()["spec"] == ticks["spec"]
    assert answer.json()["revision"] == 3


def test_a_patch_with_a_stale_etag_is_refused(as_author: APIClient, ticks: dict[str, Any]) -> None:
    change = {"spec": {"trigger": {"interval": "1 minute"}}}
    match = {"If-Match": ticks["etag"]}
    assert as_author.patch(URL, change, format="json", headers=match).status_code == 200
    assert as_author.patch(URL, change, format="json", headers=match).status_code == 412


def test_a_secret_that_was_stored_is_masked_wherever_it_is_read(as_author: APIClient) -> None:
    as_author.post("/api/v1/queries/", {"name": "ticks", "spec": SPEC}, format="json")
    revision = Query.objects.get(name="ticks").revisions.get()
    revision.spec["sources"][0]["options"]["password"] = "hunter2"  # from before it was refused
    revision.save()
    body = as_author.get(URL).json()
    assert "hunter2" not in str(body)
    assert "hunter2" not in as_author.get("/api/v1/queries/").content.decode()
    assert "hunter2" not in as_author.get(f"{URL}revisions/").content.decode()


def test_a_reference_to_a_secret_is_shown(as_author: APIClient) -> None:
    body = {
        "name": "ticks",
        "spec": SPEC,
        "application_spec": {"env": {"DB_PASSWORD": "file:db-password"}},
    }
    bind("file:db-password", "ticks")
    created = as_author.post("/api/v1/queries/", body, format="json")
    assert created.status_code == 201, created.json()
    shown = as_author.get("/api/v1/applications/ticks/").json()["spec"]["env"]
    assert shown == {"DB_PASSWORD": "file:db-password"}


def test_the_revisions_are_listed_newest_first(as_author: APIClient, ticks: dict[str, Any]) -> None:
    as_author.patch(URL, {"spec": {"trigger": {"interval": "1 minute"}}}, format="json")
    rows = as_author.get(f"{URL}revisions/").json()["results"]
    assert [row["revision"] for row in rows] == [2, 1]
    assert [row["author"] for row in rows] == ["aude", "aude"]


def test_refused_sql_has_its_place(
    as_author: APIClient, ticks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 2, pos 0)"
    verdict = SqlVerdict(ok=False, message=said, line=2, column=1)
    monkeypatch.setattr(query_plans, "ask_spark_of_many", lambda *_, **__: [verdict])
    change = {"spec": {"sql": "SELECT value\nFORM rows"}}
    answer = as_author.patch(URL, change, format="json")
    (problem,) = answer.json()["problems"]
    assert (problem["field"], problem["line"], problem["column"]) == ("sql", 2, 1)
    monkeypatch.undo()
    wrong = {"spec": {"sql": ""}}
    (other,) = as_author.patch(URL, wrong, format="json").json()["problems"]
    assert other["field"] == "sql"
    assert not {"line", "column"} & set(other)
