"""A query follows another's runs: each end that counts starts it once, whoever looks when."""

from datetime import timedelta
from typing import Any

import pytest

from queries.domain.errors import Invalid
from queries.domain.states import Desired, Phase, RunOutcome
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.schedules import PlannedRun, ScheduleState
from queries.selectors.schedules import schedule_status
from queries.services.schedules import targets, ticks
from tests.scenarios.stage import Stage

MINUTE = timedelta(minutes=1)
ENDING: dict[str, Any] = {"trigger": {"kind": "available_now"}}


def _follower(stage: Stage, name: str = "bills", after: str = "orders", **more: Any) -> Query:
    query = stage.query(name, **ENDING, schedule={"after": after, **more})
    ticks.follow_schedule(query.revisions.get())
    return query


def _run(stage: Stage, outcome: RunOutcome, phase: Phase, name: str = "orders") -> None:
    """Let a query run and end, as supervision notes it."""
    earlier = Run.objects.filter(query__name=name).order_by("pk").last()
    if earlier is None:
        stage.start(name)
        stage.settle()
        stage.ready(name)
    else:
        earlier.pk, earlier.epoch, earlier.spark_run_id = None, earlier.epoch + 1000, None
        earlier.outcome = RunOutcome.OPEN
        earlier.save()
    Run.objects.filter(query__name=name, outcome=RunOutcome.OPEN).update(
        outcome=outcome, ended_at=stage.now
    )
    desired = Desired.RUNNING if phase is Phase.BACKOFF else Desired.STOPPED
    Query.objects.filter(name=name).update(desired=desired, phase=phase)


def _tick(stage: Stage) -> list[str]:
    ticks.run_schedules(now=stage.now)
    rows = PlannedRun.objects.order_by("pk")
    return [f"{row.state} {row.skipped}".strip() for row in rows]


def test_each_completed_run_starts_the_query_once(stage: Stage) -> None:
    stage.query("orders", **ENDING)
    bills = _follower(stage)
    assert _tick(stage) == []
    _run(stage, RunOutcome.COMPLETED, Phase.COMPLETED)
    assert [_tick(stage) for _ in range(3)] == [["STARTED"]] * 3
    row = PlannedRun.objects.get()
    assert row.due_at == Run.objects.get(query__name="orders").ended_at
    Query.objects.filter(pk=bills.pk).update(desired=Desired.STOPPED, phase=Phase.COMPLETED)
    assert _tick(stage) == ["DONE"]
    _run(stage, RunOutcome.COMPLETED, Phase.COMPLETED)
    assert _tick(stage) == ["DONE", "STARTED"]


def test_an_end_during_the_run_waits_and_covers_the_ends_after_it(stage: Stage) -> None:
    stage.query("orders", **ENDING)
    _follower(stage)
    for _ in range(3):
        _run(stage, RunOutcome.COMPLETED, Phase.COMPLETED)
        _tick(stage)
    assert _tick(stage) == ["STARTED", "WAITING", "SKIPPED duplicate"]


@pytest.mark.parametrize("after_end", ["completed", "any"])
def test_a_run_that_failed_counts_only_as_any_end_and_only_when_it_is_not_restarted(
    stage: Stage, after_end: str
) -> None:
    stage.query("orders", **ENDING)
    _follower(stage, after_end=after_end)
    _run(stage, RunOutcome.FAILED, Phase.BACKOFF)
    assert _tick(stage) == []
    Query.objects.filter(name="orders").update(phase=Phase.ON_HOLD)
    assert _tick(stage) == (["STARTED"] if after_end == "any" else [])
    assert _tick(stage) == (["STARTED"] if after_end == "any" else [])


def test_runs_before_the_schedule_start_nothing(stage: Stage) -> None:
    stage.query("orders", **ENDING)
    _run(stage, RunOutcome.COMPLETED, Phase.COMPLETED)
    _follower(stage)
    assert _tick(stage) == []


def test_a_query_that_does_not_exist_yet_is_named_and_found_later(stage: Stage) -> None:
    bills = _follower(stage)
    assert _tick(stage) == []
    status = schedule_status(bills, now=stage.now)
    assert status.state.problem == "There is no query orders."
    assert (status.overdue, status.when) == (False, "after each completed run of orders")
    stage.query("orders", **ENDING)
    _tick(stage)
    assert schedule_status(bills, now=stage.now).state.problem == ""
    _run(stage, RunOutcome.COMPLETED, Phase.COMPLETED)
    assert _tick(stage) == ["STARTED"]


def test_a_deleted_query_is_named_and_its_successor_is_followed(stage: Stage) -> None:
    orders = stage.query("orders", **ENDING)
    bills = _follower(stage)
    Query.objects.filter(pk=orders.pk).update(archived_at=stage.now)
    assert _tick(stage) == []
    assert schedule_status(bills, now=stage.now).state.problem == "There is no query orders."


def test_queries_that_would_start_each_other_are_refused(stage: Stage) -> None:
    _follower(stage, "orders", after="bills")
    _tick(stage)
    bills = stage.query("bills", **ENDING, schedule={"after": "orders"})
    _tick(stage)  # orders has found bills
    with pytest.raises(Invalid, match="would start the other without end"):
        ticks.follow_schedule(bills.revisions.get())


def test_a_query_does_not_follow_itself(stage: Stage) -> None:
    query = stage.query("orders", **ENDING, schedule={"after": "orders"})
    with pytest.raises(Invalid, match=r"schedule\.after"):
        ticks.follow_schedule(query.revisions.get())


def test_a_run_that_completes_while_the_ends_are_read_is_not_passed_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("orders", **ENDING)
    _follower(stage)
    _run(stage, RunOutcome.FAILED, Phase.BACKOFF)
    ends = targets.ends

    def meanwhile(*given: Any) -> Any:
        found = ends(*given)
        _run(stage, RunOutcome.COMPLETED, Phase.COMPLETED)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(targets, "ends", meanwhile)
        assert _tick(stage) == []
    assert _tick(stage) == ["STARTED"]


def test_a_worker_that_was_overtaken_writes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("orders", **ENDING)
    _follower(stage)
    _run(stage, RunOutcome.COMPLETED, Phase.COMPLETED)
    due = ticks._due

    def overtaken(state: ScheduleState, *more: Any) -> Any:
        found = due(state, *more)
        ScheduleState.objects.update(upstream_run=state.upstream_run + 100)
        return found

    monkeypatch.setattr(ticks, "_due", overtaken)
    assert _tick(stage) == []
