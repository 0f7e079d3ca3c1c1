"""Labels over REST: read with the object, replaced whole, searched in the list."""

import pytest
from rest_framework.test import APIClient

from tests.scenarios.stage import Stage


@pytest.fixture
def stage_of_two(stage: Stage) -> Stage:
    stage.application("flights")
    stage.query("delays", application="flights")
    stage.query("other")
    return stage


@pytest.mark.parametrize("where", ["queries/delays", "applications/flights"])
def test_labels_are_replaced_whole(as_author: APIClient, stage_of_two: Stage, where: str) -> None:
    address = f"/api/v1/{where}/labels/"
    for labels in ({"team": "data", "tier": "1"}, {"team": "ops"}, {}):
        answer = as_author.put(address, {"labels": labels}, format="json")
        assert answer.status_code == 200, answer.json()
        assert answer.json() == {"labels": labels}
        assert as_author.get(address).json() == {"labels": labels}
        assert as_author.get(f"/api/v1/{where}/").json()["labels"] == labels


@pytest.mark.sql
@pytest.mark.django_db
def test_labels_longer_than_a_line_of_history_are_replaced_too(
    as_author: APIClient, stage_of_two: Stage
) -> None:
    """The history's column holds 40 characters, which SQLite does not insist on."""
    labels = {"team": "payments", "environment": "production", "cost-center": "4711-0815"}
    for where in ("queries/delays", "applications/flights"):
        address = f"/api/v1/{where}/labels/"
        answer = as_author.put(address, {"labels": labels}, format="json")
        assert answer.status_code == 200, answer.content
        assert as_author.get(address).json() == {"labels": labels}


def test_the_etag_of_a_definition_is_not_that_of_its_labels(
    as_author: APIClient, stage_of_two: Stage
) -> None:
    before = as_author.get("/api/v1/queries/delays/").json()["etag"]
    as_author.put("/api/v1/queries/delays/labels/", {"labels": {"team": "a"}}, format="json")
    assert as_author.get("/api/v1/queries/delays/").json()["etag"] == before


def test_a_label_that_is_none_is_named(as_author: APIClient, stage_of_two: Stage) -> None:
    answer = as_author.put(
        "/api/v1/queries/delays/labels/", {"labels": {"Team": "a"}}, format="json"
    )
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["problems"]] == ["labels.Team"]


def test_an_operator_may_not_label(as_operator: APIClient, stage_of_two: Stage) -> None:
    answer = as_operator.put("/api/v1/queries/delays/labels/", {"labels": {}}, format="json")
    assert answer.status_code == 403


def test_queries_are_listed_by_label(as_author: APIClient, stage_of_two: Stage) -> None:
    as_author.put("/api/v1/applications/flights/labels/", {"labels": {"team": "a"}}, format="json")
    as_author.put("/api/v1/queries/other/labels/", {"labels": {"tier": "1"}}, format="json")

    def names(search: str) -> list[str]:
        found = as_author.get(f"/api/v1/queries/{search}").json()["results"]
        return [one["name"] for one in found]

    assert names("?label=team=a") == ["delays"]
    assert names("?label=team=") == ["other"]
    assert names("?label=tier") == ["other"]
    assert names("?label=team=a&label=tier=1") == []
