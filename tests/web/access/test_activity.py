"""The audit log names what people and tokens did, from where, and by which token."""

import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.test import Client
from django.utils import timezone

from queries.domain.access import Act
from queries.models.access.audit import AuditEntry
from queries.services.access.audit import chain_entries
from queries.services.access.tokens import create_token
from queries.services.changes import Prepared
from queries.views.console import fragments
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

PASSWORD = "a password of the cast"


def _acts(**asked: Any) -> list[tuple[str, str, str]]:
    rows = AuditEntry.objects.filter(**asked).order_by("pk")
    return [(row.kind, row.actor, row.subject) for row in rows]


def _sign_in(name: str, password: str, address: str = "10.1.2.3") -> Client:
    browser = Client(REMOTE_ADDR=address, headers={"user-agent": "Firefox/150.0 (Linux)"})
    browser.post("/login/", {"username": name, "password": password})
    return browser


@pytest.mark.guarantee("G-AUDIT-1")
def test_signing_in_and_out_is_recorded_with_the_address(viewer: User) -> None:
    browser = _sign_in("vera", PASSWORD)
    browser.post("/logout/")
    assert _acts() == [(Act.SIGNED_IN, "vera", ""), (Act.SIGNED_OUT, "vera", "")]
    first = AuditEntry.objects.get(kind=Act.SIGNED_IN)
    assert first.address == "10.1.2.3"
    assert first.details == {"browser": "Firefox/150.0 (Linux)"}


@pytest.mark.guarantee("G-AUDIT-8")
def test_a_wrong_password_is_recorded_and_what_was_typed_is_not(viewer: User) -> None:
    _sign_in("vera", "not the password")
    _sign_in("my secret password", "oh, the wrong field")
    assert _acts() == [(Act.SIGN_IN_FAILED, "vera", ""), (Act.SIGN_IN_FAILED, "", "")]
    rows = json.dumps(list(AuditEntry.objects.values()), default=str)
    assert "not the password" not in rows
    assert "my secret password" not in rows


@pytest.mark.guarantee("G-AUDIT-9")
def test_a_lock_out_is_recorded_once(viewer: User, settings: Any) -> None:
    for _ in range(settings.AXES_FAILURE_LIMIT + 5):
        _sign_in("vera", "not the password")
    assert len(_acts(kind=Act.LOCKED_OUT, actor="vera", address="10.1.2.3")) == 1
    # The last one that counted is the lock-out itself.
    assert len(_acts(kind=Act.SIGN_IN_FAILED)) == settings.AXES_FAILURE_LIMIT - 1


@pytest.mark.guarantee("G-AUDIT-9")
def test_who_tries_names_by_the_hundred_does_not_fill_the_log(db: None) -> None:
    for number in range(40):
        _sign_in(f"name-{number}", "a guess")
    assert len(_acts(kind=Act.SIGN_IN_FAILED)) == 30
    _sign_in("other", "a guess", address="10.9.9.9")
    assert len(_acts(kind=Act.SIGN_IN_FAILED, address="10.9.9.9")) == 1


@pytest.mark.guarantee("G-AUDIT-1")
def test_what_an_admin_does_to_accounts_is_recorded(
    client: Client, admin: User, author: User
) -> None:
    client.force_login(admin)
    client.post("/settings/users/", {"username": "nina", "role": "operator"})
    address = f"/settings/users/{author.pk}/"
    client.post(address, {"do": "role", "role": "viewer"})
    client.post(address, {"do": "password"})
    client.post(address, {"do": "shut-out"})
    client.post(address, {"do": "let-in"})
    assert _acts() == [
        (Act.USER_CREATED, "ada", "nina"),
        (Act.ROLE_GIVEN, "ada", "aude"),
        (Act.PASSWORD_RESET, "ada", "aude"),
        (Act.USER_DEACTIVATED, "ada", "aude"),
        (Act.USER_ACTIVATED, "ada", "aude"),
    ]
    given = AuditEntry.objects.get(kind=Act.ROLE_GIVEN)
    assert given.details == {"before": "author", "after": "viewer"}


def test_what_a_refused_change_would_have_done_is_not_recorded(client: Client, admin: User) -> None:
    client.force_login(admin)
    client.post(f"/settings/users/{admin.pk}/", {"do": "role", "role": "viewer"})
    assert _acts() == []


def test_a_token_is_recorded_without_its_text(client: Client, admin: User, viewer: User) -> None:
    client.force_login(admin)
    form = {"owner": "vera", "name": "nightly", "days": "30"}
    text = client.post("/settings/tokens/", form).content.decode()
    found = re.search(r'class="token-text"><code>([^<]+)<', text)
    assert found is not None
    uuid = AuditEntry.objects.get().details["token_uuid"]
    client.post(f"/settings/tokens/{uuid}/revoke/")
    assert _acts() == [(Act.TOKEN_CREATED, "ada", "nightly"), (Act.TOKEN_REVOKED, "ada", "nightly")]
    assert found[1] not in json.dumps(list(AuditEntry.objects.values()), default=str)


