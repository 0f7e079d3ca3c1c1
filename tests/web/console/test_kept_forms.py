"""An error page after a form keeps what was typed, and offers to send it once more."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from queries.domain.errors import Invalid, Problem
from queries.models.access.accounts import Team
from queries.models.alerts import Incident
from queries.models.applications import Application
from queries.views.console import errors
from tests.web.console.test_busy_database import held_by_another

NEW_TEAM = "/settings/teams/new/"
PASSWORD = "correct-horse-battery"


class _Form(HTMLParser):
    """The form with which a page offers another try."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.attributes: dict[str, str | None] = {}
        self.fields: dict[str, str] = {}
        self._area = ""
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "form":
            self._inside = found.get("class") == "try-again"
            self.attributes = found if self._inside else self.attributes
        elif self._inside and tag == "input":
            self.fields[found["name"] or ""] = found.get("value") or ""
        elif self._inside and tag == "textarea":
            self._area = found["name"] or ""
            self.fields[self._area] = ""

    def handle_endtag(self, tag: str) -> None:
        self._area = "" if tag == "textarea" else self._area
        self._inside = self._inside and tag != "form"

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] += data.removeprefix("\n")


def _form(answer: Any) -> _Form:
    return _Form(answer.content.decode())


@pytest.fixture
def root(transactional_db: None) -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def browser(root: User) -> Client:
    """A browser that is asked for its token, as real ones are, and sees pages of errors."""
    browser = Client(enforce_csrf_checks=True, raise_request_exception=False)
    browser.force_login(root)
    return browser


def _token(browser: Client) -> str:
    browser.get("/settings/teams/")
    return browser.cookies["csrftoken"].value


@pytest.mark.django_db(transaction=True)
def test_after_a_busy_database_the_same_form_is_sent_again(browser: Client) -> None:
    token = _token(browser)
    with held_by_another():
        answer = browser.post(NEW_TEAM, {"name": "data", "csrfmiddlewaretoken": token})
    assert answer.status_code == 503
    assert "Try again" in answer.content.decode()
    form = _form(answer)
    assert form.attributes["action"] == NEW_TEAM
    assert form.fields["name"] == "data"
    assert not Team.objects.exists()
    assert browser.post(NEW_TEAM, form.fields).status_code == 302
    assert Team.objects.get().name == "data"


def _fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("queries.services.access.teams.name_problems", fail)


