"""What admins give and take away stands in the audit log: teams, rights, secrets, allowed paths."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from queries.models.access.audit import AuditEntry
from queries.services.access.teams import create_team, delete_team, set_grants, set_members
from queries.services.secrets import bind, give_root, take_root, unbind

pytestmark = pytest.mark.django_db


def _acts() -> list[tuple[str, str, str]]:
    rows = AuditEntry.objects.order_by("pk")
    return list(rows.values_list("kind", "subject", "actor"))


def test_teams_and_rights(viewer: User) -> None:
    by: dict[str, Any] = {"actor": "ada", "now": timezone.now()}
    team = create_team(name="data", **by)
    set_members(team=team, members=["vera"], **by)
    delete_team(team=team, **by)
    set_grants(user=viewer, all_teams=False, write_python=True, **by)
    assert _acts() == [
        ("team", "data", "ada"),
        ("team", "data", "ada"),
        ("team", "data", "ada"),
        ("rights-given", "vera", "ada"),
    ]
    details = AuditEntry.objects.order_by("pk").values_list("details", flat=True)
    assert [*details][1:] == [
        {"members": ["vera"]},
        {"deleted": True},
        {"all_teams": False, "write_python": True},
    ]


def test_secrets_and_data_roots(tmp_path: Path) -> None:
    by: dict[str, Any] = {"actor": "ada", "now": timezone.now()}
    form = {"secret": "file:kafka", "holder_kind": "channel", "holder": "pager", "hosts": ["*"]}
    unbind(bind(form, **by), **by)
    take_root(give_root({"application": "flights", "path": str(tmp_path)}, **by), **by)
    assert _acts() == [
        ("secret-bound", "file:kafka", "ada"),
        ("secret-unbound", "file:kafka", "ada"),
        ("data-root", "flights", "ada"),
        ("data-root", "flights", "ada"),
    ]
