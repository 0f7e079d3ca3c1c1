"""Admins declare catalogs over REST."""

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

pytestmark = pytest.mark.django_db

URL = "/api/v1/catalogs/"
LAKE = {
    "name": "lake",
    "type": "rest",
    "address": "https://catalog.example.org",
    "properties": {"prefix": "prod"},
}


@pytest.fixture
def ada(admin: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(admin)
    return client


def test_a_catalog_is_declared_read_replaced_and_deleted(ada: APIClient) -> None:
    made = ada.post(URL, LAKE, format="json")
    assert made.status_code == 201, made.json()
    assert made.json()["teams"] == []
    assert (made.json()["secret"], made.json()["vended"]) == ("", False)
    assert ada.get(made["Location"]).json() == made.json()
    change = {"type": "rest", "address": "https://new.example.org", "warehouse": "prod"}
    changed = ada.put(made["Location"], change, format="json")
    assert changed.status_code == 200, changed.json()
    assert (changed.json()["warehouse"], changed.json()["properties"]) == ("prod", {})
    (row,) = ada.get(URL).json()["results"]
    assert row["address"] == "https://new.example.org"
    assert ada.delete(made["Location"]).status_code == 204
    assert ada.get(made["Location"]).status_code == 404


def test_every_problem_names_its_field(ada: APIClient) -> None:
    bad = {**LAKE, "address": "jdbc:x", "properties": {"io-impl": "a.B"}, "secret": "hunter2"}
    answer = ada.post(URL, bad, format="json")
    assert answer.status_code == 422
    fields = [one["field"] for one in answer.json()["problems"]]
    assert sorted(fields) == ["address", "properties.io-impl", "secret"]
    assert "hunter2" not in answer.content.decode()


def test_an_unknown_type_is_rejected(ada: APIClient) -> None:
    answer = ada.post(URL, {**LAKE, "type": "hive"}, format="json")
    assert [one["field"] for one in answer.json()["problems"]] == ["type"]
