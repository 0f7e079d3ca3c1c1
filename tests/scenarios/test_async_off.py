"""The safe way off async progress tracking, through deaths, stops and second thoughts."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queries.domain.errors import Conflict, Invalid, NotAllowed
from queries.domain.protocol import RunError
from queries.domain.states import Desired, OperationOutcome, Phase, StopMode, Verb
from queries.models.history import Operation
from queries.services import triggers
from queries.services.definitions import catalog
from queries.services.procedures import engine
from queries.services.procedures.engine import LEASE, advance, cancel, due_operations
from queries.services.supervision import operations
from queries.services.triggers import request_async_off
from queries.tasks import PROCEDURES
from tests.scenarios.async_logs import ASYNC, AsyncQuery
from tests.scenarios.stage import Stage

GAP = RunError(
    "",
    "java.lang.IllegalStateException",
    "batch 111 doesn't exist",
    "java.lang.IllegalStateException: batch 111 doesn't exist",
)


class Way:
    """The operation on its way, with workers that come when they are called."""

    def __init__(self, stage: Stage, flights: AsyncQuery) -> None:
        self.stage, self.flights = stage, flights
        stage.now = timezone.now()  # the engine's own clock is the wall's
        self.row: Operation | None = None

    def ask(self) -> Operation:
        self.row = request_async_off(
            query=self.stage.row("flights"), actor="aude", now=self.stage.now
        )
        return self.work()

    def work(self, *, later: float = 0) -> Operation:
        """Let a worker take what steps it can, and supervision settle what they asked for."""
        assert self.row is not None
        for _ in range(3):
            now = timezone.now() + timedelta(seconds=later)
            advance(self.row.pk, procedures=PROCEDURES, launcher=self.stage.launcher, now=now)
            self.stage.look()
        self.row.refresh_from_db()
        return self.row

    def at(self) -> str:
        """Return the step it is at, "" after the last."""
        assert self.row is not None
        return next((s["name"] for s in self.row.steps if s["state"] != "DONE"), "")

    def restarted(self) -> None:
        """Supervision brings the old run down and the new one up."""
        self.stage.launcher.end_run(self.stage.run("flights").pk)
        self.stage.look()
        self.came_up()

    def came_up(self) -> None:
        """The fresh driver's run commits its first batch."""
        self.fresh_driver()
        self.flights.commit()
        self.work()

    def fresh_driver(self) -> None:
        """The old driver, if it still leaves, is gone, and the next one's session is up."""
        self.stage.look()
        if self.stage.driver("flights").state == "STOPPING":
            self.stage.launcher.leave("flights")
            self.stage.look()
        self.stage.ready("flights")

    def stopped(self) -> None:
        """The run ends as asked, and its driver leaves."""
        self.stage.launcher.end_run(self.stage.run("flights").pk)
        self.stage.look()
        self.work()


@pytest.fixture
def flights(stage: Stage, tmp_path: Path) -> AsyncQuery:
    return AsyncQuery(stage, tmp_path)


@pytest.fixture
def way(stage: Stage, flights: AsyncQuery) -> Way:
    return Way(stage, flights)


