"""A token does no more than its user and its limits allow; guessing one comes to an end."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from hashlib import sha256, sha512
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import F
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.errors import Invalid
from queries.models.access.accounts import AccessToken, Grant, Scope, Team, TokenGuess
from queries.models.applications import Application
from queries.services.access import tokens
from queries.services.access.tokens import create_token
from tests import conftest_tables
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

ADDRESS = "/api/v1/queries/"
REPOSITORY = Path(__file__).resolve().parents[3]


def _caller(user: User, **limits: Any) -> APIClient:
    _, text = create_token(user=user, name="ci", actor="ada", **limits, now=timezone.now())
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {text}")
    return client


@pytest.fixture
def flights(stage: Stage, author: User) -> Stage:
    """Flights of team data, and an author of all teams."""
    application = stage.application("flights")
    application.team = Team.objects.create(name="data", created_at=stage.now)
    application.save()
    stage.query("delays", "flights")
    stage.query("trial")
    Grant.objects.filter(user=author).update(all_teams=True)
    return stage


def test_a_token_says_what_it_may(flights: Stage, author: User, viewer: User) -> None:
    me = _caller(author, scope=Scope.OPERATE, team="data").get("/api/v1/me/").json()
    assert me == {"user": "aude", "role": "operator", "teams": None, "may_write_python": False}
    assert _caller(author).get("/api/v1/me/").json()["may_write_python"] is True
    assert _caller(viewer, scope=Scope.ADMIN).get("/api/v1/me/").json()["role"] == "viewer"


@pytest.mark.guarantee("G-TOKEN-1")
def test_a_scope_that_is_too_low_is_named(flights: Stage, author: User, admin: User) -> None:
    answer = _caller(author, scope=Scope.READ).post(f"{ADDRESS}delays/start/")
    assert answer.status_code == 403
    detail = answer.json()["detail"]
    assert detail == "The token ci has the read scope, which does not allow this."
    assert "ada" in answer.json()["way_out"]


@pytest.mark.guarantee("G-TOKEN-2")
def test_a_limited_token_is_told_what_it_acts_on(flights: Stage, author: User) -> None:
    by_team = _caller(author, team="data")
    assert by_team.post(f"{ADDRESS}delays/start/").status_code == 202
    refused = by_team.post(f"{ADDRESS}trial/start/")
    assert refused.status_code == 403
    assert refused.json()["detail"] == "The token ci cannot act on application trial."
    assert "It can act on team data." in refused.json()["way_out"]
    listed = _caller(author, applications=["trial"])
    assert listed.post(f"{ADDRESS}trial/start/").status_code == 202
    refused = listed.post(f"{ADDRESS}delays/start/")
    assert "application flights of team data" in refused.json()["detail"]


def test_a_token_that_lists_applications_makes_none(flights: Stage, author: User) -> None:
    caller = _caller(author, applications=["flights"])
    for address, body in (
        ("/api/v1/applications/", {"name": "new"}),
        (f"{ADDRESS}delays/clone/", {"name": "new", "same_sink": True}),
    ):
        answer = caller.post(address, body, format="json")
        assert answer.status_code == 403
        assert "This token is limited to the applications that it lists" in answer.json()["detail"]


def test_a_new_application_of_a_teams_token_is_the_teams(flights: Stage, author: User) -> None:
    made = _caller(author, team="data").post(
        "/api/v1/applications/", {"name": "new"}, format="json"
    )
    assert made.json()["team"] == "data"


def test_a_list_that_has_become_empty_is_no_list_of_all(flights: Stage, author: User) -> None:
    caller = _caller(author, applications=["trial"])
    AccessToken.objects.get().applications.clear()
    assert caller.post(f"{ADDRESS}trial/start/").status_code == 403


@pytest.mark.guarantee("G-TOKEN-2")
@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"scope": "all"}, "scope"),
        ({"scope": "read", "team": "data"}, "scope"),
        ({"scope": "admin", "applications": ["flights"]}, "scope"),
        ({"team": "nobody"}, "team"),
        ({"applications": ["flights", "nothing"]}, "applications"),
    ],
)
def test_limits_that_cannot_be_are_refused(
    flights: Stage, author: User, limits: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        create_token(user=author, name="ci", actor="ada", **limits, now=timezone.now())
    assert [problem.field for problem in caught.value.problems] == [field]
    assert not AccessToken.objects.exists()


def test_the_command_makes_a_limited_token(flights: Stage, author: User) -> None:
    out = StringIO()
    call_command(
        "createtoken", "aude", "--scope", "operate", "--team", "data", "--application", "flights",
        stdout=out,
    )  # fmt: skip
    token = AccessToken.objects.get()
    assert (token.scope, str(token.team), token.is_listed) == ("operate", "data", True)
    assert [row.name for row in token.applications.all()] == ["flights"]
    with pytest.raises(CommandError, match="team: is not an existing team"):
        call_command("createtoken", "aude", "--team", "nobody", stdout=out)


def test_the_page_and_rest_make_limited_tokens_and_show_them(
    flights: Stage, client: Client, admin: User, author: User
) -> None:
    client.force_login(admin)
    form = {"owner": "aude", "name": "one", "days": "9", "scope": "operate", "team": "data"}
    client.post("/settings/tokens/", form)
    body = {"user": "aude", "name": "two", "scope": "author", "applications": ["trial"]}
    made = client.post("/api/v1/tokens/", json.dumps(body), content_type="application/json")
    assert made.json()["applications"] == ["trial"]
    text = Page(client, "/settings/tokens/").text
    assert "operate team data" in " ".join(text.split())
    assert "author trial" in " ".join(text.split())
    wrong = client.post("/settings/tokens/", {**form, "scope": "read"})
    assert wrong.status_code == 422
    assert 'id="scope-error"' in wrong.content.decode()


@pytest.mark.guarantee("G-TOKEN-4")
def test_the_last_use_is_kept_to_the_minute(viewer: User, client: Client) -> None:
    caller = _caller(viewer)
    assert AccessToken.objects.get().last_used_at is None
    caller.get("/api/v1/me/")
    first = AccessToken.objects.get().last_used_at
    assert first is not None
    caller.get("/api/v1/me/")
    assert AccessToken.objects.get().last_used_at == first
    AccessToken.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    caller.get("/api/v1/me/")
    last = AccessToken.objects.get().last_used_at
    assert last is not None
    assert last >= first
    client.force_login(viewer)
    assert "never" not in Page(client, "/settings/tokens/").html


def test_a_database_that_takes_nothing_keeps_no_token_out(viewer: User) -> None:
    caller = _caller(viewer)
    sqlite = connection.vendor == "sqlite"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON" if sqlite else "SET TRANSACTION READ ONLY")
        answer = caller.get("/api/v1/me/")
        if sqlite:
            cursor.execute("PRAGMA query_only = OFF")
        transaction.set_rollback(True)  # takes the other one back
    assert answer.status_code == 200
    assert AccessToken.objects.get().last_used_at is None


@pytest.mark.parametrize(
    "header", ["Token x", "Token é", "Token", "Token a b", f"Token {'9' * 64}"]
)
def test_a_wrong_token_is_401_in_the_form_of_the_api(db: None, header: str) -> None:
    answer = APIClient().get(ADDRESS, headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:headgate:problem:unauthenticated"


def test_an_expired_token_is_401(viewer: User) -> None:
    caller = _caller(viewer)
    AccessToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert caller.get(ADDRESS).status_code == 401


# --- guesses ------------------------------------------------------------------------------


def _guess(token: str, address: str = "203.0.113.5") -> Any:
    client = APIClient(REMOTE_ADDR=address)
    return client.get(ADDRESS, headers={"Authorization": f"Token {token}"})


@pytest.mark.guarantee("G-TOKEN-5")
def test_an_address_that_guesses_has_to_wait(db: None) -> None:
    for number in range(tokens.GUESSES_AT_MOST):
        assert _guess(f"guess {number}".replace(" ", "-")).status_code == 401
    held = _guess("another")
    assert held.status_code == 429
    assert 0 < int(held["Retry-After"]) <= tokens.GUESSES_WITHIN.total_seconds()
    assert held.json()["type"] == "urn:headgate:problem:too-many-requests"
    assert _guess("elsewhere", "203.0.113.6").status_code == 401
    door = Client(REMOTE_ADDR="203.0.113.5")
    for scheme in ("Bearer", "Token"):
        metrics = door.get("/metrics", headers={"Authorization": f"{scheme} wrong"})
        assert metrics.status_code == 429
        assert metrics["Retry-After"]
    TokenGuess.objects.update(at=F("at") - tokens.GUESSES_WITHIN)
    assert _guess("another").status_code == 401


@pytest.mark.guarantee("G-TOKEN-5")
def test_a_valid_token_is_accepted_from_an_address_that_guesses(viewer: User) -> None:
    _, right = create_token(user=viewer, name="ci", actor="ada", now=timezone.now())
    for number in range(tokens.GUESSES_AT_MOST + 1):
        _guess(f"guess-{number}")
    for _ in range(3):
        assert _guess(right).status_code == 200
    door = Client(REMOTE_ADDR="203.0.113.5")
    assert door.get("/metrics", headers={"Authorization": f"Bearer {right}"}).status_code == 200
    assert _guess("another").status_code == 429
    assert TokenGuess.objects.count() == tokens.GUESSES_AT_MOST


@pytest.mark.guarantee("G-TOKEN-5")
def test_the_same_wrong_token_again_and_again_is_one_guess(viewer: User) -> None:
    _, right = create_token(user=viewer, name="ci", actor="ada", now=timezone.now())
    for _ in range(3 * tokens.GUESSES_AT_MOST):
        assert _guess("expired").status_code == 401
    assert _guess(right).status_code == 200


def test_what_is_remembered_of_guesses_is_bounded(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_GUESSES_KEPT", 5)
    long_ago = timezone.now() - tokens.GUESSES_WITHIN
    tokens.note_guess("203.0.113.200", b"old", now=long_ago)
    for number in range(10):
        assert _guess(f"wrong-{number}", f"203.0.113.{number}").status_code == 401
    kept = TokenGuess.objects.order_by("pk").values_list("address", flat=True)
    assert list(kept) == [f"203.0.113.{number}" for number in range(5, 10)]


def test_what_was_sent_is_not_kept(db: None) -> None:
    """It may be a password, and one that is short is found from its plain digest."""
    _guess("hunter2")
    guess = TokenGuess.objects.get()
    digests = {sha256(b"hunter2").hexdigest(), sha512(b"hunter2").hexdigest()}
    assert "hunter2" not in guess.name
    assert not [one for one in digests if one.startswith(guess.name)]


#: A web process, as far as a token goes: it guesses what its arguments say, and tells the answers.
WEB = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
import django
django.setup()
from rest_framework.test import APIClient
client = APIClient(REMOTE_ADDR="203.0.113.5", SERVER_NAME="localhost")
said = [
    client.get("/api/v1/queries/", headers={"Authorization": f"Token {guess}"}).status_code
    for guess in sys.argv[1:]
]
print(*said)
"""


