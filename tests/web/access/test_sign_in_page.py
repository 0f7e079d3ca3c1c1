"""The sign-in page: the button of the identity provider, and who may come by a password."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

DOOR = {"password": "a password of the cast"}


def test_without_a_provider_there_is_no_button_and_no_address(client: Client, db: None) -> None:
    page = client.get("/login/").content.decode()
    assert "Sign in with" not in page
    for address in ("/sso/login/", "/sso/callback/?state=a&code=b"):
        assert client.get(address).status_code == 404


def test_the_button_carries_the_page_that_was_asked_for(
    client: Client, db: None, settings: Any
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_NAME = "https://id.example.org", "Acme ID"
    page = client.get("/login/?next=/runs/%3Fa%3Db").content.decode()
    assert 'href="/sso/login/?next=%2Fruns%2F%3Fa%3Db">Sign in with Acme ID<' in page
    assert (
        "evil" not in client.get("/login/?next=//evil.example").content.decode().split("<form")[0]
    )


def test_only_a_visit_begins_a_sign_in(client: Client, db: None, settings: Any) -> None:
    settings.OIDC_ISSUER = "https://id.example.org"
    for address in ("/sso/login/", "/sso/callback/"):
        assert client.post(address).status_code == 405


@pytest.mark.parametrize("address", ["/sso/callback/", "/sso/callback/?state=x&code=y"])
def test_an_answer_that_nobody_asked_for_lets_nobody_in(
    client: Client, db: None, settings: Any, address: str
) -> None:
    settings.OIDC_ISSUER = "https://id.example.org"
    answer = client.get(address)
    assert answer.status_code == 403
    assert "started in another browser" in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.guarantee("G-SSO-7")
def test_passwords_can_be_for_admins_alone(
    client: Client, admin: User, viewer: User, settings: Any
) -> None:
    settings.LOCAL_LOGIN = "admins"
    answer = client.post("/login/", {"username": "vera", **DOOR})
    assert "Only admins can sign in with a password here." in answer.content.decode()
    assert client.get("/queries/").status_code == 302
    assert client.post("/login/", {"username": "ada", **DOOR}).status_code == 302
    assert client.get("/queries/").status_code == 200


def test_everybody_may_come_by_a_password_by_default(client: Client, viewer: User) -> None:
    assert client.post("/login/", {"username": "vera", **DOOR}).status_code == 302


def test_a_password_away_from_its_account_tells_nothing_of_who_may(
    client: Client, viewer: User, settings: Any
) -> None:
    settings.LOCAL_LOGIN = "admins"
    answer = client.post("/login/", {"username": "vera", "password": "wrong"})
    assert "Only admins" not in answer.content.decode()