def test_from_a_log_with_gaps_to_a_plain_one_and_running_again(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.up()
    row = way.ask()
    assert way.at() == "Start the query with it"
    assert flights.options()["asyncProgressTrackingCheckpointIntervalMs"] == "0"
    way.restarted()
    assert way.at() == "Let two batches commit"
    assert "0 of 2" in way.row.steps[2]["detail"]  # type: ignore[union-attr]
    flights.commit()
    way.work()
    assert "1 of 2" in way.row.steps[2]["detail"]  # type: ignore[union-attr]
    flights.commit()
    way.work()
    assert way.at() == "Stop it after the batch in flight"
    assert stage.row("flights").desired == Desired.STOPPED
    way.stopped()
    row.refresh_from_db()
    assert (row.outcome, row.to_undo) == (OperationOutcome.DONE, False)
    assert flights.options() == {}
    assert stage.row("flights").desired == Desired.RUNNING
    assert stage.row("flights").target_revision.number == row.result["off"]  # type: ignore[union-attr]
    way.came_up()
    assert stage.phase("flights") == Phase.RUNNING
    verbs = list(row.children.order_by("pk").values_list("verb", flat=True))
    assert verbs == [Verb.RESTART, Verb.STOP, Verb.START]


def test_a_worker_killed_at_any_step_loses_nothing(
    way: Way, flights: AsyncQuery, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step is taken twice: its worker dies after acting, before it can say so."""
    real = engine._mark
    killed: list[str] = []

    class Killed(BaseException):
        pass

    def mark(turn: Any, place: int, state: Any, detail: str, **rest: Any) -> bool:
        name = turn.operation.steps[place]["name"]
        if state == "DONE" and name not in killed:
            killed.append(name)
            raise Killed(name)
        return real(turn, place, state, detail, **rest)

    flights.up()
    way.row = request_async_off(query=stage.row("flights"), actor="aude", now=stage.now)
    monkeypatch.setattr(engine, "_mark", mark)

    def work() -> None:
        for _ in range(8):
            before = len(killed)
            try:
                way.work()
            except Killed:
                # SIGKILL gives no lease back: it runs out
                pk = way.row.pk  # type: ignore[union-attr]
                held = timezone.now() + LEASE
                Operation.objects.filter(pk=pk).update(leased_until=held)
                assert pk not in due_operations(now=timezone.now())
                assert pk in due_operations(now=held + timedelta(seconds=1))
                Operation.objects.filter(pk=pk).update(leased_until=None)
            stage.look()
            if len(killed) == before:
                return

    work()
    stage.launcher.end_run(stage.run("flights").pk)
    way.fresh_driver()
    for _ in range(3):
        flights.commit()
        work()
    stage.launcher.end_run(stage.run("flights").pk)
    stage.look()
    work()
    row = Operation.objects.get(pk=way.row.pk)
    assert row.outcome == OperationOutcome.DONE
    assert killed == [step["name"] for step in row.steps]
    assert flights.query.revisions.count() == 3  # none was written twice
    assert [child.verb for child in row.children.order_by("pk")] == ["restart", "stop", "start"]


def test_one_that_stood_stands_again_at_the_end(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.log(59, 74, 86, 98, 112)
    way.ask()
    assert stage.row("flights").desired == Desired.RUNNING
    way.came_up()
    flights.commit()
    flights.commit()
    way.work()
    way.stopped()
    assert way.row is not None
    assert way.row.outcome == OperationOutcome.DONE
    assert "was stopped before" in way.row.steps[-1]["detail"]
    assert (flights.options(), stage.row("flights").desired) == ({}, Desired.STOPPED)


def test_one_that_stands_with_a_whole_log_is_switched_off_at_once(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.log(111, 112)
    row = way.ask()
    assert row.outcome == OperationOutcome.DONE
    assert flights.options() == {}
    assert not row.children.exists()


def test_cancelled_before_its_last_step_everything_is_as_it_was(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.up()
    way.ask()
    way.restarted()
    assert way.row is not None
    cancel(way.row, actor="otto", now=timezone.now())
    row = way.work()
    assert row.outcome == OperationOutcome.CANCELLED
    assert flights.options() == ASYNC
    assert row.result["left"] == "Revision 3 restores revision 1. It restarts on that revision."
    assert not row.to_undo
    way.restarted()
    assert stage.run("flights").revision.number == 3


def test_cancelled_where_it_had_been_started_for_this_it_is_stopped_again(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.log(98, 112)
    way.ask()
    way.came_up()
    assert way.row is not None
    cancel(way.row, actor="otto", now=timezone.now())
    row = way.work()
    assert row.result["left"] == "Revision 3 restores revision 1. It stays stopped."
    assert stage.row("flights").desired == Desired.STOPPED


def test_cancelled_while_a_worker_is_at_a_step_nothing_is_asked_any_more(
    way: Way, flights: AsyncQuery, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights.log(98, 112)
    real = triggers._child

    def cancelled_now(turn: Any, *verbs: Verb) -> Operation | None:
        if turn.operation.outcome == "" and way.row is not None:
            cancel(way.row, actor="otto", now=timezone.now())
        return real(turn, *verbs)

    monkeypatch.setattr(triggers, "_child", cancelled_now)
    row = way.ask()
    assert (row.outcome, row.to_undo) == (OperationOutcome.CANCELLED, False)
    assert not row.children.exists()
    assert stage.row("flights").desired == Desired.STOPPED
    assert row.result["left"] == "Revision 3 restores revision 1."


def test_a_persons_stop_in_the_midst_wins_and_the_definition_goes_back(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.up()
    way.ask()
    way.restarted()
    operations.request_stop(
        query=stage.row("flights"), mode=StopMode.GRACEFUL, actor="olga", now=stage.now
    )
    row = way.work()
    assert row.outcome == OperationOutcome.SUPERSEDED
    assert flights.options() == ASYNC
    assert stage.row("flights").desired == Desired.STOPPED
    assert row.result["left"] == "Revision 3 restores revision 1."


def test_an_edit_in_the_midst_ends_it_and_is_left_alone(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.up()
    way.ask()
    way.restarted()
    catalog.revise_query(
        query=flights.query,
        spec={**flights.spec(), "description": "edited"},
        expected_revision=None,
        actor="ines",
        now=stage.now,
    )
    flights.commit()
    flights.commit()
    way.work()
    way.stopped()
    assert way.row is not None
    assert way.row.outcome == OperationOutcome.FAILED
    assert "ines has saved revision 3" in way.row.detail.text
    assert flights.spec()["description"] == "edited"
    assert stage.row("flights").desired == Desired.RUNNING  # as it was


def test_a_query_that_died_of_the_gap_is_brought_back(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.log(59, 74, 86, 98, 112)
    catalog.revise_query(
        query=flights.query,
        spec={**flights.spec(), "sink": {"format": "noop"}},
        expected_revision=1,
        actor="ines",
        now=stage.now,
        gap_accepted=True,  # switched off by other means
    )
    stage.start("flights")
    stage.ready("flights")
    stage.fail("flights", GAP)
    assert stage.phase("flights") == Phase.FAILED
    way.ask()
    assert flights.options() == {
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": "0",
    }
    way.came_up()
    flights.commit()
    flights.commit()
    way.work()
    way.stopped()
    assert way.row is not None
    assert (way.row.outcome, flights.options()) == (OperationOutcome.DONE, {})
    way.came_up()
    assert stage.phase("flights") == Phase.RUNNING


def test_a_dead_query_whose_rescue_is_cancelled_stands_with_its_definition_back(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.log(98, 112)
    flights.query.revisions.create(
        number=2,
        kind="sql",
        spec={
            **flights.spec(),
            "sink": {"format": "noop", "options": {}, "output_mode": "append", "partition_by": []},
        },
        author="ines",
        created_at=stage.now,
    )
    stage.start("flights")
    stage.ready("flights")
    stage.fail("flights", GAP)
    way.ask()
    assert way.row is not None
    cancel(way.row, actor="otto", now=timezone.now())
    row = way.work()
    assert flights.options() == {}
    assert row.result["left"] == "Revision 4 restores revision 2. It stays stopped."


def test_a_query_that_fails_in_the_midst_ends_it_with_the_reason(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.up()
    way.ask()
    way.restarted()
    stage.fail("flights", RunError("DATA_SOURCE_NOT_FOUND", "x", "[DATA_SOURCE_NOT_FOUND] no", ""))
    way.work()
    assert way.row is not None
    assert way.row.outcome == OperationOutcome.FAILED
    assert "has failed in the meantime" in way.row.detail.text
    assert flights.options() == ASYNC


def test_a_log_that_is_not_whole_after_all_ends_it_before_the_switch(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.up()
    way.ask()
    way.restarted()
    flights.commit()
    flights.commit()
    way.work()
    last = flights.begun()[-1]
    (flights.root / "offsets" / str(last - 1)).unlink()
    way.stopped()
    assert way.row is not None
    assert way.row.outcome == OperationOutcome.FAILED
    assert f"Batch {last - 1} is still missing" in way.row.detail.text
    assert flights.options() == ASYNC


def test_a_source_that_is_silent_for_long_is_waited_for_beyond_the_starts_own_time(
    way: Way, flights: AsyncQuery, stage: Stage
) -> None:
    flights.up()
    way.ask()
    child = way.row.children.get()  # type: ignore[union-attr]
    Operation.objects.filter(pk=child.pk).update(outcome=OperationOutcome.TIMED_OUT)
    row = way.work()
    assert (row.outcome, way.at()) == ("", "Start the query with it")
    way.restarted()
    assert way.at() == "Let two batches commit"


def test_what_needs_no_way_off_or_has_none_is_refused_with_the_reason(
    way: Way, flights: AsyncQuery, stage: Stage, tmp_path: Path
) -> None:
    plain = AsyncQuery(stage, tmp_path, "plain", sink={"format": "noop", "options": {}})
    plain.log(1, 2)
    with pytest.raises(NotAllowed, match="No action is needed"):
        request_async_off(query=plain.query, actor="aude", now=stage.now)
    code = AsyncQuery(stage, tmp_path, "code", kind="python", function="a:b", sink=None)
    with pytest.raises(NotAllowed, match="its code writes the output"):
        request_async_off(query=code.query, actor="aude", now=stage.now)
    files = AsyncQuery(
        stage, tmp_path, "files", sink={"format": "parquet", "options": {"path": "/o"}}
    )
    files.log(1, 3)
    with pytest.raises(Invalid, match="is not supported with a parquet sink"):
        request_async_off(query=files.query, actor="aude", now=stage.now)
    flights.query.checkpoints.update(location="s3a://bucket/flights")
    with pytest.raises(NotAllowed, match="is being read"):
        request_async_off(query=flights.query, actor="aude", now=stage.now)


def test_a_second_one_beside_it_is_refused(way: Way, flights: AsyncQuery, stage: Stage) -> None:
    flights.up()
    way.ask()
    with pytest.raises(Conflict, match="in progress"):
        request_async_off(query=stage.row("flights"), actor="ines", now=stage.now)


@pytest.mark.parametrize(
    ("batches", "count"), [([], 0), ([7], 1), ([7, 8], 2), ([5, 7, 8], 2), ([5, 6, 8], 1)]
)
def test_batches_in_a_row_are_counted_from_the_end(batches: list[int], count: int) -> None:
    assert triggers._in_a_row(batches) == count
