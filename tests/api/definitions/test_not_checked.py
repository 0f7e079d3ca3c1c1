"""A check that was not made is named in every answer and on the page; here no parser answers."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from queries.models.definitions import Query, QueryRevision
from tests.api.conftest import SPEC
from tests.api.manifests.conftest import body, query

pytestmark = pytest.mark.django_db


def said(answer: Any) -> str:
    (skip,) = answer["not_checked"]
    return f"{skip['word']}: {skip['why']}"


def test_rest_names_it_on_a_dry_run_on_saving_and_on_reading(as_author: APIClient) -> None:
    sent = {"name": "delays", "spec": SPEC}
    tried = as_author.post("/api/v1/queries/?dry_run=true", sent, format="json")
    made = as_author.post("/api/v1/queries/", sent, format="json")
    read = as_author.get("/api/v1/queries/delays/")
    for answer in (tried, made, read):
        assert answer.status_code in (200, 201), answer.content
        assert said(answer.json()).startswith("SQL not checked: ")


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_apply_names_it_for_its_object(as_author: APIClient, dry_run: bool) -> None:
    sent = body(query("delays"), dry_run=dry_run)
    (found,) = as_author.post("/api/v1/apply/", sent, format="json").json()["objects"]
    assert said(found).startswith("SQL not checked: ")


def test_the_definitions_page_names_it(as_author: APIClient, client: Client, author: User) -> None:
    as_author.post("/api/v1/queries/", {"name": "delays", "spec": SPEC}, format="json")
    client.force_login(author)
    assert "SQL not checked" in client.get("/queries/delays/definition/").content.decode()


REQUIRED = "?require_checked=true"


def refused(answer: Any) -> list[str]:
    assert answer.status_code == 422, answer.content
    return [
        f"{one['field']} {one['message']} {one['way_out']}" for one in answer.json()["problems"]
    ]


@pytest.mark.guarantee("G-SQL-1")
def test_rest_refuses_it_if_the_check_is_required(as_author: APIClient) -> None:
    sent = {"name": "delays", "spec": SPEC}
    for dry in ("", "&dry_run=true"):
        (said,) = refused(as_author.post(f"/api/v1/queries/{REQUIRED}{dry}", sent, format="json"))
        assert said.startswith("sql was not checked, and the request requires the check. ")
        assert said.endswith("Send it again later.")
    assert not Query.objects.exists()
    as_author.post("/api/v1/queries/", sent, format="json")
    assert refused(as_author.post(f"/api/v1/queries/{REQUIRED}", sent, format="json"))
    address, merge = f"/api/v1/queries/delays/{REQUIRED}", "application/merge-patch+json"
    for sql in (SPEC["sql"], f"{SPEC['sql']} WHERE 1 = 1"):
        sent = {"spec": {**SPEC, "sql": sql}}
        assert refused(as_author.patch(address, json.dumps(sent), content_type=merge))
        assert refused(as_author.put(address, sent, format="json", HTTP_IF_MATCH="*"))
        assert refused(
            as_author.put(f"{address}&dry_run=true", sent, format="json", HTTP_IF_MATCH="*")
        )
    assert Query.objects.get().revisions.count() == 1


def test_an_apply_refuses_it_if_the_check_is_required_changed_or_not(as_author: APIClient) -> None:
    required: dict[str, Any] = body(query("delays"), require_checked=True)
    for _ in ("new", "unchanged"):
        for sent in ({**required, "dry_run": True}, required):
            answer = as_author.post("/api/v1/apply/", sent, format="json")
            assert answer.status_code == 422
            (found,) = answer.json()["objects"]
            assert found["outcome"] == "refused"
            assert found["problems"][0]["field"] == "spec.sql"
        as_author.post("/api/v1/apply/", body(query("delays")), format="json")
    QueryRevision.objects.update(unchecked=[])
    assert as_author.post("/api/v1/apply/", required, format="json").status_code == 200
