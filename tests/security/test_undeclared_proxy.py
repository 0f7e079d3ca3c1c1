"""A reverse proxy that is not declared is reported: all its clients count as one address."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.system import Part
from queries.services.access import audit
from queries.services.access.tokens import create_token
from queries.services.system.health import forget

PROXY, CLIENT = "10.0.0.5", "203.0.113.5"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have no proxy been noticed before, nor remembered by the system's health."""
    monkeypatch.setattr(audit, "_undeclared", audit._Undeclared())
    forget()
    yield
    forget()


def part() -> Part:
    return audit.proxies_part(timezone.now())


@pytest.mark.guarantee("G-REQUEST-7")
def test_it_is_named_on_the_system_page(viewer: User, client: Client) -> None:
    client.force_login(viewer)
    through: dict[str, Any] = {"REMOTE_ADDR": PROXY, "headers": {"X-Forwarded-For": CLIENT}}
    shown = client.get("/system/", **through).content.decode()
    assert f"a proxy at {PROXY} that is not declared" in shown
    assert "HEADGATE_TRUSTED_PROXIES" in shown


def test_the_request_of_a_token_counts_too(viewer: User) -> None:
    _, token = create_token(user=viewer, name="ci", actor="ada", now=timezone.now())
    there = APIClient(REMOTE_ADDR=PROXY)
    headers = {"Authorization": f"Token {token}", "X-Forwarded-For": f"{CLIENT}, 10.0.0.9"}
    assert there.get("/api/v1/queries/", headers=headers).status_code == 200
    assert PROXY in part().sentence


@pytest.mark.parametrize(
    ("address", "forwarded"),
    [
        (CLIENT, CLIENT),  # as `installation.asgi` sets it for a declared proxy
        (CLIENT, f"{CLIENT}, 10.0.0.9"),
        (CLIENT, None),
        ("", CLIENT),
    ],
)
def test_a_declared_proxy_and_a_direct_request_are_no_trouble(
    viewer: User, client: Client, address: str, forwarded: str | None
) -> None:
    client.force_login(viewer)
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    client.get("/system/", REMOTE_ADDR=address, headers=headers)
    assert part().ok


@pytest.mark.guarantee("G-REQUEST-7")
def test_strangers_cannot_make_it_a_trouble(client: Client) -> None:
    client.get("/system/", REMOTE_ADDR=PROXY, headers={"X-Forwarded-For": CLIENT})
    assert part().ok


def test_it_is_forgotten_an_hour_after_its_last_request() -> None:
    now = timezone.now()
    meta = {"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": CLIENT}
    audit.note_proxy(meta, now=now)
    audit.note_proxy(meta, now=now + timedelta(minutes=30))
    found = audit.proxies_part(now + timedelta(minutes=89))
    assert (found.ok, found.since) == (False, now)
    assert audit.proxies_part(now + timedelta(minutes=91)).ok
