"""Definitions that are made at the same moment cannot take the same place."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from queries.domain.errors import Invalid, NotAllowed, StaleRevision
from queries.models.definitions import Checkpoint, Query
from queries.services.definitions import catalog, query_plans
from queries.services.definitions.writing import writing

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMIT_S = 60
CONF = {"spark.sql.shuffle.partitions": "2"}
SPEC: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT value FROM ticks",
    "sink": {"format": "noop"},
}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Settings) -> None:
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"


def at_once(count: int, act: Any) -> list[str]:
    """Run `act(number)` in threads that begin together; return "" or the error of each."""
    together = Barrier(count)

    def one(number: int) -> str:
        together.wait(LIMIT_S)
        try:
            act(number)
        except (Invalid, StaleRevision) as error:
            return str(error)
        finally:
            connection.close()
        return ""

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count), timeout=LIMIT_S))


def test_of_nested_checkpoints_taken_at_once_one_is_given() -> None:
    places = ["/c/a", "/c/a/b", "/c", "/c/a/b/c"]

    def create(number: int) -> None:
        catalog.create_query(
            name=f"q{number}", spec=SPEC, actor="ana", now=NOW, checkpoint=places[number]
        )

    said = at_once(len(places), create)
    assert said.count("") == 1
    holder = Query.objects.get().name
    assert all(f"the checkpoint of query {holder}" in each for each in said if each)
    assert Checkpoint.objects.count() == 1


def test_of_equal_names_taken_at_once_one_is_given() -> None:
    def create(number: int) -> None:
        catalog.create_query(name="same", spec=SPEC, actor="ana", now=NOW)

    said = at_once(4, create)
    assert said.count("") == 1
    assert Query.objects.count() == 1


def test_of_changes_to_one_revision_made_at_once_one_is_taken() -> None:
    query = catalog.create_query(name="one", spec=SPEC, actor="ana", now=NOW)

    def revise(number: int) -> None:
        catalog.revise_query(
            query=query,
            spec={**SPEC, "description": f"change {number}"},
            expected_revision=1,
            actor="ana",
            now=NOW,
        )

    said = at_once(4, revise)
    assert said.count("") == 1
    assert sorted(query.revisions.values_list("number", flat=True)) == [1, 2]


def test_changes_to_different_queries_made_at_once_are_all_taken() -> None:
    shared = catalog.create_application(name="shared", spec={}, actor="ana", now=NOW)
    hosts = ["", "", shared.name, shared.name]
    queries = [
        catalog.create_query(name=f"q{number}", spec=SPEC, application=host, actor="ana", now=NOW)
        for number, host in enumerate(hosts)
    ]

    def revise(number: int) -> None:
        catalog.revise_query(
            query=queries[number], spec={**SPEC, "description": "x"}, actor="ana", now=NOW
        )

    assert at_once(4, revise) == [""] * 4
    assert [query.revisions.count() for query in queries] == [2] * 4


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Run `act` once between a save's plan and its write."""
    acts = [act]

    def late(*plan: Any) -> Any:
        if acts:
            acts.pop()()
        return writing(*plan)

    monkeypatch.setattr("queries.services.definitions.catalog.writing", late)


def test_a_plan_that_is_stale_is_made_again_but_nobody_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = catalog.create_query(name="one", spec=SPEC, actor="ana", now=NOW)
    asked: list[int] = []

    def ask(questions: Sequence[Any], **_: Any) -> list[None]:
        asked.append(len(questions))
        return [None] * len(questions)

    monkeypatch.setattr(query_plans, "ask_spark_of_many", ask)
    changed: dict[str, Any] = {"query": one, "actor": "bo", "now": NOW}
    meanwhile(monkeypatch, lambda: catalog.revise_query(spec={**SPEC, "conf": CONF}, **changed))
    revision = catalog.revise_query(spec={**SPEC, "description": "x"}, **changed)
    assert (revision.number, revision.spec["conf"]) == (3, {})
    assert asked == [1, 1, 0]


@pytest.mark.guarantee("G-FENCE-5")
def test_a_query_that_is_deleted_meanwhile_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    one = catalog.create_query(name="one", spec=SPEC, actor="ana", now=NOW)
    meanwhile(monkeypatch, lambda: Query.objects.filter(pk=one.pk).update(archived_at=NOW))
    with pytest.raises(NotAllowed, match="deleted"):
        catalog.revise_query(query=one, spec={**SPEC, "description": "x"}, actor="ana", now=NOW)
    assert one.revisions.count() == 1


def test_a_location_that_is_taken_meanwhile_is_not_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by: dict[str, Any] = {"spec": SPEC, "actor": "ana", "now": NOW}
    meanwhile(monkeypatch, lambda: catalog.create_query(name="inner", checkpoint="/c/a/b", **by))
    with pytest.raises(Invalid, match="the checkpoint of query inner"):
        catalog.create_query(name="outer", checkpoint="/c/a", **by)
    assert Query.objects.get().name == "inner"
