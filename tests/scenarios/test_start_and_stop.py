"""An operator starts and stops queries, early, late, twice and at once."""

from queries.domain.states import Desired, OperationOutcome, Phase, Reason, RunOutcome, StopMode
from queries.models.drivers import Driver, Run
from queries.models.history import Operation
from queries.services.supervision import application_operations
from queries.services.system import installation
from tests.scenarios.stage import Stage


def outcome(operation: Operation) -> str:
    return Operation.objects.get(pk=operation.pk).outcome


def _neighbours(stage: Stage) -> None:
    """Have two queries, a and b, run in one driver."""
    stage.application("flights")
    stage.query("a", "flights")
    stage.query("b", "flights")
    stage.up("a", "flights")
    stage.start("b")
    stage.commit("b")


def test_a_started_query_is_running_after_its_first_commit(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    assert stage.phase("delays") == Phase.STARTING
    assert outcome(operation) == OperationOutcome.OPEN
    stage.ready("delays")
    assert stage.phase("delays") == Phase.STARTING
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING
    assert outcome(operation) == OperationOutcome.DONE


def test_an_idle_query_is_running_too(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.launcher.idle(stage.run("delays").pk)
    stage.look()
    assert stage.phase("delays") == Phase.RUNNING


def test_a_second_start_returns_the_first_ones_operation(stage: Stage) -> None:
    stage.query("delays")
    first, second = stage.start("delays"), stage.start("delays")
    assert first.uuid == second.uuid
    assert Run.objects.count() == 1


def test_a_graceful_stop_waits_for_the_run_and_ends_the_driver(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    operation = stage.stop("delays")
    assert stage.phase("delays") == Phase.STOPPING
    run = stage.run("delays")
    stage.launcher.end_run(run.pk)
    stage.look()
    assert stage.phase("delays") == Phase.STOPPED
    assert outcome(operation) == OperationOutcome.DONE
    assert stage.last_run("delays").outcome == RunOutcome.STOPPED
    assert stage.launcher.assignment("delays").end
    stage.launcher.leave("delays")
    stage.look()
    driver = stage.driver("delays")
    assert (driver.state, driver.exit_python, driver.exit_jvm) == ("ENDED", "0", "0")
    assert stage.row("delays").application.failures == 0


def test_a_stop_during_start_ends_stopped(stage: Stage) -> None:
    stage.query("delays")
    start = stage.start("delays")
    stop = stage.stop("delays")
    assert outcome(start) == OperationOutcome.SUPERSEDED
    stage.launcher.obliging = True
    stage.launcher.ready("delays")
    stage.look()
    stage.wait(3)
    assert stage.phase("delays") == Phase.STOPPED
    assert outcome(stop) == OperationOutcome.DONE
    assert stage.launcher.living() == []


def test_a_start_during_stop_ends_running_in_a_new_run(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    first = stage.run("delays")
    stage.stop("delays")
    stage.start("delays")
    assert stage.phase("delays") == Phase.STOPPING
    stage.launcher.obliging = True
    stage.launcher.leave("delays")
    stage.look()
    stage.wait(3)
    assert stage.phase("delays") == Phase.RUNNING
    assert stage.run("delays").epoch > first.epoch


def test_a_driver_that_does_not_stop_is_pressed_and_at_last_killed(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.hang("delays")
    stage.stop("delays", StopMode.NOW)
    stage.wait(300)
    verbs = [call.verb for call in stage.launcher.calls]
    assert "terminate" in verbs
    assert "kill" in verbs
    assert stage.phase("delays") == Phase.STOPPED
    assert stage.driver("delays").exit_jvm == "SIGKILL"


def test_a_neighbours_run_is_untouched_by_stop_and_start(stage: Stage) -> None:
    _neighbours(stage)
    neighbour, driver = stage.run("b").pk, stage.driver("flights").pk
    stage.stop("a")
    stage.launcher.end_run(stage.run("a").pk)
    stage.look()
    assert stage.phase("a") == Phase.STOPPED
    stage.start("a")
    stage.commit("a")
    assert stage.phase("a") == Phase.RUNNING
    assert stage.run("b").pk == neighbour
    assert stage.driver("flights").pk == driver


def test_a_restart_of_a_query_alone_is_a_fresh_driver_on_the_newest_revision(stage: Stage) -> None:
    query = stage.query("delays")
    stage.up("delays")
    old = stage.driver("delays")
    spec = query.revisions.get().spec
    query.revisions.create(number=2, kind="sql", spec=spec, author="ada", created_at=stage.now)
    operation = stage.restart("delays")
    stage.launcher.leave("delays")
    stage.look()
    stage.wait(1)
    stage.ready("delays")
    stage.commit("delays")
    assert stage.driver("delays").epoch > old.epoch
    assert stage.run("delays").revision.number == 2
    assert stage.run("delays").actor == "olga"
    assert outcome(operation) == OperationOutcome.DONE


def test_a_restart_of_an_application_is_the_cause_of_its_queries_next_runs(stage: Stage) -> None:
    _neighbours(stage)
    application_operations.request_application_restart(
        application=stage.row("a").application, actor="ada", now=stage.now
    )
    stage.settle()
    for name in ("a", "b"):
        stage.launcher.end_run(stage.run(name).pk)
    stage.look()
    stage.wait(3)
    stage.launcher.leave("flights")
    stage.look()
    stage.wait(1)
    stage.ready("flights")
    for name in ("a", "b"):
        stage.commit(name)
        assert stage.run(name).cause == Reason.ASKED_RESTART


def test_an_available_now_query_completes_and_stays_so(stage: Stage) -> None:
    stage.query("backfill", trigger={"kind": "available_now"})
    operation = stage.start("backfill")
    stage.ready("backfill")
    stage.commit("backfill")
    stage.launcher.end_run(stage.run("backfill").pk)
    stage.look()
    row = stage.row("backfill")
    assert (row.phase, row.desired) == (Phase.COMPLETED, Desired.STOPPED)
    assert outcome(operation) == OperationOutcome.DONE
    stage.launcher.leave("backfill")
    stage.wait(10)
    assert stage.phase("backfill") == Phase.COMPLETED
    assert Driver.objects.count() == 1


def test_the_whole_installation_stops_without_changing_what_is_wanted(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.obliging = True
    installation.request_shutdown(now=stage.now)
    stage.look()
    stage.launcher.leave("delays")
    stage.look()
    row = stage.row("delays")
    assert (row.desired, row.phase) == (Desired.RUNNING, Phase.PENDING)
    assert row.application.failures == 0
    installation.resume(now=stage.now)
    stage.wait(2)
    assert stage.phase("delays") == Phase.RUNNING
    assert stage.last_run("delays").cause == Reason.RESUMED


def test_a_third_driver_waits_for_a_start_slot_and_says_so(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        stage.query(name)
        stage.start(name)
    assert stage.phase("c") == Phase.PENDING
    assert "2 of 2 drivers are starting" in stage.row("c").phase_detail.text
    stage.ready("a")
    stage.wait(2)
    assert stage.phase("c") == Phase.STARTING
