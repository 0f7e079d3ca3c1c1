"""An admin gives API tokens, everybody revokes their own; a token's text is shown once."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.access.accounts import AccessToken
from queries.services.access.tokens import create_token
from tests.web.browserless import Page


def _make(client: Client, **typed: str) -> Page:
    answer = client.post(
        "/settings/tokens/", {"owner": "vera", "name": "deploy job", "days": "30", **typed}
    )
    return Page(client, "/settings/tokens/", answer=_with_chain(answer))


def _with_chain(answer: object) -> object:
    answer.redirect_chain = []  # type: ignore[attr-defined]
    return answer


def test_a_tokens_text_is_shown_once_and_works(client: Client, admin: User, viewer: User) -> None:
    client.force_login(admin)
    page = _make(client)
    found = re.search(r'class="token-text"><code>([^<]+)<', page.html)
    assert found is not None
    token = AccessToken.objects.get()
    assert (token.name, token.user, token.created_by) == ("deploy job", viewer, "ada")
    assert found[1] not in Page(client, "/settings/tokens/").html
    assert "deploy job" in Page(client, "/settings/tokens/").text
    client.force_login(viewer)
    assert "deploy job" in Page(client, "/settings/tokens/").text
    answer = Client().get("/api/v1/queries/", headers={"Authorization": f"Token {found[1]}"})
    assert answer.status_code == 200


@pytest.mark.sql(
    "queries.selectors.console.people",
    "queries.selectors.console.tokens_seen_by",
)
def test_the_answer_with_a_tokens_text_is_not_kept(client: Client, admin: User) -> None:
    client.force_login(admin)
    answer = client.post("/settings/tokens/", {"owner": "ada", "name": "ci", "days": "1"})
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"name": ""}, "name"),
        ({"days": "0"}, "days"),
        ({"days": "x"}, "days"),
        ({"owner": "nobody"}, "user"),
    ],
)
def test_a_token_that_will_not_do_is_told(
    client: Client, admin: User, viewer: User, typed: dict[str, str], field: str
) -> None:
    client.force_login(admin)
    page = _make(client, **typed)
    assert page.status == 422
    assert page.by_id[f"{field}-error"]
    assert not AccessToken.objects.exists()


def test_a_revoked_token_is_worthless(client: Client, viewer: User) -> None:
    row, text = create_token(user=viewer, name="ci", actor="vera", now=timezone.now())
    client.force_login(viewer)
    client.post(f"/settings/tokens/{row.uuid}/revoke/")
    assert not AccessToken.objects.exists()
    answer = Client().get("/api/v1/queries/", headers={"Authorization": f"Token {text}"})
    assert answer.status_code == 401


def test_nobody_revokes_anothers_token(client: Client, viewer: User, operator: User) -> None:
    row, _ = create_token(user=operator, name="ci", actor="otto", now=timezone.now())
    client.force_login(viewer)
    assert client.post(f"/settings/tokens/{row.uuid}/revoke/").status_code in (302, 404)
    assert AccessToken.objects.exists()


def test_an_outsider_gets_no_token(client: Client, outsider: User) -> None:
    client.force_login(outsider)
    assert client.post("/settings/tokens/", {"name": "x", "days": "1"}).status_code == 403
    assert not AccessToken.objects.exists()


def test_an_admin_sees_and_revokes_everybodys(client: Client, admin: User, viewer: User) -> None:
    row, _ = create_token(user=viewer, name="nightly", actor="ada", now=timezone.now())
    client.force_login(admin)
    assert "nightly" in Page(client, "/settings/tokens/").text
    client.post(f"/settings/tokens/{row.uuid}/revoke/")
    assert not AccessToken.objects.exists()


def test_only_an_admin_gives_tokens(
    client: Client, viewer: User, operator: User, author: User
) -> None:
    for person in (viewer, operator, author):
        client.force_login(person)
        page = Page(client, "/settings/tokens/")
        assert "Admins create tokens" in page.text
        assert "Create token" not in page.text
        sent = {"owner": person.username, "name": "x", "days": "1"}
        assert client.post("/settings/tokens/", sent).status_code == 403
    assert not AccessToken.objects.exists()