@pytest.mark.guarantee("G-FILE-3")
@pytest.mark.django_db(transaction=True)
def test_a_server_error_keeps_every_field_and_no_secret(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fails(monkeypatch)
    sent: dict[str, Any] = {
        "csrfmiddlewaretoken": _token(browser),
        "name": '"><script>alert(1)</script>',
        "sql": "SELECT 1\nFROM ticks",
        "tags": ["a", "b"],
        "new_password": PASSWORD,
        "options": f"subscribe = in\nkafka.ssl.key.password = {PASSWORD}",
        "notes": "x" * 70_000,
        "file": SimpleUploadedFile("code.zip", b"zip"),
    }
    answer = browser.post(NEW_TEAM, sent)
    page = answer.content.decode()
    assert answer.status_code == 500
    assert PASSWORD not in page
    assert "<script>alert" not in page
    form = _form(answer)
    assert form.fields.get("name") == sent["name"]
    assert form.fields["sql"].splitlines() == ["SELECT 1", "FROM ticks"]
    assert page.count('name="tags"') == 2
    assert form.fields["new_password"] == form.fields["notes"] == form.fields["file"] == ""
    assert form.fields["options"].startswith("subscribe = in\nkafka.ssl.key.password = ")
    assert form.attributes["enctype"] == "multipart/form-data"


@pytest.mark.django_db(transaction=True)
def test_a_conflict_and_a_wrong_character_keep_the_form_too(browser: Client) -> None:
    token = _token(browser)
    answer = browser.post(NEW_TEAM, {"name": "a\0b", "csrfmiddlewaretoken": token})
    assert (answer.status_code, "name" in _form(answer).fields) == (422, True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("address", "sent", "service"),
    [
        ("/settings/teams/data/members/", {"member": "root"}, "access.rights.set_members"),
        ("/applications/ticks/team/", {"team": "data"}, "access.rights.rights.give_application"),
        ("/alerts/{uuid}/note/", {"text": "It is n5"}, "alerts.incidents.service.note"),
        ("/saved-views/", {"view": "mine"}, "supervision.query_list.save_view"),
    ],
)
def test_a_view_that_explains_a_refusal_itself_keeps_what_was_typed(
    browser: Client,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    sent: dict[str, str],
    service: str,
) -> None:
    now = timezone.now()
    Team.objects.create(name="data", created_at=now)
    Application.objects.create(name="ticks", created_at=now)
    times = dict.fromkeys(("opened_at", "first_opened_at", "seen_at"), now)
    incident = Incident.objects.create(kind="disk", severity="critical", title="Full", **times)

    def refuse(*_: Any, **__: Any) -> None:
        raise Invalid([Problem("text", "", "was refused.", "Wait.")])

    monkeypatch.setattr(f"queries.views.{service}", refuse)
    to = address.format(uuid=incident.uuid)
    answer = browser.post(to, sent | {"csrfmiddlewaretoken": _token(browser)})
    assert (answer.status_code, "was refused." in answer.content.decode()) == (422, True)
    form = _form(answer)
    assert form.attributes["action"] == to
    assert sent.items() <= form.fields.items()
    script = browser.post(to, sent, headers={"accept": "application/json"} | _proof(browser))
    assert (script.json()["tone"], "was refused." in script.json()["text"]) == ("bad", True)


def _proof(browser: Client) -> dict[str, str]:
    return {"x-csrftoken": _token(browser)}


def test_no_view_turns_a_refusal_into_a_message_by_itself() -> None:
    """`refused` does, where nothing was typed that a redirect would lose."""
    views = Path(errors.__file__).parents[1]
    found = {
        str(file.relative_to(views))
        for file in views.rglob("*.py")
        if "messages.error(" in file.read_text()
    }
    assert found == {"console/errors.py", "console/shell.py"}


@pytest.mark.guarantee("G-FILE-3")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"origin": "http://testserver"}, True),
        ({"referer": "http://testserver/settings/teams/"}, True),
        ({"sec-fetch-site": "cross-site", "referer": "http://testserver/"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"origin": "https://elsewhere.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://testserver:81"}, False),
        ({}, False),
    ],
)
def test_without_a_token_only_a_form_of_our_own_page_is_kept(
    browser: Client, headers: dict[str, str], kept: bool
) -> None:
    """Otherwise another site could have a user send its form here with one click."""
    answer = browser.post(NEW_TEAM, {"name": "data"}, headers=headers)
    assert answer.status_code == 403
    form = _form(answer)
    assert (form.fields.get("name") == "data") is kept
    assert ("data" in answer.content.decode()) is kept
    if kept:
        assert browser.post(NEW_TEAM, form.fields).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_a_sign_in_that_was_too_old_asks_for_the_password_again() -> None:
    browser = Client(enforce_csrf_checks=True)
    sent = {"username": "vera", "password": PASSWORD}
    answer = browser.post("/login/", sent, headers={"sec-fetch-site": "same-origin"})
    assert answer.status_code == 403
    assert PASSWORD not in answer.content.decode()
    assert _form(answer).fields["username"] == "vera"
    assert _form(answer).fields["password"] == ""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("header", [{"hx-request": "true"}, {"accept": "application/json"}])
def test_a_script_gets_a_line_and_leaves_the_form_as_it_is(
    browser: Client, monkeypatch: pytest.MonkeyPatch, header: dict[str, str]
) -> None:
    answers: list[Any] = [browser.post(NEW_TEAM, {"name": "data"}, headers=header)]
    token = _token(browser)
    _fails(monkeypatch)
    sent = {"name": "data", "csrfmiddlewaretoken": token}
    answers.append(browser.post(NEW_TEAM, sent, headers=header))
    assert [answer.status_code for answer in answers] == [403, 500]
    for answer in answers:
        assert answer.json()["tone"] == "bad"


@pytest.mark.django_db(transaction=True)
def test_a_button_alone_leads_back_to_its_page_with_a_message(browser: Client) -> None:
    answer = browser.post("/settings/teams/none/delete/", {"csrfmiddlewaretoken": _token(browser)})
    assert answer.status_code == 302
    assert Team.objects.count() == 0
