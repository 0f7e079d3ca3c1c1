"""Acts that cross a look at the wrong moment, and corners from which something must still wake."""

from collections.abc import Callable
from typing import Any

import pytest

from queries.domain.states import OperationOutcome, Phase, StopMode
from queries.domain.supervision.decide import decide
from queries.models.applications import Application
from queries.models.drivers import Driver, Installation, Run
from queries.models.history import Operation
from queries.services.supervision import application_operations, operations, reconcile
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, Stage

pytestmark = pytest.mark.sql


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Let something happen once between a look's reading of the rows and its claim."""

    def once(*arguments: Any) -> Any:
        monkeypatch.setattr(reconcile, "decide", decide)
        act()
        return decide(*arguments)

    monkeypatch.setattr(reconcile, "decide", once)


@pytest.mark.guarantee("G-FENCE-5")
def test_a_start_that_crosses_a_look_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = stage.query("delays")
    meanwhile(
        monkeypatch, lambda: operations.request_start(query=query, actor="olga", now=stage.now)
    )
    reconcile.reconcile(query.application_id, launcher=stage.launcher, now=stage.now)
    stage.wait(1)
    assert stage.phase("delays") == Phase.STARTING


def test_the_last_slot_is_taken_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        stage.query(name)
    meanwhile(monkeypatch, lambda: (stage.start("a"), stage.start("b")))
    stage.start("c")
    assert Driver.objects.filter(state="STARTING").count() == 2
    stage.ready("a")
    stage.wait(2)
    assert stage.phase("c") == Phase.STARTING


def test_a_worker_that_dies_between_an_end_and_what_follows_is_made_up_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.die("delays")
    monkeypatch.setattr(reconcile, "ROUNDS", 1)
    application = stage.row("delays").application_id
    reconcile.reconcile(application, launcher=stage.launcher, now=stage.now)
    assert Driver.objects.count() == 1
    stage.wait(1)
    assert Driver.objects.count() == 2


def test_a_broken_query_whose_probe_dies_with_its_driver_is_probed_again(stage: Stage) -> None:
    stage.query("recovery")
    stage.start("recovery")
    stage.ready("recovery")
    for _ in range(3):
        stage.wait(10)
        stage.fail("recovery", DIVIDE, batch=4)
    assert stage.phase("recovery") == Phase.ON_HOLD
    stage.launcher.leave("recovery")
    stage.wait(1810)
    stage.launcher.die("recovery")
    stage.look()
    stage.wait(5)
    stage.ready("recovery")
    stage.commit("recovery")
    assert stage.phase("recovery") == Phase.RUNNING


def test_a_restart_that_cannot_work_ends_failed_and_can_be_asked_again(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    application = stage.row("delays").application

    def ask() -> Operation:
        return application_operations.request_application_restart(
            application=application, actor="ada", now=stage.now
        )

    first = ask()
    stage.look()
    stage.launcher.leave("delays")
    stage.look()
    stage.wait(1)
    stage.launcher.session_fails("delays", NO_SUCH_SOURCE)
    stage.look()
    first.refresh_from_db()
    assert first.outcome == OperationOutcome.FAILED
    assert ask().pk != first.pk


def test_deleting_a_query_ends_the_operation_that_still_waits(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    stop = operations.request_stop(
        query=stage.row("delays"), mode=StopMode.NOW, actor="olga", now=stage.now
    )
    operations.archive_query(query=stage.row("delays"), actor="ada", now=stage.now)
    stop.refresh_from_db()
    assert (stop.outcome, stop.detail.text) == (OperationOutcome.SUPERSEDED, "deleted by ada")


def test_an_operation_whose_time_is_over_says_what_it_waited_for(stage: Stage) -> None:
    stage.query("delays")
    stage.launcher.refusal = ""
    operation = stage.start("delays")
    stage.ready("delays")
    stage.wait(660)
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.TIMED_OUT
    assert "Starting" in operation.detail.text


def test_a_driver_that_holds_a_hanging_starts_lock_makes_room_for_a_fresh_one(
    stage: Stage,
) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    jvm = stage.driver("delays").jvm_pid
    assert jvm is not None
    stage.launcher.refuse(stage.run("delays").pk, "held", holder_pid=jvm)
    stage.look()
    assert stage.launcher.assignment("delays").end
    stage.launcher.leave("delays")
    stage.look()
    stage.wait(10)
    assert Driver.objects.count() == 2
    assert stage.phase("delays") == Phase.STARTING


def test_a_launch_that_is_refused_says_why_and_a_start_tries_again(stage: Stage) -> None:
    stage.query("delays")
    stage.launcher.refusal = "No Java was found. Set JAVA_HOME."
    operation = stage.start("delays")
    row = stage.row("delays")
    assert (row.phase, row.phase_detail.text) == (Phase.FAILED, "No Java was found. Set JAVA_HOME.")
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.FAILED
    assert (Driver.objects.get().state, Run.objects.get().outcome) == ("ENDED", "DRIVER_ENDED")
    stage.launcher.refusal = ""
    stage.start("delays")
    stage.ready("delays")
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING


@pytest.mark.guarantee("G-FENCE-2")
def test_a_restored_database_draws_above_the_epochs_its_host_has_seen(stage: Stage) -> None:
    stage.query("delays")
    for _ in range(3):
        stage.start("delays")
        stage.launcher.leave("delays")
        stage.look()
        stage.wait(30)
    seen = stage.launcher.highest_epoch("delays")
    Driver.objects.all().delete()
    Application.objects.update(failures=0, next_attempt_at=None)
    Installation.objects.update(last_epoch=0)
    stage.look()
    stage.wait(2)
    assert stage.driver("delays").epoch > seen