def test_what_is_asked_over_rest_names_the_token(operator: User, stage: Stage) -> None:
    stage.query("delays")
    row, text = create_token(user=operator, name="deploy", actor="ada", now=timezone.now())
    headers = {"authorization": f"Token {text}"}
    robot = Client(REMOTE_ADDR="10.4.4.4", headers=headers)
    answer = robot.post("/api/v1/queries/delays/start/", content_type="application/json")
    assert answer.status_code == 202
    entry = AuditEntry.objects.get(kind=Act.OPERATION)
    assert (entry.actor, entry.token, entry.token_id) == ("otto", "deploy", str(row.uuid))
    assert (entry.subject, entry.address) == ("delays", "10.4.4.4")
    assert entry.details == {"verb": "start", "operation": answer.json()["id"]}


def test_what_is_asked_after_a_token_on_the_same_thread_names_none(
    client: Client, operator: User, stage: Stage
) -> None:
    test_what_is_asked_over_rest_names_the_token(operator, stage)
    client.force_login(operator)
    client.post("/queries/delays/stop/")
    newest = AuditEntry.objects.filter(kind=Act.OPERATION).order_by("pk").last()
    assert newest is not None
    assert (newest.details["verb"], newest.token, newest.address) == ("stop", "", "127.0.0.1")


def test_definitions_and_failures_are_recorded(client: Client, author: User, stage: Stage) -> None:
    stage.query("delays")
    client.force_login(author)
    client.post("/queries/delays/labels/", {"labels": "team=data"})
    kinds = {row[0] for row in _acts(subject="delays")}
    assert Act.DEFINITION in kinds


def test_a_download_is_recorded(client: Client, viewer: User, stage: Stage) -> None:
    stage.query("delays")
    client.force_login(viewer)
    client.get("/queries/delays/series/?format=csv")
    assert _acts(kind=Act.EXPORTED) == [(Act.EXPORTED, "vera", "delays")]


@pytest.mark.guarantee("G-AUDIT-7")
@pytest.mark.parametrize(
    "path",
    [
        "/queries/delays/series/?format=csv",
        "/queries/delays/series/?format=json",
        "/queries/delays/log/download/",
        "/api/v1/export/",
        "/api/v1/applications/delays/drivers/{epoch}/log/",
    ],
)
def test_what_cannot_be_recorded_is_not_exported(
    client: Client, admin: User, stage: Stage, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    stage.query("delays")
    stage.up("delays")
    client.force_login(admin)
    client.raise_request_exception = False
    path = path.format(epoch=stage.driver("delays").epoch)
    assert client.get(path).status_code == 200, path

    def fails(self: Any) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(Prepared, "insert", fails)
    assert client.get(path).status_code >= 500


def test_admins_see_one_list_of_it_and_filter_it(client: Client, admin: User, stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    _sign_in("ada", PASSWORD)
    client.force_login(admin)
    page = Page(client, "/audit/")
    for words in ("signed in", "10.1.2.3", "requested an operation", "delays", "start"):
        assert words in page.text
    asked = Page(client, "/audit/?act=signed-in&actor=ada&address=10.1.2.3")
    assert "requested an operation" not in asked.html.partition("<tbody>")[2]
    assert "No entries" in Page(client, "/audit/?actor=nobody").text
    assert Page(client, "/audit/?actor=%00&after=nonsense").status == 200


@pytest.mark.guarantee("G-AUDIT-7")
def test_others_see_neither_addresses_nor_sign_ins(
    client: Client, author: User, viewer: User, now: Any
) -> None:
    _sign_in("vera", PASSWORD)
    client.force_login(author)
    for address in ("/audit/", "/audit/?tab=activity"):
        page = Page(client, address)
        assert "10.1.2.3" not in page.html
        assert "signed in" not in page.text
        assert "Activity" not in page.text
    assert client.get("/audit/export/").status_code == 403
    for topic in ("audit:tab=activity", "audit:act=signed-in&tab=activity"):
        assert "10.1.2.3" not in str(fragments.draw(topic, None, now))


@pytest.mark.guarantee("G-AUDIT-7")
@pytest.mark.sql("queries.selectors.access.exported")
def test_the_export_is_lines_of_json_and_is_itself_recorded(
    client: Client, admin: User, viewer: User
) -> None:
    _sign_in("vera", PASSWORD)
    chain_entries()
    client.force_login(admin)
    answer: Any = client.get("/audit/export/")
    assert answer["Content-Type"] == "application/x-ndjson"
    assert "headgate-audit.jsonl" in answer["Content-Disposition"]
    [line] = b"".join(answer.streaming_content).decode().splitlines()
    said = json.loads(line)
    assert (said["number"], said["kind"], said["actor"]) == (1, "signed-in", "vera")
    assert len(said["mac"]) == 64
    assert _acts(kind=Act.EXPORTED) == [(Act.EXPORTED, "ada", "audit log")]


@pytest.mark.sql
@pytest.mark.django_db(transaction=True)
def test_an_entry_is_chained_right_after_its_act(viewer: User) -> None:
    _sign_in("vera", PASSWORD)
    assert [row.number for row in AuditEntry.objects.all()] == [1]
