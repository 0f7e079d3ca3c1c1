"""The audit log over REST: pages of entries and JSON lines, for admins alone."""

import json

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from queries.domain.access import Act
from queries.models.access.audit import AuditEntry
from queries.services.access.audit import chain_entries
from tests.scenarios.stage import Stage


@pytest.mark.guarantee("G-AUDIT-1")
@pytest.mark.sql("queries.selectors.access.entries")
def test_an_admin_reads_what_was_done_and_by_which_token(as_admin: APIClient, admin: User) -> None:
    as_admin.post("/api/v1/tokens/", {"user": "ada", "name": "nightly"}, format="json")
    chain_entries()
    [entry] = as_admin.get("/api/v1/audit/?subject=nightly").json()["results"]
    assert (entry["act"], entry["actor"], entry["token"]) == ("token-created", "ada", "tests")
    assert entry["number"] == 2  # after the token that asks
    assert as_admin.get("/api/v1/audit/?actor=nobody").json()["results"] == []
    assert as_admin.get("/api/v1/audit/?act=nonsense").status_code == 422


def test_the_export_goes_on_where_the_last_one_ended(as_admin: APIClient) -> None:
    chain_entries()
    first = as_admin.get("/api/v1/audit/export/")
    assert first["Content-Type"] == "application/x-ndjson"
    lines = b"".join(first.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert [json.loads(line)["number"] for line in lines] == [1]
    chain_entries()
    second = as_admin.get("/api/v1/audit/export/?after=1")
    [line] = b"".join(second.streaming_content).decode().splitlines()  # type: ignore[attr-defined]
    assert (json.loads(line)["kind"], json.loads(line)["token"]) == ("exported", "tests")
    assert AuditEntry.objects.filter(kind=Act.EXPORTED).count() == 2


@pytest.mark.parametrize("address", ["/api/v1/audit/", "/api/v1/audit/export/"])
def test_nobody_else_reads_it(
    as_author: APIClient, as_operator: APIClient, as_viewer: APIClient, address: str
) -> None:
    for caller in (as_author, as_operator, as_viewer):
        assert caller.get(address).status_code == 403
    assert APIClient().get(address).status_code == 401


@pytest.mark.sql("queries.selectors.manifests.export")
@pytest.mark.parametrize(
    ("asked", "subject", "objects"),
    [("", "", 3), ("?application=flights", "flights", 2), ("?query=delays", "delays", 2)],
)
def test_an_export_of_manifests_is_recorded(
    as_viewer: APIClient, stage: Stage, asked: str, subject: str, objects: int
) -> None:
    stage.application("flights")
    stage.application("shops")
    stage.query("delays", "flights")
    assert len(as_viewer.get(f"/api/v1/export/{asked}").json()["manifests"]) == objects
    entry = AuditEntry.objects.get(kind=Act.EXPORTED)
    assert (entry.actor, entry.token, entry.subject) == ("vera", "tests", subject)
    assert entry.address
    assert entry.details == {"what": "manifests", "objects": objects}


def test_a_log_that_is_read_over_rest_is_recorded(
    as_viewer: APIClient, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.api.supervision.history.launcher", lambda: stage.launcher)
    stage.application("flights")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    run = stage.run("delays")
    for address in (
        f"/api/v1/runs/{run.pk}/log/",
        f"/api/v1/applications/flights/drivers/{run.driver.epoch}/log/",
    ):
        assert as_viewer.get(address).status_code == 200
    assert as_viewer.get("/api/v1/runs/999999/log/").status_code == 404
    entries = AuditEntry.objects.filter(kind=Act.EXPORTED).order_by("pk")
    assert [(one.actor, one.token, one.subject, one.details) for one in entries] == [
        ("vera", "tests", name, {"what": "log", "driver": run.driver.epoch})
        for name in ("delays", "flights")
    ]
