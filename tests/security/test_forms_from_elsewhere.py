"""Another site cannot use the browser of somebody who is signed in: no address takes its form."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from rest_framework.test import APIClient

from queries.models.history import Transition
from queries.services.access.tokens import create_token
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

_VALUES = {
    "str": "delays",
    "path": "alerts",
    "query": "delays",
    "int": "1",
    "slug": "close",
    "uuid": str(uuid4()),
}


def _routes(resolver: Any, prefix: str = "") -> Iterator[str]:
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _routes(entry, route)
        elif isinstance(entry, URLPattern) and "^" not in route:
            yield "/" + re.sub(r"<(\w+):\w+>", lambda match: _VALUES[match.group(1)], route)


ROUTES = sorted(set(_routes(get_resolver())))
WRITES = [route for route in ROUTES if route.startswith("/api/")]


@pytest.fixture(scope="module")
def ada(story: None) -> User:
    """Return an admin over an installation with a query."""
    Stage().query("delays")
    return User.objects.create_superuser("ada", password="a password of the cast")


def _untouched() -> bool:
    return not Transition.objects.exists() and User.objects.count() == 1


@pytest.mark.guarantee("G-PAGE-3")
def test_no_address_takes_a_form_without_its_token(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    taken = {}
    for route in ROUTES:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            # What a page of another site can make a browser send, with its cookies.
            answer = client.generic(
                method, route, "a=b", content_type="application/x-www-form-urlencoded"
            )
            # 401: an address of drivers' pods, which no cookie opens.
            if answer.status_code not in {401, 403, 405}:
                taken[f"{method} {route}"] = answer.status_code
    assert taken == {}
    assert _untouched()


@pytest.mark.guarantee("G-PAGE-3")
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_the_api_takes_json_alone(ada: User, kind: str) -> None:
    _, text = create_token(user=ada, name="tests", actor="tests", now=timezone.now(), scope="admin")
    caller = APIClient()
    caller.credentials(HTTP_AUTHORIZATION=f"Token {text}")
    taken = {}
    for route in WRITES:
        answer = caller.generic("POST", route, '{"a": "b"}', content_type=kind)
        if answer.status_code not in {404, 405, 409, 415}:
            taken[route] = answer.status_code
    assert taken == {}