@pytest.mark.guarantee("G-TOKEN-5")
def test_an_address_has_its_guesses_once_for_all_web_processes(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=REPOSITORY,
            env={**os.environ, "HEADGATE_HOME": str(tmp_path), "DATABASE_URL": ""},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    if not conftest_tables.fetch(pytestconfig, tmp_path / "headgate.sqlite3"):
        run("manage.py", "migrate", "--no-input", "-v", "0")
    half = tokens.GUESSES_AT_MOST // 2
    first = run("-c", WEB, *(f"first-{number}" for number in range(half)))
    assert first.split() == ["401"] * half
    second = run("-c", WEB, *(f"second-{number}" for number in range(half + 1)))
    assert second.split() == ["401"] * half + ["429"]


def test_an_admin_of_a_list_is_no_admin(flights: Stage, admin: User) -> None:
    """A token of an admin with a lower scope gives no rights, whatever its user may."""
    caller = _caller(admin, scope=Scope.AUTHOR)
    body = {"user": "ada", "name": "more", "scope": "admin"}
    assert caller.post("/api/v1/tokens/", body, format="json").status_code == 403
    assert (
        caller.put("/api/v1/applications/flights/team/", {"team": None}, format="json").status_code
        == 403
    )
    assert Application.objects.get(name="flights").team is not None
