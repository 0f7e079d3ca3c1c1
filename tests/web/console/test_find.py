"""Anything is found by a few letters, and leads to where one can look or act."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.drivers import Run
from queries.models.history import FailureGroup
from queries.views.console import find
from tests.scenarios.stage import DIVIDE, Stage
from tests.web.browserless import Page

Hits = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def flights(story: None) -> Stage:
    stage = Stage()
    stage.query("flight-delays")
    stage.query("flights-by-hour")
    stage.query("long-delays")
    stage.up("flight-delays")
    stage.fail("flight-delays", DIVIDE, batch=7)
    return stage


def _find(client: Client, text: str) -> Hits:
    """Return what is found: heading -> (words, address), in order."""
    answer = client.get("/find/", {"q": text})
    assert answer.status_code == 200
    found: Hits = {}
    for title, part in re.findall(
        r'<section aria-label="([^"]+)">(.*?)</section>', answer.content.decode(), re.DOTALL
    ):
        found[title] = re.findall(
            r'href="([^"]+)" data-found.*?class="find-title">([^<]+)<', part, re.DOTALL
        )
        found[title] = [(words, address) for address, words in found[title]]
    return found


def _words(hits: list[tuple[str, str]]) -> list[str]:
    return [words for words, _ in hits]


def test_queries_are_found_by_a_part_of_their_name_the_best_first(
    client: Client, viewer: User, flights: Stage
) -> None:
    client.force_login(viewer)
    assert _words(_find(client, "delays")["Queries"]) == ["flight-delays", "long-delays"]
    assert _words(_find(client, "FLIGHTS")["Queries"]) == ["flights-by-hour"]
    assert _find(client, "flights-by")["Queries"] == [
        ("flights-by-hour", "/queries/flights-by-hour/")
    ]


@pytest.mark.parametrize(
    ("role", "offered"),
    [
        ("viewer", {"Log", "Failures"}),
        ("operator", {"Log", "Start"}),
        ("author", {"Start", "Edit", "Rewind"}),
    ],
)
def test_what_one_may_do_with_the_best_is_offered(
    client: Client, flights: Stage, request: pytest.FixtureRequest, role: str, offered: set[str]
) -> None:
    client.force_login(request.getfixturevalue(role))
    acts = {words.split()[0] for words in _words(_find(client, "long-delays")["Actions"])}
    assert acts >= offered
    assert ("Edit" in acts) == (role == "author")
    assert ("Start" in acts) == (role != "viewer")
    assert not acts & {"Stop", "Restart"}, "it never ran: there is nothing to stop"


def test_the_verbs_that_change_nothing_are_offered_to_who_asks_for_them(
    client: Client, operator: User, flights: Stage
) -> None:
    client.force_login(operator)
    acts = _words(_find(client, "flight-delays")["Actions"])
    assert {"Restart flight-delays…", "Stop flight-delays…"} <= set(acts)
    assert "Start flight-delays…" not in acts
    for text in ("start long-delays", "restart long-delays"):
        ((words, address),) = _find(client, text)["Actions"]
        assert words == f"{text.capitalize()}…"
        assert client.get(address).status_code == 200


def test_a_verb_and_a_name_lead_to_the_confirmation(
    client: Client, operator: User, flights: Stage
) -> None:
    client.force_login(operator)
    (act,) = _find(client, "restart flight-d")["Actions"]
    assert act == ("Restart flight-delays…", "/queries/flight-delays/restart/")
    assert Page(client, act[1]).html.count("confirm") > 0
    assert _words(_find(client, "sto delays")["Actions"]) == [
        "Stop flight-delays…",
        "Stop long-delays…",
    ]


def test_failures_are_found_by_their_class_and_by_words(
    client: Client, viewer: User, flights: Stage
) -> None:
    client.force_login(viewer)
    group = FailureGroup.objects.get()
    for text in ("DIVIDE_BY", "division zero", "zero flight-delays"):
        assert _find(client, text)["Failures"][0][1] == f"/failures/groups/{group.pk}/", text
    assert "Failures" not in _find(client, "division by nothing")


def test_runs_and_operations_are_found_by_their_numbers(
    client: Client, viewer: User, flights: Stage
) -> None:
    client.force_login(viewer)
    run = Run.objects.latest("epoch")
    for text in (str(run.pk), f"run {run.pk}"):
        assert _find(client, text)["Runs"] == [(f"Run {run.pk}", f"/runs/{run.pk}/")]
    operation = flights.start("long-delays")
    found = _find(client, str(operation.uuid))["Operations"]
    assert found == [("Start long-delays", f"/operations/{operation.uuid}/")]


def test_pages_and_settings_are_found(client: Client, author: User, db: None) -> None:
    client.force_login(author)
    assert "Alerts" in _words(_find(client, "")["Pages"])
    assert _words(_find(client, "slack")["Pages"]) == ["Channels"]
    assert "New query" in _words(_find(client, "new q")["Pages"])
    assert "Users" not in _words(_find(client, "")["Pages"])


@pytest.mark.parametrize("text", ["\x00", "%", "x" * 5000, "run 99999999999999999999", "<b>", "  "])
def test_odd_letters_find_nothing_and_break_nothing(
    client: Client, viewer: User, flights: Stage, text: str
) -> None:
    client.force_login(viewer)
    found = _find(client, text)
    assert found.keys() <= {"Pages"}


def test_deleted_queries_are_not_offered(client: Client, viewer: User, flights: Stage) -> None:
    client.force_login(viewer)
    row = flights.row("long-delays")
    row.archived_at = flights.now
    row.save()
    assert "Queries" not in _find(client, "long-delays")


@pytest.mark.sql(
    "queries.selectors.console._groups",
    "queries.selectors.console._incidents",
    "queries.selectors.console.named",
)
def test_while_one_types_only_what_was_found_is_sent(
    client: Client, viewer: User, flights: Stage
) -> None:
    client.force_login(viewer)
    answer = client.get("/find/", {"q": "delays"}, headers={"HX-Request": "true"})
    text = answer.content.decode()
    assert 'id="found"' in text
    assert "<html" not in text


@pytest.mark.parametrize("page", [label for label, _, _ in find._PAGES])
def test_every_page_that_is_offered_is_there(client: Client, admin: User, page: str) -> None:
    client.force_login(admin)
    addresses = dict(_find(client, page)["Pages"])
    assert client.get(addresses[page]).status_code == 200
