"""Every error is a problem of RFC 9457: the same form whatever went wrong."""

from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from queries.api.errors import TABLE, problem_of
from queries.domain import errors
from queries.domain.errors import HeadgateError, Invalid, Problem
from tests.scenarios.stage import Stage

FORM = {"type", "title", "status", "detail", "way_out"}


def problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert set(body) >= FORM
    assert body["status"] == status
    assert body["type"].startswith("urn:headgate:problem:")
    return body


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, HeadgateError)
    ],
)
def test_each_of_our_errors_has_its_line_in_the_table(kind: type[HeadgateError]) -> None:
    error = Invalid([Problem("a", "b", "c.")]) if kind is Invalid else kind()
    assert kind in TABLE
    assert problem_of(error)["status"] == TABLE[kind][0]


def test_the_title_of_a_conflict_accuses_nobody() -> None:
    # Most conflicts are with a state: a pool in use, a closed incident, a query that does not run.
    form = problem_of(errors.Conflict("Pool night is used by delays."))
    assert (form["status"], form["title"]) == (409, "Conflict with the current state")
    assert "Check its current state" in form["way_out"]


def test_no_token_is_401(client: Client, db: None) -> None:
    answer = client.get("/api/v1/queries/")
    assert "Token" in problem(answer, 401)["way_out"]
    assert answer["WWW-Authenticate"] == "Token"


def test_a_void_token_is_401(client: Client, db: None) -> None:
    headers = {"Authorization": "Token nonsense"}
    problem(client.get("/api/v1/queries/", headers=headers), 401)


def test_a_query_that_is_not_there_is_404(as_viewer: APIClient) -> None:
    body = problem(as_viewer.get("/api/v1/queries/nobody/"), 404)
    assert "nobody" in body["detail"]
    assert body["way_out"]


@pytest.mark.parametrize("address", ["/api/v1/nonsense/", "/api/v1/", "/api/v1/queries/a/b/c/"])
def test_an_address_that_is_not_there_is_404(as_viewer: APIClient, address: str) -> None:
    problem(as_viewer.get(address), 404)


def test_an_address_without_its_slash_is_told_so(as_operator: APIClient, stage: Stage) -> None:
    stage.query("delays")
    body = problem(as_operator.post("/api/v1/queries/delays/start"), 404)
    assert "slash" in body["detail"]
    assert stage.row("delays").desired == "STOPPED"


def test_a_method_that_is_not_known_is_405(as_viewer: APIClient) -> None:
    answer = as_viewer.delete("/api/v1/checkpoints/")
    problem(answer, 405)
    assert "GET" in answer["Allow"]


def test_a_method_that_is_not_known_is_405_on_the_long_poll_too(as_viewer: APIClient) -> None:
    problem(as_viewer.post("/api/v1/operations/7e6ed3b4-9a58-4d4b-9a3b-0d5a3c1f2b10/"), 405)


def test_a_body_that_is_no_json_is_400(as_author: APIClient) -> None:
    answer = as_author.generic("POST", "/api/v1/queries/", "{", content_type="application/json")
    problem(answer, 400)


def test_a_body_in_another_form_is_415(as_author: APIClient) -> None:
    answer = as_author.generic("POST", "/api/v1/queries/", "a=b", content_type="text/csv")
    problem(answer, 415)


@pytest.mark.parametrize("body", ["[]", "7", '"text"', "null"])
def test_a_body_that_is_no_object_is_422(as_author: APIClient, body: str) -> None:
    answer = as_author.generic("POST", "/api/v1/queries/", body, content_type="application/json")
    assert problem(answer, 422)["problems"]


def test_missing_fields_are_named(as_author: APIClient) -> None:
    answer = as_author.post("/api/v1/queries/", {}, format="json")
    fields = {fault["field"] for fault in problem(answer, 422)["problems"]}
    assert fields == {"name", "spec"}


def test_whatever_is_accepted_an_error_is_still_a_problem(as_viewer: APIClient) -> None:
    headers = {"Accept": "text/html"}
    problem(as_viewer.get("/api/v1/queries/nobody/", headers=headers), 404)


def test_a_full_disk_is_said_in_plain_words(as_author: APIClient, full_database: None) -> None:
    conf = {f"spark.sql.note{number}": "x" * 2_000 for number in range(100)}
    spec = {"master": "local[2]", "memory": "1g", "conf": conf}
    form = {"name": "big", "spec": spec}
    body = problem(as_author.post("/api/v1/applications/", form, format="json"), 503)
    assert "The disk is full" in body["detail"]
    assert "Free up space" in body["way_out"]
    assert as_author.get("/api/v1/applications/").json()["results"] == []


def test_a_fault_of_ours_is_a_problem_without_a_traceback(
    as_viewer: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr("queries.api.supervision.queries.query_lines", broken)
    body = problem(as_viewer.get("/api/v1/queries/"), 500)
    assert "hunter2" not in str(body)
    assert "Traceback" not in str(body)
