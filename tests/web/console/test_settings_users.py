"""Admins make accounts and give roles; nobody else sees the page."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.roles import Role, role_of


def test_a_new_user_gets_a_role_and_a_password_shown_once(client: Client, admin: User) -> None:
    client.force_login(admin)
    answer = client.post("/settings/users/", {"username": "nina", "role": "operator"})
    found = re.search(r'class="token-text"><code>([^<]+)<', answer.content.decode())
    assert found is not None
    nina = User.objects.get(username="nina")
    assert role_of(nina) is Role.OPERATOR
    assert nina.check_password(found[1])
    assert "no-store" in answer["Cache-Control"]
    assert found[1] not in client.get("/settings/users/").content.decode()


@pytest.mark.parametrize("name", ["", "ada", "ADA", "with space", "x" * 151])
def test_a_name_that_will_not_do_is_told(client: Client, admin: User, name: str) -> None:
    client.force_login(admin)
    answer = client.post("/settings/users/", {"username": name, "role": "viewer"})
    assert answer.status_code == 422
    assert b"username-error" in answer.content
    assert User.objects.count() == 1


def test_a_role_is_given_instead_of_the_one_before(
    client: Client, admin: User, author: User
) -> None:
    client.force_login(admin)
    client.post(f"/settings/users/{author.pk}/", {"do": "role", "role": "viewer"})
    assert role_of(User.objects.get(pk=author.pk)) is Role.VIEWER
    client.post(f"/settings/users/{author.pk}/", {"do": "role", "role": ""})
    assert role_of(User.objects.get(pk=author.pk)) is None


def test_the_last_admin_stays_one(client: Client, admin: User) -> None:
    client.force_login(admin)
    answer = client.post(
        f"/settings/users/{admin.pk}/", {"do": "role", "role": "viewer"}, follow=True
    )
    assert "is the last admin" in answer.content.decode()
    assert role_of(User.objects.get(pk=admin.pk)) is Role.ADMIN


def test_who_is_shut_out_cannot_come_in(client: Client, admin: User, viewer: User) -> None:
    client.force_login(admin)
    client.post(f"/settings/users/{viewer.pk}/", {"do": "shut-out"})
    other, door = Client(), {"username": "vera", "password": "a password of the cast"}
    assert other.post("/login/", door).status_code == 200  # the door again, with an error
    client.post(f"/settings/users/{viewer.pk}/", {"do": "let-in"})
    assert other.post("/login/", door).status_code == 302


@pytest.mark.sql("queries.selectors.access.sessions_of")
def test_a_new_password_replaces_the_old_one(client: Client, admin: User, viewer: User) -> None:
    client.force_login(admin)
    answer = client.post(f"/settings/users/{viewer.pk}/", {"do": "password"})
    found = re.search(r'class="token-text"><code>([^<]+)<', answer.content.decode())
    assert found is not None
    assert User.objects.get(pk=viewer.pk).check_password(found[1])


def test_only_admins_see_and_change_users(client: Client, author: User, viewer: User) -> None:
    client.force_login(author)
    assert client.get("/settings/users/").status_code == 403
    answer = client.post(f"/settings/users/{author.pk}/", {"do": "role", "role": "admin"})
    assert answer.status_code == 403
    assert role_of(User.objects.get(pk=author.pk)) is Role.AUTHOR
