"""Every address, by every method, for everybody who may ask: let through or refused, by a table.

The addresses come from the installation's own list: one that is new, or takes a new method, has
no line in the table and fails here.
"""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from queries.api.base import ApiView
from queries.models.definitions import Query
from tests.examples import SHARE
from tests.scenarios.stage import Stage
from tests.security.rights.needs import RULES, Need
from tests.security.rights.people import SIGNED_IN, STRANGER, TOKENS, Who, rank, ways_in
from tests.security.rights.world import address_of, addresses_of, build

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
#: Answers to those who were let through, where what the address is about is there.
LET_THROUGH = {200, 201, 202, 204, 302, 400, 409, 412, 415, 422, 428}
#: Addresses that are about something that this world has not: a result that nobody has asked
#: for, a batch of a checkpoint, one's own row of which the asker has none, nothing at all.
MAY_BE_MISSING = {
    *("api:query-batch-records", "api:query-x-ray-rows", "api:token", "api:nothing"),
    *("query-batch-records", "query-x-ray-rows", "token-revoke", "saved-view-forget"),
    *("api:connector", "api:spark", "connector-remove", "spark-remove"),
    # Without a schedule, which few have.
    *(
        f"api:{kind}-schedule{act}"
        for kind in ("query", "application")
        for act in ("", "-pause", "-resume")
    ),
    "account-session",  # one's own, which the form names
    *(
        "query-checkpoint-batch",
        "query-checkpoint-compare",
        "query-takeover",
        "incident-act",
        "query-log-download",
    ),
}
#: What has doors of its own, which other tests look at.
OWN_DOORS = {
    *("metrics", "live", "api:docs", "readyz", "sso-login", "sso-callback"),
    *("pod-news", "pod-archive", "pod-file", "pod-segment"),
}


_SQL = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
}
_WINDOW = {
    "name": "w",
    "selector": {"applications": ["flights"]},
    "starts_at": "2030-01-01T00:00:00Z",
    "ends_at": "2030-01-01T01:00:00Z",
}
_SET = {
    "owner": "repo",
    "manifests": [
        {
            "manifest": {
                "apiVersion": "headgate/v1",
                "kind": "Query",
                "metadata": {"name": "new", "application": "flights"},
                "spec": _SQL,
            }
        }
    ],
}
#: What is sent where the form, not the address, names the team's application.
FORMS = {
    "api:queries": json.dumps({"name": "new", "application": "flights", "spec": _SQL}),
    "api:applications": json.dumps({"name": "new", "team": "data"}),
    "api:maintenances": json.dumps(_WINDOW),
    "api:apply": json.dumps(_SET),
    "api:deploys": json.dumps({"apply": _SET}),
    **{
        f"api:queries-{verb}": json.dumps({"selector": "application=flights"})
        for verb in ("start", "stop", "restart")
    },
    "query-new": urlencode(
        {
            "tab": "json",
            "do": "create",
            "json": json.dumps({"name": "new", "application": "flights", "spec": _SQL}),
        }
    ),
    "application-new": urlencode({"name": "new", "team": "data", "do": "create"}),
    "alert-maintenance-new": urlencode({"name": "w", "applications": "flights", "hours": "1"}),
}


def _walk(resolver: Any, prefix: str = "", space: str = "") -> Iterator[tuple[str, str, Any]]:
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _walk(entry, route, f"{entry.namespace}:" if entry.namespace else space)
        else:
            assert isinstance(entry, URLPattern)
            yield f"{space}{entry.name}", route, entry.callback


ADDRESSES = {name: (route, view) for name, route, view in _walk(get_resolver())}
PAIRS = [(name, method) for name, rule in RULES.items() for method in rule.needs]


def _is_rest(name: str) -> bool:
    return name.startswith("api:")


@pytest.fixture(scope="module")
def keys(story: None) -> dict[str, dict[str, str]]:
    """Build the world once; each request's changes are rolled back."""
    return build()


