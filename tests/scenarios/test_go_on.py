"""Going on after a loss: the count is asked for, the state kept, the loss written down."""

from functools import partial
from pathlib import Path

import pytest
from django.utils import timezone

from queries.brokers.reader import Unreachable
from queries.domain.errors import Conflict, NotAllowed, Unavailable
from queries.domain.protocol import RunError
from queries.domain.states import OperationOutcome, StopMode
from queries.models.checkpoints import Loss
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.services.kafka import go_on_after_loss as procedure
from queries.services.kafka import lag
from queries.services.kafka.go_on_after_loss import go_on
from queries.services.procedures.engine import advance
from queries.services.supervision import operations
from queries.tasks import PROCEDURES
from tests.conftest_brokers import Brokers, MakeQuery, brokers, commit, make, said
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

__all__ = ["brokers", "make"]

LOST = RunError(
    "",
    "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
    "Some data may have been lost because they are not available in Kafka any more",
    "Could not read records in offset [100, 180) for topic partition flights-0",
)


@pytest.fixture
def failed(
    stage: Stage, make: MakeQuery, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> Stage:
    """A query that has failed on 80 lost offsets."""
    stage.now = timezone.now()  # steps of operations take their time from the clock
    make("delays")
    brokers.said["one:9092"] = said({0: (180, 300), 1: (0, 100)})
    look = partial(lag.look_at_sources, readers=brokers)
    monkeypatch.setattr(procedure, "look_at_sources", look)
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", LOST)
    assert stage.phase("delays") == "FAILED"
    stage.launcher.obliging = True
    return stage


def _go_on(stage: Stage, offsets: int = 80) -> Operation:
    return go_on(query=stage.row("delays"), offsets=offsets, actor="otto", now=stage.now)


def _advance(stage: Stage, operation: Operation) -> Operation:
    advance(operation.pk, procedures=PROCEDURES, launcher=stage.launcher, now=stage.now)
    stage.look()
    operation.refresh_from_db()
    return operation


def _settle(stage: Stage) -> None:
    """Let a driver that was asked for come up, and whoever was asked to leave go."""
    for _ in range(3):
        stage.wait(2)
        stage.ready("delays")


def test_the_gap_is_gone_over_by_one_run_and_the_next_fails_again(
    failed: Stage, tmp_path: Path
) -> None:
    operation = _advance(failed, _go_on(failed))
    loss = Loss.objects.get()
    assert (loss.partition, loss.from_offset, loss.to_offset, loss.records) == (0, 100, 180, 80)
    assert (loss.accepted_by, loss.operation) == ("otto", operation)
    _settle(failed)
    run = failed.run("delays")
    assert run.accepts_loss
    entries = failed.launcher.assignment("delays").queries
    assert [entry.accepts_loss for entry in entries if entry.run == run.pk] == [True]
    assert "flights-0 has committed 100 of 180" in _advance(failed, operation).detail.text
    assert operation.outcome == OperationOutcome.OPEN

    commit(tmp_path / "delays", 1, {0: 180, 1: 100})
    _advance(failed, operation)
    _settle(failed)
    _advance(failed, operation)
    assert operation.outcome == OperationOutcome.DONE, operation.detail.text
    assert failed.phase("delays") == "RUNNING"
    assert not failed.run("delays").accepts_loss
    assert Run.objects.filter(query__name="delays", accepts_loss=True).count() == 1


def test_another_count_is_refused_with_the_right_one(failed: Stage) -> None:
    with pytest.raises(Conflict, match="80 offsets are lost, not 70"):
        _go_on(failed, 70)
    assert not Loss.objects.exists()


def test_where_nothing_is_gone_there_is_nothing_to_accept(failed: Stage, brokers: Brokers) -> None:
    brokers.said["one:9092"] = said({0: (0, 300), 1: (0, 100)})
    with pytest.raises(NotAllowed, match="has lost no offsets"):
        _go_on(failed)


def test_where_the_broker_is_silent_nobody_accepts_anything(
    failed: Stage, brokers: Brokers
) -> None:
    brokers.said["one:9092"] = Unreachable("Connection refused")
    with pytest.raises(Unavailable, match="Connection refused"):
        _go_on(failed)


def test_a_step_taken_twice_writes_the_loss_once_and_starts_once(failed: Stage) -> None:
    operation = _go_on(failed)
    _advance(failed, operation)
    steps = operation.steps
    steps[0]["state"] = "DOING"  # the worker died before it could say so
    Operation.objects.filter(pk=operation.pk).update(steps=steps)
    generation = failed.row("delays").generation
    _advance(failed, operation)
    assert Loss.objects.count() == 1
    assert failed.row("delays").generation == generation


def test_a_stop_ends_it_and_no_later_run_goes_over_gaps(failed: Stage) -> None:
    operation = _advance(failed, _go_on(failed))
    operations.request_stop(
        query=failed.row("delays"), mode=StopMode.NOW, actor="olga", now=failed.now
    )
    failed.look()
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.SUPERSEDED
    assert Loss.objects.count() == 1  # it is gone all the same
