"""The list of queries says what is wanted, what is, and how well it goes."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import DjangoAssertNumQueries

from queries.domain.states import Desired, Phase
from queries.models.definitions import Query
from queries.services.system.health import forget
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage
from tests.web.batches import batches


def names(html: str) -> list[str]:
    """Return the queries of the list in their order."""
    return re.findall(r'<tr id="row-\d+"[^>]*data-name="([^"]+)"', html)


def page(client: Client, address: str = "/queries/") -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def test_a_stranger_is_asked_to_sign_in_and_brought_back(client: Client, db: None) -> None:
    answer = client.get("/queries/?group=running")
    assert answer.status_code == 302
    assert answer["Location"] == "/login/?next=/queries/%3Fgroup%3Drunning"


def test_somebody_without_a_role_is_told_whom_to_ask(client: Client, outsider: User) -> None:
    client.force_login(outsider)
    answer = client.get("/queries/")
    assert answer.status_code == 403
    assert "You have no role yet" in answer.content.decode()


def test_without_a_query_the_list_offers_the_next_step(client: Client, author: User) -> None:
    client.force_login(author)
    html = page(client)
    assert "No queries yet" in html
    assert 'href="/new/query/"' in html
    assert "/api/v1/queries/" in html


def test_a_viewer_is_not_invited_to_define(vera: Client) -> None:
    assert "Define a query" not in page(vera)


def test_a_query_on_its_way_shows_what_is_wanted_and_what_is(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    html = page(vera)
    assert 'title="Desired: running">running' in html
    assert 'data-phase="RUNNING"' not in html


def test_a_settled_query_shows_no_arrow(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    html = page(vera)
    assert "Wanted:" not in html
    assert 'data-phase="RUNNING"' in html


def test_a_running_query_shows_its_rates_and_its_batch_against_the_trigger(
    vera: Client, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    batches(stage.run("delays"), 3, until=timezone.now(), duration_ms=6200, rows=500)
    html = page(vera)
    assert "100/s" in html  # input
    assert "80.6/s" in html  # processed
    assert "6.20 s" in html
    assert "/ 5.00 s" in html
    assert "longer than its 5.00 s trigger" in html
    assert "meter-over" in html


def test_a_stopped_query_shows_no_rates_of_its_past(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    batches(stage.run("delays"), 3, until=timezone.now(), rows=500)
    assert "100/s" in page(vera)
    Query.objects.update(phase=Phase.STOPPED, desired=Desired.STOPPED)
    assert "100/s" not in page(vera)


def test_what_needs_attention_stands_first(vera: Client, stage: Stage) -> None:
    for name in ("alpha", "beta", "gamma"):
        stage.query(name)
    assert names(page(vera)) == ["alpha", "beta", "gamma"]
    stage.up("gamma")
    stage.fail("gamma", NO_SUCH_SOURCE)
    html = page(vera)
    assert names(html) == ["gamma", "alpha", "beta"]
    assert names(page(vera, "/queries/?group=attention")) == ["gamma"]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ("", ["arrivals", "delays", "hours"]),
        ("group=running", ["delays"]),
        ("group=stopped", ["arrivals", "hours"]),
        ("q=HOUR", ["hours"]),
        ("application=airport", ["arrivals", "delays"]),
        ("application=airport&group=stopped", ["arrivals"]),
        ("phase=RUNNING", ["delays"]),
        ("q=nothing", []),
    ],
)
def test_every_filter_stands_in_the_address(
    vera: Client, stage: Stage, filters: str, left: list[str]
) -> None:
    stage.application("airport")
    stage.query("delays", "airport")
    stage.query("arrivals", "airport")
    stage.query("hours")
    stage.up("delays", "airport")
    html = page(vera, f"/queries/?{filters}")
    assert sorted(names(html)) == left
    if not left:
        assert "No matching queries" in html


def test_a_viewer_sees_no_button_that_acts(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    html = page(vera)
    assert "/queries/delays/start/" not in html
    assert "/bulk/queries/" not in html


def test_an_operator_sees_the_verbs_of_each_query(
    client: Client, operator: User, stage: Stage
) -> None:
    stage.query("delays")
    client.force_login(operator)
    html = page(client)
    assert 'data-can="start"' in html
    assert 'action="/queries/delays/start/"' in html
    assert 'href="/queries/delays/stop/?next=/queries/"' in html


def test_a_hundred_queries_take_as_many_reads_as_three(
    vera: Client, stage: Stage, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(3):
        stage.query(f"query-{number}")
    forget()  # so that both pages look at the system's health
    with django_assert_max_num_queries(60) as few:
        page(vera)
    forget()
    for number in range(3, 40):
        stage.query(f"query-{number}")
    with django_assert_max_num_queries(len(few) + 2):
        page(vera)


def test_the_search_goes_straight_to_a_query_of_that_name(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.query("delays-long")
    assert vera.get("/search/?q=delays")["Location"] == "/queries/delays/"
    assert vera.get("/search/?q=delay")["Location"] == "/queries/?q=delay"
    assert vera.get("/search/?q=a%26b")["Location"] == "/queries/?q=a%26b"
