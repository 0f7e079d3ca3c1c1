"""A check that was not made is named in every answer and on the page; here no parser answers."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

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
