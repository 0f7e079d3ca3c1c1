"""Labels are changed on a page or over REST, and restart nothing."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.definitions import Query
from queries.models.history import Transition
from tests.scenarios.stage import Stage


@pytest.fixture
def aude(client: Client, author: User) -> Client:
    client.force_login(author)
    return client


def test_a_query_is_labelled_while_it_runs_and_runs_on(aude: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    before = stage.run("delays").pk
    answer = aude.post("/queries/delays/labels/", {"labels": "team=data severity=low"}, follow=True)
    page = answer.content.decode()
    assert "The labels of delays were saved. Nothing is restarted." in page
    assert "team=data" in page
    assert stage.row("delays").labels == {"team": "data", "severity": "low"}
    stage.look()
    assert stage.run("delays").pk == before
    assert stage.row("delays").revisions.count() == 1
    change = Transition.objects.filter(query__name="delays", detail__code="LABELS").get()
    assert (change.before, change.after) == ("", "severity=low team=data")
    assert change.actor == "aude"


def test_the_labels_of_an_application_are_on_its_page(aude: Client, stage: Stage) -> None:
    stage.application("flights")
    stage.query("delays", application="flights")
    aude.post("/applications/flights/labels/", {"labels": "team=data"})
    assert "team=data" in aude.get("/applications/flights/").content.decode()
    assert "team=data" in aude.get("/queries/delays/labels/").content.decode()


def test_labels_that_are_none_are_shown_again_with_what_is_wrong(
    aude: Client, stage: Stage
) -> None:
    stage.query("delays")
    answer = aude.post("/queries/delays/labels/", {"labels": "Team=data owner"})
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "owner has no value. Write name=value: team=data." in page
    assert "Team=data owner</textarea>" in page
    assert stage.row("delays").labels == {}


def test_to_take_labels_away_is_to_save_none(aude: Client, stage: Stage) -> None:
    stage.query("delays")
    Query.objects.update(labels={"team": "data"})
    aude.post("/queries/delays/labels/", {"labels": " "})
    assert stage.row("delays").labels == {}


def test_an_operator_may_not_label(client: Client, operator: User, stage: Stage) -> None:
    stage.query("delays")
    client.force_login(operator)
    assert client.get("/queries/delays/labels/").status_code == 403
    assert 'href="/queries/delays/labels/"' not in client.get("/queries/delays/").content.decode()
