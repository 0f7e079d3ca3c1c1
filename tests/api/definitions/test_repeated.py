"""A request that is sent twice does its work once; a put creates; a dry run writes nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from queries.models.access.accounts import AccessToken, KeptAnswer
from queries.models.alerts import AlertRule, Channel
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services.idempotency_keys import RETENTION, forget_answers
from tests.api.conftest import SPEC

pytestmark = pytest.mark.django_db

QUERIES = "/api/v1/queries/"
TICKS: dict[str, Any] = {"name": "ticks", "spec": SPEC}
MAIL = {"host": "mail.example.org", "sender": "h@example.org", "recipients": ["o@example.org"]}


def send(client: APIClient, address: str, body: Any, key: str = "one", **more: Any) -> Any:
    """Return the answer to a POST under a key."""
    return client.post(address, body, format="json", HTTP_IDEMPOTENCY_KEY=key, **more)


# --- Idempotency-Key ----------------------------------------------------------------------


def test_the_same_request_gets_the_same_answer(as_author: APIClient) -> None:
    first = send(as_author, QUERIES, TICKS)
    again = send(as_author, QUERIES, TICKS)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert (again["Location"], again["ETag"]) == (first["Location"], first["ETag"])
    assert (again["Idempotency-Replayed"], "Idempotency-Replayed" in first) == ("true", False)
    assert Query.objects.count() == 1


def test_a_verb_is_asked_once(as_author: APIClient) -> None:
    as_author.post(QUERIES, TICKS, format="json")
    answers = [send(as_author, f"{QUERIES}ticks/restart/", {}) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert Operation.objects.count() == 1


def test_another_body_under_the_same_key_is_a_conflict(as_author: APIClient) -> None:
    send(as_author, QUERIES, TICKS)
    answer = send(as_author, QUERIES, TICKS | {"name": "other"})
    assert answer.status_code == 409
    assert "new key" in answer.json()["way_out"]
    assert send(as_author, f"{QUERIES}ticks/start/", {}).status_code == 409
    assert Query.objects.count() == 1


def test_a_key_is_its_users_alone(as_author: APIClient, as_admin: APIClient) -> None:
    send(as_author, QUERIES, TICKS)
    assert send(as_admin, QUERIES, TICKS | {"name": "other"}).status_code == 201


def test_a_refused_request_frees_its_key(as_author: APIClient) -> None:
    bad = send(as_author, QUERIES, {"name": "ticks", "spec": {"kind": "sql"}})
    assert bad.status_code == 422
    assert send(as_author, QUERIES, TICKS).status_code == 201


def test_a_request_that_is_being_answered_is_not_served_beside_itself(
    as_author: APIClient, author: User
) -> None:
    send(as_author, QUERIES, TICKS)
    KeptAnswer.objects.update(status=None, body=None)
    answer = send(as_author, QUERIES, TICKS)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:headgate:problem:conflict")
    assert "still being processed" in answer.json()["detail"]
    assert answer["Retry-After"] == "1"
    KeptAnswer.objects.update(created_at=timezone.now() - timedelta(hours=1))
    assert "was not completed" in send(as_author, QUERIES, TICKS).json()["detail"]


def test_no_stored_answer_holds_a_token(as_admin: APIClient, author: User) -> None:
    asked = {"user": author.username, "name": "ci"}
    first = send(as_admin, "/api/v1/tokens/", asked)
    assert first.status_code == 201
    text = first.json()["token"]
    assert text not in str(KeptAnswer.objects.get().body)
    again = send(as_admin, "/api/v1/tokens/", asked).json()
    assert again["token"] != text
    assert again["id"] == first.json()["id"]
    assert AccessToken.objects.filter(name="ci").count() == 1


def test_after_a_day_a_key_is_forgotten(as_author: APIClient) -> None:
    send(as_author, QUERIES, TICKS)
    KeptAnswer.objects.update(created_at=timezone.now() - RETENTION)
    assert send(as_author, QUERIES, TICKS | {"name": "other"}).status_code == 201
    send(as_author, QUERIES, TICKS | {"name": "third"}, key="two")
    KeptAnswer.objects.filter(key="two").update(created_at=timezone.now() - RETENTION)
    assert forget_answers(now=timezone.now()) == 1
    assert KeptAnswer.objects.get().key == "one"


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\tkey", "naïve"])
def test_what_is_no_key_is_refused(as_author: APIClient, key: str) -> None:
    answer = send(as_author, QUERIES, TICKS, key=key)
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "Idempotency-Key"


def test_who_may_not_is_refused_before_the_key(as_viewer: APIClient) -> None:
    assert send(as_viewer, QUERIES, TICKS).status_code == 403
    assert not KeptAnswer.objects.exists()


# --- a repeated create --------------------------------------------------------------------


@pytest.mark.parametrize("address", ["/api/v1/none/", "/api/v1/failure-groups/-1/resolve/"])
def test_an_address_that_is_none_takes_no_key(as_viewer: APIClient, address: str) -> None:
    with CaptureQueriesContext(connection) as asked:
        assert send(as_viewer, address, {}).status_code == 404
    assert not [one for one in asked.captured_queries if "keptanswer" in one["sql"]]


def test_an_identical_create_answers_with_what_is_there(as_author: APIClient) -> None:
    first = as_author.post(QUERIES, TICKS, format="json")
    again = as_author.post(
        QUERIES, TICKS | {"checkpoint": first.json()["checkpoint"]}, format="json"
    )
    assert (again.status_code, again.json()["name"]) == (200, "ticks")
    assert again["ETag"] == first["ETag"]
    assert Query.objects.get().revisions.count() == 1


@pytest.mark.parametrize(
    "other",
    [
        {"spec": SPEC | {"description": "another"}},
        {"application": "flights"},
        {"checkpoint": "/elsewhere"},
        {"checkpoint": "nowhere"},
        {"application_spec": {"memory": "2g"}},
        {"team": "data"},
    ],
)
def test_a_create_that_differs_is_refused(as_author: APIClient, other: dict[str, Any]) -> None:
    as_author.post(QUERIES, TICKS, format="json")
    assert as_author.post(QUERIES, TICKS | other, format="json").status_code == 422


def test_applications_pools_and_rules_are_created_once_too(as_admin: APIClient) -> None:
    Channel.objects.create(
        name="ops", kind="mail", settings={}, created_at=datetime(2026, 1, 5, tzinfo=UTC)
    )
    for address, body in (
        ("/api/v1/applications/", {"name": "flights", "spec": {"memory": "2g"}}),
        ("/api/v1/applications/flights/pools/", {"name": "light", "weight": 2}),
        ("/api/v1/alert-rules/", {"name": "nights", "channels": ["ops"]}),
    ):
        answers = [as_admin.post(address, body, format="json") for _ in range(2)]
        assert [one.status_code for one in answers] == [201, 200], answers[1].json()
        assert answers[0].json()["name"] == answers[1].json()["name"]
    other = {"name": "flights", "spec": {"memory": "3g"}}
    assert as_admin.post("/api/v1/applications/", other, format="json").status_code == 422
    assert Application.objects.get().pools.count() == AlertRule.objects.count() == 1


@pytest.mark.sql
@pytest.mark.parametrize(
    ("address", "body", "other"),
    [
        pytest.param(
            "teams/",
            {"name": "data", "members": ["aude"]},
            {"members": []},
            marks=pytest.mark.sql("queries.api.access.get_applications"),
        ),
        ("code-hosts/", {"host": "git.example.org"}, None),
        (
            "catalogs/",
            {"name": "lake", "type": "rest", "address": "https://c.example.org"},
            {"vended": True},
        ),
        ("group-roles/", {"group": "Data", "role": "author"}, {"role": "viewer"}),
        (
            "secret-bindings/",
            {"secret": "env:KEY", "holder": "flights", "hosts": ["a.example.org"]},
            None,
        ),
        ("allowed-paths/", {"application": "flights", "path": "s3a://bucket/flights"}, None),
        (
            "alert-channels/",
            {"name": "ops", "kind": "mail", "settings": MAIL},
            {"enabled": False},
        ),
    ],
)
def test_what_admins_make_is_made_once_too(
    as_admin: APIClient,
    author: User,
    address: str,
    body: dict[str, Any],
    other: dict[str, Any] | None,
) -> None:
    answers = [as_admin.post(f"/api/v1/{address}", body, format="json") for _ in range(2)]
    assert [one.status_code for one in answers] == [201, 200], answers[1].json()
    assert answers[0].json() == answers[1].json()
    assert len(as_admin.get(f"/api/v1/{address}").json()["results"]) == 1
    if other is not None:
        differs = as_admin.post(f"/api/v1/{address}", body | other, format="json")
        assert differs.status_code in (409, 422)


# --- put ----------------------------------------------------------------------------------


def test_a_put_creates_where_nothing_is_there(as_author: APIClient) -> None:
    new: Any = {"HTTP_IF_NONE_MATCH": "*", "format": "json"}
    made = as_author.put(f"{QUERIES}ticks/", {"spec": SPEC}, **new)
    assert (made.status_code, made["Location"]) == (201, "/api/v1/queries/ticks/")
    again = as_author.put(f"{QUERIES}ticks/", {"spec": SPEC}, **new)
    assert again.status_code == 412
    assert "If-Match" in again.json()["way_out"]
    address = "/api/v1/applications/flights/"
    assert as_author.put(address, {"spec": {}}, **new).status_code == 201
    assert as_author.put(address, {"spec": {}}, **new).status_code == 412
    named = as_author.put(f"{QUERIES}other/", {"spec": SPEC, "name": "ticks"}, **new)
    assert named.status_code == 422
    odd = as_author.put(f"{QUERIES}x/", {"spec": SPEC}, HTTP_IF_NONE_MATCH='"a"', format="json")
    assert odd.status_code == 422


def test_a_put_without_it_creates_nothing(as_author: APIClient) -> None:
    assert as_author.put(f"{QUERIES}ticks/", {"spec": SPEC}, format="json").status_code == 404


# --- dry run ------------------------------------------------------------------------------


@pytest.mark.sql("queries.api.definitions.changes._newest")
def test_a_dry_run_answers_what_would_change(as_author: APIClient) -> None:
    dry = f"{QUERIES}?dry_run=true"
    assert as_author.post(dry, TICKS, format="json").json()["outcome"] == "created"
    assert not Query.objects.exists()
    etag = as_author.post(QUERIES, TICKS, format="json")["ETag"]
    part = {"spec": {"trigger": {"interval": "1 minute"}}}
    at = f"{QUERIES}ticks/?dry_run=true"
    answer = as_author.patch(at, part, format="json").json()
    assert answer["changes"] == [
        {"field": "spec.trigger.interval", "before": "5 seconds", "after": "1 minute"}
    ]
    same = as_author.put(at, {"spec": SPEC}, format="json", HTTP_IF_MATCH=etag).json()
    assert (same["outcome"], same["changes"]) == ("unchanged", [])
    bad = as_author.patch(at, {"spec": {"trigger": {"interval": "soon"}}}, format="json")
    assert bad.status_code == 422
    assert Query.objects.get().revisions.count() == 1


@pytest.mark.sql("queries.api.supervision.applications._store")
def test_a_dry_run_of_an_application(as_author: APIClient) -> None:
    address = "/api/v1/applications/"
    body = {"name": "flights", "spec": {}}
    assert as_author.post(f"{address}?dry_run=true", body, format="json").status_code == 200
    bad = {"name": "flights", "spec": {"memory": "much"}}
    assert as_author.post(f"{address}?dry_run=true", bad, format="json").status_code == 422
    assert not Application.objects.exists()
    as_author.post(address, body, format="json")
    at = f"{address}flights/?dry_run=true"
    answer = as_author.patch(at, {"spec": {"memory": "2g"}}, format="json").json()
    assert (answer["outcome"], answer["changes"][0]["field"]) == ("changed", "spec.memory")
    assert Application.objects.get().revisions.count() == 1


# --- lists --------------------------------------------------------------------------------


@pytest.mark.sql("queries.selectors.supervision.query_filters.queries")
def test_an_unknown_parameter_of_a_list_is_refused_with_the_nearest(as_viewer: APIClient) -> None:
    answer = as_viewer.get(f"{QUERIES}?phases=FAILED")
    assert answer.status_code == 422
    [problem] = answer.json()["problems"]
    assert (problem["field"], problem["way_out"]) == ("phases", "Did you mean phase?")
    assert as_viewer.get("/api/v1/runs/").status_code == 404
    far = as_viewer.get(f"{QUERIES}?zzz=1").json()["problems"][0]
    assert "Known: phase" in far["way_out"]
    assert as_viewer.get(f"{QUERIES}?phase=FAILED&limit=3").status_code == 200


def test_every_error_has_a_way_out(as_author: APIClient, as_viewer: APIClient) -> None:
    answers = [
        as_author.get("/api/v1/nothing/"),
        as_author.get(f"{QUERIES}nothing/"),
        as_author.delete(QUERIES),
        as_author.post(QUERIES, "{", content_type="application/json"),
        as_author.post(QUERIES, "x", content_type="text/plain"),
        as_author.post(QUERIES, {}, format="json"),
        as_author.post(QUERIES, [], format="json"),
        as_author.post(QUERIES, {"name": 1, "spec": 2, "no": 3}, format="json"),
        as_author.post(QUERIES, {"name": "x", "spec": {"kind": "sql", "sql": 1}}, format="json"),
        as_author.get("/api/v1/operations/00000000-0000-0000-0000-000000000000/"),
        as_viewer.post(QUERIES, TICKS, format="json"),
        APIClient().get(QUERIES),
    ]
    as_author.post(QUERIES, TICKS, format="json")
    answers.append(as_author.put(f"{QUERIES}ticks/", {"spec": SPEC}, format="json"))
    stale: Any = {"HTTP_IF_MATCH": '"query-1-r9"', "format": "json"}
    answers.append(as_author.put(f"{QUERIES}ticks/", {"spec": SPEC}, **stale))
    for answer in answers:
        body = answer.json()
        assert answer.status_code >= 400
        assert body["way_out"], body
        assert all(problem["way_out"] for problem in body.get("problems", ())), body
