"""Scripts of admins bind secrets and give roots over REST."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

BINDINGS, ROOTS = "/api/v1/secret-bindings/", "/api/v1/allowed-paths/"
BINDING = {
    "secret": "env:KAFKA_PASSWORD",
    "holder_kind": "application",
    "holder": "orders",
    "hosts": ["broker:9092"],
}
ROOT = {"application": "orders", "path": "/data/orders/"}


@pytest.fixture
def ada(admin: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(admin)
    return client


def test_a_binding_is_made_read_replaced_and_taken_away(ada: APIClient) -> None:
    made = ada.post(BINDINGS, BINDING, format="json")
    assert made.status_code == 201
    assert made.json()["given_by"] == "ada"
    assert ada.get(made["Location"]).json() == made.json()
    second = ada.post(BINDINGS, {**BINDING, "hosts": ["*.example.org"]}, format="json")
    (row,) = ada.get(BINDINGS).json()["results"]
    assert row["hosts"] == ["*.example.org"]
    assert ada.get(made["Location"]).status_code == 404
    assert ada.delete(second["Location"]).status_code == 204
    assert ada.get(BINDINGS).json()["results"] == []


def test_a_fault_is_told_by_its_field(ada: APIClient) -> None:
    answer = ada.post(BINDINGS, {**BINDING, "hosts": ["a b"]}, format="json")
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "hosts"
    answer = ada.post(ROOTS, {**ROOT, "path": "relative"}, format="json")
    assert answer.json()["problems"][0]["field"] == "path"


def test_a_root_is_given_read_and_taken_away(ada: APIClient) -> None:
    made = ada.post(ROOTS, ROOT, format="json")
    assert made.status_code == 201
    assert made.json()["path"] == "/data/orders"
    assert ada.get(made["Location"]).json() == made.json()
    assert len(ada.get(ROOTS).json()["results"]) == 1
    assert ada.delete(made["Location"]).status_code == 204
    assert ada.get(made["Location"]).status_code == 404


@pytest.mark.sql(
    "queries.selectors.secrets._naming_secrets",
    "queries.selectors.secrets.secrets",
)
def test_secrets_are_listed_by_name_with_who_names_them(
    ada: APIClient, stage: Stage, settings: Any, tmp_path: Path
) -> None:
    settings.SECRETS_DIR = tmp_path
    (tmp_path / "vault").write_text("the-value-of-it")
    stage.application("orders", env={"T": "file:vault"})
    (secret,) = ada.get("/api/v1/secrets/").json()["results"]
    assert (secret["name"], secret["there"], secret["bindings"]) == ("file:vault", True, [])
    (naming,) = secret["namings"]
    assert (naming["about"], naming["field"]) == ("application orders", "env.T")
    assert naming["refused"] == "is not granted to application orders."
    ada.post(BINDINGS, {"secret": "file:vault", "holder": "orders", "hosts": ["*"]}, format="json")
    answer = ada.get("/api/v1/secrets/")
    (secret,) = answer.json()["results"]
    assert secret["bindings"][0]["hosts"] == ["*"]
    assert secret["namings"][0]["refused"] == ""
    assert "the-value-of-it" not in answer.content.decode()


def test_roots_in_use_are_proposed(
    ada: APIClient, stage: Stage, settings: Any, tmp_path: Path
) -> None:
    settings.ALLOWED_PATHS = [str(tmp_path), "/checkpoints"]
    stage.query("delays", sink={"format": "json", "options": {"path": "/srv/old/out"}})
    (one,) = ada.get(f"{ROOTS}proposals/").json()["results"]
    assert (one["application"], one["path"]) == ("delays", "/srv/old")
    assert one["places"] == [
        {"about": "query delays", "field": "sink.options.path", "text": "/srv/old/out"}
    ]


def test_nobody_but_an_admin_may(author: User) -> None:
    client = APIClient()
    client.force_authenticate(author)
    for address in ("/api/v1/secrets/", f"{ROOTS}proposals/"):
        assert client.get(address).status_code == 403
    for address in (BINDINGS, ROOTS):
        assert client.get(address).status_code == 403
        assert client.post(address, {}, format="json").status_code == 403
