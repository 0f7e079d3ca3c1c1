"""Runs that do not end when they should: what is locked meanwhile, who makes room, who decides."""

import pytest

from queries.domain.errors import NotAllowed
from queries.domain.states import OperationOutcome, Phase, Reason, RunOutcome, StopMode
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, Operation
from queries.services.supervision import application_operations, operations
from tests.scenarios.stage import BROKEN_PIPE, Stage


def _shared(stage: Stage, *names: str) -> None:
    stage.application("shop")
    for name in names:
        stage.query(name, "shop")
        stage.start(name)
    stage.ready("shop")
    for name in names:
        stage.commit(name)


def _hang_stop(stage: Stage, name: str) -> None:
    """The stop of a query times out in its driver."""
    stage.launcher.hang_stop(stage.run(name).pk)
    stage.look()


def _locked(stage: Stage, name: str) -> bool:
    place = Checkpoint.objects.get(query__name=name, retired_at=None).location
    return bool(stage.launcher.holders(place))


def _said(stage: Stage, name: str) -> str:
    return str(stage.row(name).phase_detail)


def test_a_stop_that_times_out_in_a_shared_driver_releases_nothing(stage: Stage) -> None:
    _shared(stage, "orders", "delays", "clicks")
    operation = stage.stop("orders", StopMode.NOW)
    _hang_stop(stage, "orders")
    stage.wait(600)
    row = stage.row("orders")
    assert (row.phase, row.phase_reason) == (Phase.STOPPING, Reason.STUCK)
    assert "which also restarts delays and clicks" in _said(stage, "orders")
    assert _locked(stage, "orders")
    assert stage.run("orders").outcome == RunOutcome.OPEN
    operation.refresh_from_db()
    assert operation.outcome != OperationOutcome.DONE
    with pytest.raises(NotAllowed, match="can be deleted only when stopped"):
        operations.archive_query(query=stage.row("orders"), actor="ada", now=stage.now)
    assert stage.phase("delays") == stage.phase("clicks") == Phase.RUNNING
    assert [call.verb for call in stage.launcher.calls if call.verb in ("terminate", "kill")] == []
    assert Driver.objects.count() == 1


def test_a_stop_that_hangs_ends_by_itself_when_its_thread_does(stage: Stage) -> None:
    _shared(stage, "orders", "delays")
    operation = stage.stop("orders", StopMode.NOW)
    _hang_stop(stage, "orders")
    stage.wait(300)
    run = stage.run("orders").pk
    stage.launcher.end_run(run)
    stage.look()
    operation.refresh_from_db()
    assert (stage.phase("orders"), operation.outcome) == (Phase.STOPPED, OperationOutcome.DONE)
    assert not _locked(stage, "orders")
    assert not Failure.objects.exists()
    assert stage.phase("delays") == Phase.RUNNING


def test_a_driver_that_nobody_else_needs_is_ended_without_a_click(stage: Stage) -> None:
    stage.query("orders")
    stage.up("orders")
    operation = stage.stop("orders", StopMode.NOW)
    _hang_stop(stage, "orders")
    assert stage.phase("orders") == Phase.STOPPING
    assert "its driver is being stopped" in _said(stage, "orders")
    verbs = [call.verb for call in stage.launcher.calls]
    assert verbs.count("terminate") > 0
    assert "kill" not in verbs
    stage.wait(200)
    assert "kill" in [call.verb for call in stage.launcher.calls]
    operation.refresh_from_db()
    assert (stage.phase("orders"), operation.outcome) == (Phase.STOPPED, OperationOutcome.DONE)
    assert not _locked(stage, "orders")


def test_a_driver_whose_other_queries_have_stopped_is_ended_without_a_click(stage: Stage) -> None:
    _shared(stage, "orders", "delays")
    stage.restart("orders")
    _hang_stop(stage, "orders")
    stage.wait(60)
    assert stage.driver("shop").end_wanted == Reason.NONE
    stage.stop("delays")
    stage.launcher.end_run(stage.run("delays").pk)
    stage.look()
    stage.wait(1)
    assert stage.driver("shop").end_wanted == Reason.HANGS
    stage.wait(200)
    assert Driver.objects.count() == 2
    stage.ready("shop")
    stage.commit("orders")
    assert (stage.phase("orders"), stage.phase("delays")) == (Phase.RUNNING, Phase.STOPPED)
    assert not Failure.objects.exists()


def test_an_operator_ends_a_shared_driver_and_the_others_go_on_in_the_next(stage: Stage) -> None:
    _shared(stage, "orders", "delays")
    stage.stop("orders", StopMode.NOW)
    _hang_stop(stage, "orders")
    application_operations.request_application_restart(
        application=stage.row("orders").application, actor="olga", now=stage.now
    )
    stage.look()
    assert "terminate" not in [call.verb for call in stage.launcher.calls]  # the other one drains
    stage.launcher.end_run(stage.run("delays").pk)
    stage.look()
    assert "terminate" in [call.verb for call in stage.launcher.calls]
    stage.launcher.leave("shop")
    stage.look()
    stage.wait(5)
    stage.ready("shop")
    stage.commit("delays")
    assert (stage.phase("orders"), stage.phase("delays")) == (Phase.STOPPED, Phase.RUNNING)
    assert not _locked(stage, "orders")
    assert stage.driver("shop").epoch > Driver.objects.order_by("epoch")[0].epoch


