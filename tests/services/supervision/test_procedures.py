"""Operations with steps: none is lost with its worker, none is left half-done."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from queries.domain.errors import Conflict, NotAllowed
from queries.domain.states import OperationOutcome, StepState, StopMode, Verb
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    advance,
    begin,
    cancel,
    due_operations,
    waiting,
)
from queries.services.supervision import operations
from tests.launchers.in_memory import InMemoryLauncher
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


class Bench:
    """A procedure of three steps whose acts the test decides."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.launcher = InMemoryLauncher(clock=timezone.now)
        self.acts: list[str] = []
        self.ready = True
        self.gone = True
        self.error: Exception | None = None
        self.procedure = Procedure(
            Verb.REWIND,
            (
                ProcedureStep("Build", self._act("build")),
                ProcedureStep("Switch", self._act("switch"), commits=True),
                ProcedureStep("Trim", self._act("trim")),
            ),
            limit=timedelta(minutes=10),
            undo=self._undo,
        )

    def _undo(self, turn: StepContext) -> StepResult:
        self.acts.append(f"undo {turn.result.get('built', '')}".strip())
        return DONE if self.gone else waiting("something still leaves")

    def _act(self, name: str):  # type: ignore[no-untyped-def]
        def act(turn: StepContext) -> StepResult:
            self.acts.append(name)
            if self.error is not None:
                raise self.error
            turn.result["built"] = name
            return DONE if self.ready else waiting("not yet")

        return act

    def begin(self) -> Operation:
        return begin(
            self.procedure, query=self.query, arguments={}, actor="ada", now=timezone.now()
        )

    def advance(self, operation: Operation, *, later: float = 0) -> Operation:
        advance(
            operation.pk,
            procedures={Verb.REWIND: self.procedure},
            launcher=self.launcher,
            now=timezone.now() + timedelta(seconds=later),
        )
        operation.refresh_from_db()
        return operation


@pytest.fixture
def bench(db: None) -> Bench:
    return Bench(Stage().query("delays"))


def test_every_step_is_taken_once_and_in_order(bench: Bench) -> None:
    operation = bench.advance(bench.begin())
    assert bench.acts == ["build", "switch", "trim"]
    assert (operation.outcome, operation.to_undo) == (OperationOutcome.DONE, False)
    assert [step["state"] for step in operation.steps] == [StepState.DONE] * 3


def test_a_step_that_waits_is_taken_again_and_says_what_it_waits_for(bench: Bench) -> None:
    bench.ready = False
    operation = bench.advance(bench.begin())
    assert (operation.outcome, operation.detail.text) == ("", "not yet")
    assert operation.steps[0]["state"] == StepState.DOING
    bench.ready = True
    assert bench.advance(operation).outcome == OperationOutcome.DONE
    assert bench.acts == ["build", "build", "switch", "trim"]


def test_a_dead_workers_step_is_taken_again_once_its_lease_is_over(bench: Bench) -> None:
    operation = bench.begin()
    Operation.objects.filter(pk=operation.pk).update(
        leased_until=timezone.now() + timedelta(seconds=10)
    )
    assert operation.pk not in due_operations(now=timezone.now())
    assert bench.advance(operation).outcome == ""
    assert bench.acts == []
    later = timezone.now() + timedelta(seconds=20)
    assert operation.pk in due_operations(now=later)
    assert bench.advance(operation, later=20).outcome == OperationOutcome.DONE


def test_a_clock_that_was_set_back_keeps_no_operation_for_ever(bench: Bench) -> None:
    operation = bench.begin()
    Operation.objects.filter(pk=operation.pk).update(
        leased_until=timezone.now() + timedelta(days=400)
    )
    assert operation.pk in due_operations(now=timezone.now())
    assert bench.advance(operation).outcome == OperationOutcome.DONE


def test_a_cancelled_operation_tidies_up_what_it_has_built(bench: Bench) -> None:
    bench.ready = False
    operation = bench.advance(bench.begin())
    cancel(operation, actor="olga", now=timezone.now())
    assert operation.pk in due_operations(now=timezone.now())
    operation = bench.advance(operation)
    assert (operation.outcome, operation.detail.text) == ("CANCELLED", "cancelled by olga")
    assert bench.acts == ["build", "undo build"]
    assert not due_operations(now=timezone.now())


def test_a_failed_step_ends_the_operation_and_tidies_up(bench: Bench) -> None:
    bench.error = NotAllowed("Batch 40 is gone.", way_out="Choose a later one.")
    operation = bench.advance(bench.begin())
    assert operation.outcome == OperationOutcome.FAILED
    assert operation.detail.text == "Batch 40 is gone. Choose a later one."
    assert bench.acts == ["build", "undo"]


def test_a_disk_that_fails_holds_the_operation_until_it_is_back(bench: Bench) -> None:
    bench.error = OSError("no space left")
    operation = bench.advance(bench.begin())
    assert (operation.outcome, operation.detail.text) == ("", "OSError: no space left")
    bench.error = None
    assert bench.advance(operation).outcome == OperationOutcome.DONE


def test_past_its_point_of_no_return_it_cannot_be_cancelled_and_nothing_starts(
    bench: Bench,
) -> None:
    operation = bench.begin()
    Operation.objects.filter(pk=operation.pk).update(committed=True)
    with pytest.raises(NotAllowed, match="point of no return"):
        cancel(operation, actor="olga", now=timezone.now())
    with pytest.raises(Conflict, match="point of no return"):
        operations.request_start(query=bench.query, actor="olga", now=timezone.now())


def test_a_start_by_somebody_else_supersedes_it_before_that_point(bench: Bench) -> None:
    bench.ready = False
    operation = bench.advance(bench.begin())
    operations.request_start(query=bench.query, actor="olga", now=timezone.now())
    operation = bench.advance(operation)
    assert operation.outcome == OperationOutcome.SUPERSEDED
    assert bench.acts == ["build", "undo build"]


def test_its_own_stop_and_start_are_its_children(bench: Bench) -> None:
    bench.ready = False
    operation = bench.advance(bench.begin())
    child = operations.request_start(
        query=bench.query, actor="ada", now=timezone.now(), within=operation
    )
    operations.request_stop(
        query=bench.query, mode=StopMode.NOW, actor="ada", now=timezone.now(), within=operation
    )
    operation.refresh_from_db()
    assert (operation.outcome, child.parent) == ("", operation)


def test_a_second_one_beside_it_is_refused_by_name(bench: Bench) -> None:
    first = bench.begin()
    with pytest.raises(Conflict, match=str(first.uuid)):
        bench.begin()


def test_one_that_takes_too_long_is_timed_out_and_tidied(bench: Bench) -> None:
    bench.ready = False
    operation = bench.advance(bench.begin())
    Operation.objects.filter(pk=operation.pk).update(deadline=datetime(2020, 1, 1, tzinfo=UTC))
    operation = bench.advance(operation)
    assert (operation.outcome, operation.detail.text) == (OperationOutcome.TIMED_OUT, "not yet")
    assert bench.acts[-1] == "undo build"


def test_an_undo_that_has_to_wait_is_taken_again(bench: Bench) -> None:
    bench.ready = bench.gone = False
    operation = bench.advance(bench.begin())
    cancel(operation, actor="ada", now=timezone.now())
    operation = bench.advance(operation)
    assert (operation.outcome, operation.to_undo) == (OperationOutcome.CANCELLED, True)
    assert operation.pk in due_operations(now=timezone.now())
    bench.gone = True
    operation = bench.advance(operation)
    assert operation.to_undo is False
    assert bench.acts == ["build", "undo build", "undo build"]
