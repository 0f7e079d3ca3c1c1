"""Admins say which group of the identity provider gives which role, on a page and by REST."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.access.accounts import GroupRole
from queries.models.access.audit import AuditEntry
from queries.services.access.tokens import create_token
from tests.web.browserless import Page

ADDRESS = "/settings/groups/"
REST = "/api/v1/group-roles/"


@pytest.fixture
def table() -> Any:
    """Return what reads the table: {group: role}."""
    return lambda: dict(GroupRole.objects.values_list("group", "role"))


def test_a_group_is_given_a_role_then_another_then_none(
    client: Client, admin: User, table: Any
) -> None:
    client.force_login(admin)
    client.post(ADDRESS, {"group": " /Team A/admins ", "role": "operator"})
    assert table() == {"/Team A/admins": "operator"}
    row = GroupRole.objects.get()
    assert row.created_by == "ada"
    page = Page(client, ADDRESS)
    assert "/Team A/admins" in page.text
    client.post(f"{ADDRESS}{row.pk}/", {"role": "admin"})
    assert table() == {"/Team A/admins": "admin"}
    client.post(f"{ADDRESS}{row.pk}/", {"do": "remove"})
    assert table() == {}


@pytest.mark.parametrize(
    ("group", "role", "why"),
    [("", "viewer", "group"), ("data", "root", "role"), ("known", "viewer", "already has a role")],
)
def test_what_will_not_do_is_told_and_changes_nothing(
    client: Client, admin: User, table: Any, group: str, role: str, why: str
) -> None:
    client.force_login(admin)
    client.post(ADDRESS, {"group": "known", "role": "viewer"})
    answer = client.post(ADDRESS, {"group": group, "role": role})
    assert answer.status_code == 422
    assert why in answer.content.decode()
    row = GroupRole.objects.get()
    page = client.post(f"{ADDRESS}{row.pk}/", {"role": "root"}, follow=True)
    assert "is not a valid role" in page.content.decode()
    assert table() == {"known": "viewer"}


@pytest.mark.guarantee("G-SSO-5")
def test_only_admins_see_and_change_the_table(client: Client, author: User, table: Any) -> None:
    client.force_login(author)
    assert client.get(ADDRESS).status_code == 403
    assert client.post(ADDRESS, {"group": "data", "role": "admin"}).status_code == 403
    assert table() == {}


def test_the_page_says_whether_single_sign_on_is_on(
    client: Client, admin: User, settings: Any
) -> None:
    client.force_login(admin)
    assert "Single sign-on is off." in Page(client, ADDRESS).text
    settings.OIDC_ISSUER, settings.OIDC_GROUPS_CLAIM = "https://id.example.org", "roles"
    page = Page(client, ADDRESS).text
    assert "https://id.example.org" in page
    assert "roles" in page
    assert 'href="/settings/groups/"' in client.get("/settings/users/").content.decode()


def test_the_same_by_rest(client: Client, admin: User, table: Any) -> None:
    _, text = create_token(
        user=admin, name="tests", actor="tests", now=timezone.now(), scope="admin"
    )
    headers = {"Authorization": f"Token {text}"}

    def ask(method: str, address: str, body: Any = None) -> Any:
        return getattr(client, method)(
            address, body, content_type="application/json", headers=headers
        )

    made = ask("post", REST, {"group": "data", "role": "author"})
    assert made.status_code == 201
    assert made.json()["created_by"] == "ada"
    assert ask("post", REST, {"group": "data", "role": "viewer"}).status_code == 409
    assert ask("post", REST, {"group": "b", "role": "root"}).status_code == 422
    listed = client.get(REST, headers=headers).json()
    assert [row["group"] for row in listed["results"]] == ["data"]
    changed = ask("put", made["Location"], {"role": "viewer"})
    assert changed.json()["role"] == "viewer"
    assert ask("put", made["Location"], {"role": "root"}).status_code == 422
    assert client.get(made["Location"], headers=headers).json()["group"] == "data"
    assert ask("delete", made["Location"]).status_code == 204
    assert table() == {}
    assert client.get(made["Location"], headers=headers).status_code == 404


def test_changes_of_the_table_are_in_the_audit_log(client: Client, admin: User) -> None:
    client.force_login(admin)
    client.post("/settings/groups/", {"group": "data", "role": "viewer"})
    row = GroupRole.objects.get()
    client.post(f"/settings/groups/{row.pk}/", {"role": "author"})
    client.post(f"/settings/groups/{row.pk}/", {"do": "remove"})
    said = [(one.actor, one.subject, one.details_line) for one in AuditEntry.objects.order_by("pk")]
    assert said == [
        ("ada", "data", "viewer"),
        ("ada", "data", "viewer → author"),
        ("ada", "data", "author → none"),
    ]
