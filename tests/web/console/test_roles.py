"""No address lets anybody through who has no role for it: every page, stream, log and verb.

The addresses come from the installation's own list, so that a new one is tested the moment
it is there.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from rest_framework.test import APIClient

from queries.api.base import ApiView
from queries.models.definitions import Query
from queries.models.history import Transition
from queries.roles import ADMINISTER, DEFINE, OPERATE, ORDER, VIEW, Role
from queries.services.console.tokens import create_token
from tests.scenarios.stage import Stage

#: What a stranger may see: whether the system lives, and how to come in or leave.
OPEN = {"healthz", "readyz", "login/", "logout/", "sso/login/", "sso/callback/"}
#: What machines read by a token or from an allowed network: tests/web/metrics/test_door.py.
SCRAPED = {"metrics"}
#: The theme is a cookie of one's own browser, on the sign-in page too.
HARMLESS = {"theme/"}
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
LEAST = {
    VIEW: Role.VIEWER,
    OPERATE: Role.OPERATOR,
    DEFINE: Role.AUTHOR,
    ADMINISTER: Role.ADMIN,
}
#: Pages on which a viewer may send a form: it changes nothing but what is the viewer's own.
OWN = {
    "settings/tokens/<uuid:uuid>/revoke/",
    "saved-views/",
    "settings/account/",
    "settings/account/zone/",
    "settings/account/elsewhere/",
    "saved-views/<int:view_id>/forget/",
}
_VALUES = {"str": "delays", "int": "1", "slug": "close", "uuid": str(uuid4())}


def _walk(resolver: Any, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _walk(entry, route)
        else:
            yield route, entry


def _addresses() -> list[tuple[str, URLPattern]]:
    return [(route, entry) for route, entry in _walk(get_resolver()) if route not in OPEN | SCRAPED]


def _path(route: str) -> str:
    route = route.replace("^(?P<rest>.*)$", "nothing/at/all/")
    return "/" + re.sub(r"<(\w+):\w+>", lambda match: _VALUES[match.group(1)], route)


ROUTES = [route for route, _ in _addresses()]
PAGES = [route for route in ROUTES if not route.startswith("api/") and route not in HARMLESS]
REST = [
    (route, entry.callback.view_class)  # type: ignore[attr-defined]
    for route, entry in _addresses()
    if route.startswith("api/")
]


@pytest.fixture(scope="module", autouse=True)
def _delays(story: None) -> None:
    Stage().query("delays")


@pytest.fixture(autouse=True)
def _rolled_back(_delays: None, db: None) -> None:
    """Let no test see what another has done."""


def _signed_in(name: str, role: str = "") -> Callable[[], Client]:
    """Sign somebody in once; return what makes a new browser that is signed in so."""
    user = User.objects.create_user(name)
    user.groups.set(Group.objects.filter(name=role))
    browser = Client()
    browser.force_login(user)
    session = browser.cookies[settings.SESSION_COOKIE_NAME].value

    def client() -> Client:
        other = Client()
        other.cookies[settings.SESSION_COOKIE_NAME] = session
        return other

    return client


@pytest.fixture(scope="module")
def olaf(story: None) -> Callable[[], Client]:
    """Return what opens a browser of Olaf's, who has an account and no role."""
    return _signed_in("olaf")


@pytest.fixture(scope="module")
def vera(story: None) -> Callable[[], Client]:
    """Return what opens a browser of Vera's, who reads."""
    return _signed_in("vera", "viewer")


def _unchanged() -> bool:
    return (
        Query.objects.get().desired == "STOPPED"
        and not Transition.objects.exclude(actor="").exists()
    )


def test_there_are_addresses_of_both_kinds() -> None:
    assert len(PAGES) > 30
    assert len(REST) > 30


@pytest.mark.parametrize("route", [r for r in ROUTES if r not in HARMLESS])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_stranger_is_asked_who_it_is(client: Client, route: str, method: str) -> None:
    answer = client.generic(method, _path(route))
    if answer.status_code == 302:
        assert answer["Location"].startswith("/login/")
    elif answer.status_code == 405:
        assert not route.startswith("api/")  # the method is refused before the person is
    else:
        assert answer.status_code == (401 if route.startswith("api/") else 403)
    assert _unchanged()


@pytest.mark.parametrize("route", [r for r in ROUTES if r not in HARMLESS])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_account_without_a_role_gets_nothing(
    olaf: Callable[[], Client], route: str, method: str
) -> None:
    answer = olaf().generic(method, _path(route))
    refused = {403} if route.startswith("api/") or method == "GET" else {403, 405}
    if method == "GET" and answer.status_code == 405:
        refused = {405}  # a verb's address, which is asked by post only
    assert answer.status_code in refused
    assert _unchanged()


@pytest.mark.parametrize("route", [route for route in PAGES if route not in OWN])
def test_a_viewer_changes_nothing_on_any_page(vera: Callable[[], Client], route: str) -> None:
    answer = vera().post(_path(route))
    assert answer.status_code in {400, 403, 404, 405}
    assert _unchanged()


@pytest.fixture(scope="module")
def callers(story: None) -> dict[Role, APIClient]:
    """Return a caller of the API for each role, with a token of its own."""
    found = {}
    for role in ORDER:
        user = User.objects.create_user(f"a-{role}")
        user.groups.set([Group.objects.get(name=role.value)])
        _, text = create_token(user=user, name="tests", actor="tests", now=timezone.now())
        found[role] = APIClient()
        found[role].credentials(HTTP_AUTHORIZATION=f"Token {text}")
    return found


@pytest.mark.parametrize(("route", "view"), REST)
def test_each_method_of_the_api_takes_the_role_that_its_view_names(
    callers: dict[Role, APIClient], route: str, view: type[ApiView]
) -> None:
    assert issubclass(view, ApiView)
    for role, caller in callers.items():
        for method in ("GET", *UNSAFE):
            if not hasattr(view, method.lower()) or (method == "DELETE" and "tokens" in route):
                continue
            needed = LEAST[view.permissions.get(method, VIEW)]
            answer = caller.generic(method, _path(route), "[]", content_type="application/json")
            allowed = ORDER.index(role) >= ORDER.index(needed)
            assert (answer.status_code != 403) is allowed, f"{method} {route} as {role}"
            assert answer.status_code < 500


@pytest.mark.parametrize(("route", "view"), REST)
def test_what_changes_something_is_no_viewers_right(route: str, view: type[ApiView]) -> None:
    if route.endswith(("tokens/<uuid:uuid>/", "^(?P<rest>.*)$")):
        return  # one's own tokens are one's own to revoke; nothing is no right
    for method in UNSAFE:
        if hasattr(view, method.lower()):
            assert view.permissions.get(method, VIEW) != VIEW, f"{method} {route}"


def test_a_form_sent_from_elsewhere_is_refused(author: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(author)
    sent = {"content_type": "application/json"}
    assert client.delete("/api/v1/queries/delays/", **sent).status_code == 403  # type: ignore[arg-type]
    assert client.post("/queries/delays/start/").status_code == 403
    assert _unchanged()
