"""Callers of the API, each with a token of their own."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from queries.models.access.accounts import Scope
from queries.services.access.tokens import create_token

Caller = Callable[[User], APIClient]

SPEC: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate", "options": {"rowsPerSecond": "5"}}],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
    "trigger": {"kind": "processing_time", "interval": "5 seconds"},
}


def client_of(user: User) -> APIClient:
    """Return a client that sends a user's own token, as CI does."""
    _, text = create_token(
        user=user, name="tests", actor="tests", now=timezone.now(), scope=Scope.ADMIN
    )
    caller = APIClient()
    caller.credentials(HTTP_AUTHORIZATION=f"Token {text}")
    return caller


@pytest.fixture
def calling() -> Caller:
    """Return what gives a user a client."""
    return client_of


@pytest.fixture
def as_viewer(calling: Caller, viewer: User) -> APIClient:
    """Return Vera's client."""
    return calling(viewer)


@pytest.fixture
def as_operator(calling: Caller, operator: User) -> APIClient:
    """Return Otto's client."""
    return calling(operator)


@pytest.fixture
def as_author(calling: Caller, author: User) -> APIClient:
    """Return Aude's client."""
    return calling(author)


@pytest.fixture
def as_admin(calling: Caller, admin: User) -> APIClient:
    """Return Ada's client."""
    return calling(admin)
