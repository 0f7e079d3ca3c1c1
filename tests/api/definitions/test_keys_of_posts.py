"""Every POST tells another body from the same one: no key answers for what it was not sent with."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import get_resolver
from rest_framework.test import APIClient

from queries.api import base
from queries.domain.errors import Conflict
from queries.services.idempotency_keys import digest_of

pytestmark = pytest.mark.django_db

_PARTS = {"int": "1", "uuid": "00000000-0000-0000-0000-000000000000"}


def _posts() -> Iterator[str]:
    """Yield an address of each kind that takes a POST, and writes."""
    api: Any = next(
        entry for entry in get_resolver().url_patterns if getattr(entry, "app_name", "") == "api"
    )
    for entry in api.url_patterns:
        view = entry.callback.view_class
        if entry.name != "nothing" and hasattr(view, "post") and not view.writes_nothing:
            pattern = str(entry.pattern)
            yield "/api/v1/" + re.sub(r"<(\w+):\w+>", lambda at: _PARTS.get(at[1], "x"), pattern)


POSTS = list(_posts())


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the digests by which requests are told apart; none of them is served."""
    found: list[str] = []

    def note(*, digest: str, **_: Any) -> None:
        found.append(digest)
        raise Conflict("noted")

    monkeypatch.setattr(base, "take_key", note)
    return found


@pytest.mark.parametrize("address", POSTS)
def test_another_body_is_another_request(
    as_admin: APIClient, digests: list[str], address: str
) -> None:
    kind = "application/x-tar" if address.endswith("/code/") else "application/json"
    for body in (b'{"a": 1}', b'{"a": 1}', b'{"a": 2}'):
        sent: Any = body
        answer = as_admin.generic(
            "POST", address, sent, content_type=kind, HTTP_IDEMPOTENCY_KEY="one"
        )
        assert answer.status_code == 409, answer.content
    first, again, other = digests
    assert first == again != other


def test_the_same_body_to_another_address_is_another_request() -> None:
    assert digest_of("POST", "/a/", {}) != digest_of("POST", "/b/", {})


def test_what_is_no_json_has_no_digest() -> None:
    with pytest.raises(TypeError):
        digest_of("POST", "/a/", object())