def test_a_restart_of_a_query_whose_thread_hangs_is_named_and_opens_no_second_run(
    stage: Stage,
) -> None:
    _shared(stage, "orders", "delays")
    stage.restart("orders")
    _hang_stop(stage, "orders")
    stage.wait(300)
    row = stage.row("orders")
    assert (row.phase, row.phase_reason) == (Phase.STOPPING, Reason.STUCK)
    assert "also restarts delays" in _said(stage, "orders")
    assert Run.objects.filter(query=row).count() == 1
    assert not Failure.objects.exists()
    stage.launcher.end_run(stage.run("orders").pk)
    stage.look()
    stage.wait(1)
    stage.commit("orders")
    assert stage.phase("orders") == Phase.RUNNING
    assert Driver.objects.count() == 1


def test_a_failed_query_whose_thread_hangs_waits_for_it(stage: Stage) -> None:
    _shared(stage, "orders", "delays")
    run = stage.run("orders").pk
    stage.launcher.fail_run(run, BROKEN_PIPE, batch=3, left=True)
    stage.look()
    stage.wait(60)
    row = stage.row("orders")
    assert (row.phase, row.phase_reason) == (Phase.PENDING, Reason.WAITS_THREAD)
    assert Failure.objects.count() == 1
    assert Run.objects.filter(query=row).count() == 1
    stage.launcher.end_run(run)
    stage.look()
    stage.wait(1)
    assert Run.objects.filter(query=row).count() == 2


def test_a_second_query_on_a_checkpoint_that_a_hanging_thread_holds_is_refused(
    stage: Stage,
) -> None:
    _shared(stage, "orders", "delays")
    stage.stop("orders", StopMode.NOW)
    _hang_stop(stage, "orders")
    place = "file:///checkpoints/orders"
    # Other names of the same folder, as a link or another installation would have them.
    for name, application, alias in (
        ("again", "again", "/checkpoints/orders"),
        ("near", "shop", "file://localhost/checkpoints/orders"),
    ):
        stage.query(name, application)
        Checkpoint.objects.filter(query__name=name).update(location=alias)
        stage.start(name)
        stage.ready(application)
        assert stage.last_run(name).outcome == RunOutcome.REFUSED
        assert stage.row(name).phase_reason == Reason.WAITS_LOCK
    assert [held[2] for held in stage.launcher.holders(place)] == [stage.run("orders").pk]


def test_a_start_that_never_returns_fails_once_and_says_who_is_affected(stage: Stage) -> None:
    _shared(stage, "delays", "clicks")
    stage.query("orders", "shop")
    stage.start("orders")
    run = stage.run("orders")
    stage.launcher.hang_start(run.pk)
    stage.look()
    stage.wait(900)
    row = stage.row("orders")
    assert (row.phase, row.phase_reason) == (Phase.PENDING, Reason.WAITS_THREAD)
    said = _said(stage, "orders")
    assert said.startswith("In this driver, a thread that does not end is still building the query")
    assert "to get a new driver" in said
    assert "this also restarts delays and clicks" in said
    failure = Failure.objects.get()
    assert failure.error_type == "StartTimedOut"
    assert Run.objects.filter(query=row).count() == 1
    assert _locked(stage, "orders")
    assert stage.phase("delays") == Phase.RUNNING
    stop = stage.stop("orders")
    assert stage.phase("orders") == Phase.STOPPING
    stop.refresh_from_db()
    assert stop.outcome == OperationOutcome.OPEN
    stage.launcher.end_run(run.pk)
    stage.look()
    stop.refresh_from_db()
    assert (stage.phase("orders"), stop.outcome) == (Phase.STOPPED, OperationOutcome.DONE)
    assert not _locked(stage, "orders")


def test_a_start_that_never_returns_gets_a_fresh_driver_where_it_is_alone(stage: Stage) -> None:
    stage.query("orders")
    stage.start("orders")
    stage.ready("orders")
    first = stage.run("orders")
    stage.launcher.hang_start(first.pk)
    stage.look()
    stage.wait(1)
    assert stage.driver("orders").end_wanted == Reason.HANGS
    assert stage.launcher.assignment("orders").end
    stage.launcher.leave("orders")
    stage.look()
    stage.wait(5)
    stage.ready("orders")
    stage.commit("orders")
    assert stage.phase("orders") == Phase.RUNNING
    assert (Driver.objects.count(), Failure.objects.count()) == (2, 1)
    first.refresh_from_db()
    assert first.outcome == RunOutcome.FAILED
    asked = Operation.objects.get(query=stage.row("orders"))  # ended with its first attempt
    assert asked.outcome == OperationOutcome.FAILED


def test_the_death_of_the_driver_ends_what_hangs_and_frees_its_checkpoint(stage: Stage) -> None:
    _shared(stage, "orders", "delays")
    stage.stop("orders", StopMode.NOW)
    _hang_stop(stage, "orders")
    stage.launcher.die("shop")
    stage.look()
    assert stage.phase("orders") == Phase.STOPPED
    assert not _locked(stage, "orders")
    stage.wait(2)
    assert stage.phase("delays") == Phase.STARTING
    assert stage.last_run("orders").outcome == RunOutcome.STOPPED
