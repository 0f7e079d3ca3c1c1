"""Verbs on many queries: a selector says which, one operation has the outcome of each."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.states import Desired, OperationOutcome, Phase, Verb
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services.procedures import bulk_operations
from queries.services.procedures.engine import due_operations
from queries.services.supervision import operations
from tests.scenarios.stage import Stage
from tests.services.bulk import advance_many

pytestmark = pytest.mark.django_db


@pytest.fixture
def queries(stage: Stage) -> None:
    """Make three queries, two of them of team a by their label."""
    for name, label, phase in (
        ("one", "a", "FAILED"),
        ("two", "a", "STOPPED"),
        ("six", "b", "FAILED"),
    ):
        row = stage.query(name)
        Query.objects.filter(pk=row.pk).update(labels={"team": label}, phase=phase)


def ask(client: APIClient, verb: str, selector: str, status: int = 202, **more: Any) -> Any:
    """Return the answer to a verb on many."""
    sent = {"selector": selector, **more}
    found = client.post(f"/api/v1/queries:{verb}/", sent, format="json")
    assert found.status_code == status, found.json()
    return found.json()


@pytest.mark.sql
@pytest.mark.usefixtures("queries")
@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("team=a", ["one", "two"]),
        ("team=a,phase!=STOPPED", ["one"]),
        ("phase=FAILED|STOPPED", ["one", "six", "two"]),
        ("team!=a", ["six"]),
        ("team=", []),
        ("name=six|two", ["six", "two"]),
        ("tier=", ["one", "six", "two"]),
        ("tier=1", []),
        ("desired=RUNNING", []),
        ("health=IDLE", []),
        ("application!=one", ["six", "two"]),
        pytest.param(
            "pool=light",
            [],
            marks=pytest.mark.sql("queries.selectors.supervision.query_filters._pool"),
        ),
    ],
)
def test_a_dry_run_says_which_queries_are_meant(
    as_operator: APIClient, selector: str, names: list[str]
) -> None:
    answer = ask(as_operator, "restart", selector, 200, dry_run=True)
    assert answer == {"queries": names, "operation": None}
    assert not Operation.objects.exists()


@pytest.mark.usefixtures("queries")
@pytest.mark.parametrize("selector", ["", "team", "phase=FLYING", "a=b=c", "=x", "x,,y"])
def test_what_is_no_selector_is_refused_with_a_way_out(
    as_operator: APIClient, selector: str
) -> None:
    problems = ask(as_operator, "start", selector, 422)["problems"]
    assert all(one["field"] == "selector" for one in problems)


@pytest.mark.usefixtures("queries")
def test_one_operation_asks_each_query_and_ends_with_the_last(as_operator: APIClient) -> None:
    uuid = ask(as_operator, "start", "team=a")["operation"]
    operation = Operation.objects.get(uuid=uuid)
    assert advance_many(operation.pk, now=timezone.now())
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.OPEN
    assert set(Query.objects.filter(desired=Desired.RUNNING).values_list("name", flat=True)) == {
        "one",
        "two",
    }
    Operation.objects.filter(verb="start").update(outcome=OperationOutcome.DONE)
    advance_many(operation.pk, now=timezone.now())
    lines = as_operator.get(f"/api/v1/operations/{uuid}/").json()["result"]["queries"]
    assert [(one["name"], one["outcome"]) for one in lines] == [("one", "DONE"), ("two", "DONE")]
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.DONE


@pytest.mark.usefixtures("queries")
def test_a_worker_that_follows_a_dead_one_asks_none_twice(
    as_operator: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = ask(as_operator, "restart", "phase=FAILED|STOPPED")["operation"]
    operation = Operation.objects.get(uuid=uuid)
    asked: list[int] = []
    request = bulk_operations._request

    def die_after_the_first(row: Operation, query: int) -> Operation:
        if asked:
            raise KeyboardInterrupt
        asked.append(query)
        return request(row, query)

    monkeypatch.setattr(bulk_operations, "_request", die_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        advance_many(operation.pk, now=timezone.now())
    monkeypatch.setattr(bulk_operations, "_request", request)
    Operation.objects.filter(pk=operation.pk).update(leased_until=None)
    advance_many(operation.pk, now=timezone.now())
    verbs = Operation.objects.exclude(pk=operation.pk)
    assert sorted(verbs.values_list("query__name", flat=True)) == ["one", "six", "two"]


@pytest.mark.sql(
    "queries.selectors.rows.label",
    "queries.selectors.supervision.query_filters.selected",
)
@pytest.mark.usefixtures("queries")
def test_what_another_worker_holds_is_left_alone(as_operator: APIClient) -> None:
    uuid = ask(as_operator, "start", "team=a")["operation"]
    operation = Operation.objects.get(uuid=uuid)
    assert due_operations(now=timezone.now()) == [operation.pk]
    later = timezone.now() + timedelta(seconds=10)
    Operation.objects.filter(pk=operation.pk).update(leased_until=later)
    assert not advance_many(operation.pk, now=timezone.now())
    assert due_operations(now=timezone.now()) == []


@pytest.mark.usefixtures("queries")
def test_a_query_that_refuses_is_told_and_the_others_go_on(as_operator: APIClient) -> None:
    uuid = ask(as_operator, "start", "team=a")["operation"]
    Query.objects.filter(name="one").update(archived_at=timezone.now())
    operation = Operation.objects.get(uuid=uuid)
    advance_many(operation.pk, now=timezone.now())
    operation.refresh_from_db()
    outcomes = {one["name"]: one["outcome"] for one in operation.result["queries"]}
    assert outcomes == {"one": "REFUSED", "two": None}


@pytest.mark.usefixtures("queries")
def test_past_its_deadline_it_ends_with_what_is_left(as_operator: APIClient) -> None:
    uuid = ask(as_operator, "start", "team=a")["operation"]
    Operation.objects.update(deadline=timezone.now() - timedelta(seconds=1))
    advance_many(Operation.objects.get(uuid=uuid).pk, now=timezone.now())
    assert Operation.objects.get(uuid=uuid).outcome == OperationOutcome.TIMED_OUT


@pytest.mark.sql("queries.selectors.access._many")
@pytest.mark.usefixtures("queries")
def test_it_can_be_cancelled_and_has_a_page(as_operator: APIClient) -> None:
    uuid = ask(as_operator, "stop", "team=a", mode="now")["operation"]
    assert as_operator.get(f"/api/v1/operations/{uuid}/").json()["application"] is None
    assert as_operator.post(f"/api/v1/operations/{uuid}/cancel/").status_code == 202
    operation = Operation.objects.get(uuid=uuid)
    assert operation.outcome == OperationOutcome.CANCELLED
    assert not advance_many(operation.pk, now=timezone.now())


def test_pruning_deletes_each_query_once_it_has_stopped(stage: Stage) -> None:
    now = timezone.now()
    application = stage.application("flights")
    rows = [stage.query(name, "flights") for name in ("one", "two")]
    Query.objects.filter(pk=rows[1].pk).update(desired=Desired.RUNNING, phase=Phase.RUNNING)
    operation = bulk_operations.begin_many(
        Verb.PRUNE, rows, applications=[application], actor="ci", now=now
    )
    advance_many(operation.pk, now=timezone.now())
    Operation.objects.filter(verb="stop").update(outcome=OperationOutcome.DONE)
    advance_many(operation.pk, now=timezone.now())
    rows[0].refresh_from_db()
    rows[1].refresh_from_db()
    assert rows[0].archived_at is not None
    assert rows[1].archived_at is None  # it still runs
    Query.objects.filter(pk=rows[1].pk).update(phase=Phase.STOPPED)
    for _ in range(2):
        advance_many(operation.pk, now=timezone.now())
    operation.refresh_from_db()
    application.refresh_from_db()
    assert operation.outcome == OperationOutcome.DONE
    assert application.archived_at is not None


def test_one_that_cannot_be_deleted_keeps_no_other_and_not_the_operation(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [stage.query(name) for name in ("one", "two")]
    archive = operations.archive_query

    def break_for_the_first(*, query: Query, **by: Any) -> None:
        if query.name == "one":
            raise RuntimeError("a row that nobody thought of")
        archive(query=query, **by)

    monkeypatch.setattr(operations, "archive_query", break_for_the_first)
    operation = bulk_operations.begin_many(Verb.PRUNE, rows, actor="ci", now=timezone.now())
    advance_many(operation.pk, now=timezone.now())
    Operation.objects.filter(verb="stop").update(outcome=OperationOutcome.DONE)
    advance_many(operation.pk, now=timezone.now())
    operation.refresh_from_db()
    lines = {one["name"]: one for one in operation.result["queries"]}
    assert operation.outcome == OperationOutcome.FAILED
    assert (lines["two"]["outcome"], lines["one"]["outcome"]) == ("DONE", "REFUSED")
    assert "a row that nobody thought of" in lines["one"]["detail"]
