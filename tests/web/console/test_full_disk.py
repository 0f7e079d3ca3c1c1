"""What the database finds no room for is refused in plain words; what is there can be read."""

import pytest
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.test import Client


def test_what_cannot_be_saved_is_refused_and_pages_are_shown(
    client: Client, viewer: User, full_database: None
) -> None:
    client.raise_request_exception = False
    accept = f"text/html,{'x' * 1000}"
    for number in range(500):  # until the pages that SQLite has left are taken
        form = {"username": f"{number}{'x' * 200}", "password": "wrong"}
        # All of it is kept of an attempt that failed.
        answer = client.post("/login/", form, headers={"User-Agent": "x" * 200, "Accept": accept})
        if answer.status_code != 200:
            break
    assert answer.status_code == 503
    text = answer.content.decode()
    assert "The disk is full: this could not be saved." in text
    assert "Traceback" not in text
    assert answer["Retry-After"]
    assert client.get("/login/").status_code == 200


def test_any_other_fault_is_still_a_fault_of_ours(
    client: Client, viewer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("password=hunter2")

    client.raise_request_exception = False
    monkeypatch.setattr(AuthenticationForm, "__init__", broken)
    answer = client.get("/login/")
    assert answer.status_code == 500
    assert "Server error" in answer.content.decode()
    assert "hunter2" not in answer.content.decode()