@pytest.fixture(scope="module")
def carried(keys: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return what a request of each carries."""
    return ways_in()


def _ask(name: str, method: str, address: str, carries: dict[str, str]) -> Any:
    """Send one request as it comes over the wire, and undo what it did."""
    client = Client(raise_request_exception=False)
    kind = "application/json" if _is_rest(name) else "application/x-www-form-urlencoded"
    body = "{}" if _is_rest(name) and method in ("POST", "PUT", "PATCH") else ""
    body = FORMS.get(name, body) if method == "POST" else body
    with transaction.atomic():
        answer = client.generic(method, address, body, content_type=kind, **carries)  # type: ignore[arg-type]
        transaction.set_rollback(True)
    return answer


@pytest.mark.guarantee("G-RIGHTS-1")
def test_each_address_has_a_line_in_the_table_and_no_line_is_left_over() -> None:
    assert len(ADDRESSES) == len(list(_walk(get_resolver()))), "two addresses of one name"
    assert ADDRESSES.keys() == RULES.keys()


def test_the_table_names_each_method_that_the_api_has() -> None:
    found, named = {}, {}
    for name in filter(_is_rest, RULES):
        view = ADDRESSES[name][1].view_class
        assert issubclass(view, ApiView)
        found[name] = {one for one in METHODS if hasattr(view, one.lower())}
        named[name] = set(RULES[name].needs)
    assert found == named


@pytest.mark.django_db
def test_a_page_takes_no_method_that_the_table_does_not_name(
    carried: dict[str, dict[str, str]], keys: dict[str, dict[str, str]]
) -> None:
    taken = []
    for name in RULES:
        if _is_rest(name) or name == "live" or Need.NOTHING in RULES[name].needs.values():
            continue  # what strangers may see shows them the same by any method
        address = address_of(ADDRESSES[name][0], keys)
        for method in METHODS:
            if method not in RULES[name].needs:
                answer = _ask(name, method, address, carried["an admin"])
                if answer.status_code != 405:
                    taken.append((method, address, answer.status_code))
    assert taken == []


def _askers(name: str, need: Need) -> Iterator[Who]:
    """Return everybody; a page is not opened by a token, whoever sends one is a stranger to it.

    Where a share of the examples is asked for, those on either side of the line: of accounts and
    of tokens the weakest that may, and the strongest that may not.
    """
    yield STRANGER
    for known in (SIGNED_IN, TOKENS) if _is_rest(name) else (SIGNED_IN,):
        if SHARE == 1:
            yield from known
            continue
        may = [who for who in known if who.may(need)]
        may_not = [who for who in known if not who.may(need)]
        yield from sorted(may, key=rank)[:1]
        yield from sorted(may_not, key=rank)[-1:]


@pytest.mark.guarantee("G-RIGHTS-2")
@pytest.mark.django_db
@pytest.mark.parametrize(("name", "method"), PAIRS, ids=[f"{m} {n}" for n, m in PAIRS])
def test_who_may_is_let_through_and_who_may_not_is_refused(
    carried: dict[str, dict[str, str]],
    keys: dict[str, dict[str, str]],
    name: str,
    method: str,
) -> None:
    if name in OWN_DOORS:
        return
    need = RULES[name].needs[method]
    addresses = addresses_of(ADDRESSES[name][0], keys)
    for who, address in product(_askers(name, need), addresses):
        answer = _ask(name, method, address, carried[who.name])
        told = f"{method} {address} by {who.name}: {answer.status_code}"
        if who is STRANGER and need is not Need.NOTHING:
            assert _is_a_strangers(answer, rest=_is_rest(name)), told
        elif not who.may(need):
            assert answer.status_code == 403, told
        else:
            missing = {404} if name in MAY_BE_MISSING else set()
            assert answer.status_code in LET_THROUGH | missing, told


def _is_a_strangers(answer: Any, *, rest: bool) -> bool:
    if rest:
        return bool(answer.status_code == 401) and "problem+json" in answer["Content-Type"]
    return bool(answer.status_code == 302) and answer["Location"].startswith("/login/")


def test_a_form_sent_from_elsewhere_is_refused(author: User, stage: Stage) -> None:
    stage.query("fresh")
    client = Client(enforce_csrf_checks=True)
    client.force_login(author)
    sent = {"content_type": "application/json"}
    assert client.delete("/api/v1/queries/fresh/", **sent).status_code == 403  # type: ignore[arg-type]
    assert client.post("/queries/fresh/start/").status_code == 403
    assert Query.objects.get(name="fresh").desired == "STOPPED"


@pytest.mark.django_db
def test_a_token_opens_no_page(carried: dict[str, dict[str, str]]) -> None:
    for who in TOKENS:
        answer = _ask("queries", "GET", "/queries/", carried[who.name])
        assert answer.status_code == 302
        assert answer["Location"].startswith("/login/")
