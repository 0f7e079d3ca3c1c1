"""The audit log over REST: pages of entries and JSON lines, for admins alone."""

import json

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from queries.domain.access.acts import Act
from queries.models.access.audit_trail import AuditEntry
from queries.services.access.audit_trail import chain_entries


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
