"""Queries fail and drivers die; what comes back by itself, what waits, and what is told."""

from datetime import timedelta

from queries.domain.states import GroupStatus, OperationOutcome, Phase, Reason, RunOutcome
from queries.models.applications import Application
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, FailureGroup, Operation, Transition
from queries.services import failures
from queries.services.supervision import operations
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE, Stage


def test_a_first_failure_is_retried_at_once_in_the_living_driver(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    driver = stage.driver("delays").pk
    stage.fail("delays", BROKEN_PIPE, batch=7)
    assert stage.phase("delays") == Phase.STARTING
    assert stage.run("delays").driver_id == driver
    assert stage.run("delays").cause == Reason.RETRY_DUE
    failure = Failure.objects.get()
    assert (failure.policy, failure.batch, failure.attempt) == ("RETRY", 7, 1)


def test_later_failures_wait_longer_and_are_retried_for_ever(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    waits = []
    for _ in range(12):
        stage.fail("delays", BROKEN_PIPE, batch=7)
        row = stage.row("delays")
        if row.next_attempt_at is not None:
            assert row.phase == Phase.BACKOFF
            waits.append((row.next_attempt_at - stage.now).total_seconds())
            stage.now = row.next_attempt_at
            stage.settle()
        assert stage.phase("delays") == Phase.STARTING
    assert waits == sorted(waits[:7]) + waits[7:]
    assert 4 <= waits[0] <= 6
    assert 240 <= waits[-1] <= 360
    assert Driver.objects.count() == 1


def test_ten_healthy_minutes_forget_earlier_failures(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", BROKEN_PIPE)
    stage.commit("delays")
    stage.wait(300)
    assert stage.row("delays").failures == 1
    stage.wait(310)
    assert stage.row("delays").failures == 0


def test_the_same_error_on_the_same_batch_three_times_is_broken(stage: Stage) -> None:
    stage.query("recovery")
    stage.start("recovery")
    stage.ready("recovery")
    for _ in range(3):
        stage.wait(10)
        assert stage.phase("recovery") == Phase.STARTING
        stage.fail("recovery", DIVIDE, batch=4)
    row = stage.row("recovery")
    assert row.phase == Phase.ON_HOLD
    assert "DIVIDE_BY_ZERO" in row.phase_detail.text
    group = FailureGroup.objects.get()
    assert (group.count, group.status) == (3, GroupStatus.OPEN)
    assert Operation.objects.get().outcome == OperationOutcome.FAILED


def test_a_broken_query_is_probed_and_mends_itself_when_the_batch_commits(stage: Stage) -> None:
    test_the_same_error_on_the_same_batch_three_times_is_broken(stage)
    stage.launcher.leave("recovery")
    stage.wait(60)
    assert stage.phase("recovery") == Phase.ON_HOLD
    stage.wait(1800)
    assert stage.run("recovery").cause == Reason.PROBE
    stage.ready("recovery")
    stage.fail("recovery", DIVIDE, batch=4)
    assert stage.phase("recovery") == Phase.ON_HOLD
    stage.launcher.leave("recovery")
    stage.wait(1810)
    stage.ready("recovery")
    stage.commit("recovery")
    row = stage.row("recovery")
    assert (row.phase, row.restart_block, row.failures) == (Phase.RUNNING, "", 0)


def test_a_start_of_a_broken_query_clears_the_counters_and_reopens_the_group(stage: Stage) -> None:
    test_the_same_error_on_the_same_batch_three_times_is_broken(stage)
    failures.resolve_group(group=FailureGroup.objects.get(), actor="olga", now=stage.now)
    stage.start("recovery")
    assert stage.row("recovery").failures == 0
    stage.launcher.leave("recovery")
    stage.wait(3)
    if stage.driver("recovery").state == "STARTING":
        stage.ready("recovery")
    stage.fail("recovery", DIVIDE, batch=4)
    group = FailureGroup.objects.get()
    assert (group.count, group.status) == (4, GroupStatus.OPEN)
    assert group.regressed_at == stage.now
    assert stage.phase("recovery") == Phase.STARTING


def test_another_batch_in_between_is_no_poison(stage: Stage) -> None:
    stage.query("recovery")
    stage.start("recovery")
    stage.ready("recovery")
    for batch in (4, 4, 5, 5, 6):
        stage.fail("recovery", DIVIDE, batch=batch)
        assert stage.phase("recovery") in {Phase.BACKOFF, Phase.STARTING}
        stage.pause("recovery")
    assert stage.phase("recovery") == Phase.STARTING


def test_a_fatal_error_waits_for_a_person_and_says_the_way_out(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    row = stage.row("delays")
    assert row.phase == Phase.FAILED
    assert row.next_attempt_at is None
    assert Operation.objects.get(pk=operation.pk).outcome == OperationOutcome.FAILED
    stage.wait(3600)
    assert stage.phase("delays") == Phase.FAILED
    assert Run.objects.count() == 1
    assert stage.launcher.assignment("delays").end


def test_a_killed_driver_is_replaced_at_once_with_a_new_epoch(stage: Stage) -> None:
    stage.query("delays")
    stage.query("bystander")
    stage.up("delays")
    stage.up("bystander")
    other = stage.run("bystander").pk
    old = stage.driver("delays")
    stage.launcher.die("delays", python="SIGKILL", jvm="SIGKILL")
    stage.look()
    assert Driver.objects.get(pk=old.pk).exit_python == "SIGKILL"
    assert stage.last_run("delays").driver.epoch > old.epoch
    assert Run.objects.get(driver=old).outcome == RunOutcome.DRIVER_ENDED
    failure = Failure.objects.get()
    assert failure.run is None
    assert failure.group.query is None
    assert stage.row("delays").failures == 0
    assert stage.row("delays").application.failures == 1
    assert stage.run("bystander").pk == other


def test_a_driver_that_keeps_dying_climbs_the_applications_ladder(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    for _ in range(3):
        stage.launcher.die("delays", python="1", jvm="0")
        stage.look()
        row = Application.objects.get()
        if row.next_attempt_at:
            assert stage.phase("delays") == Phase.BACKOFF
            assert stage.row("delays").phase_reason == Reason.DRIVER_DIED
            stage.now = row.next_attempt_at
            stage.settle()
    assert Application.objects.get().failures == 3
    assert Driver.objects.count() == 4


def test_a_driver_gone_without_a_word_has_an_unknown_exit(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    old = stage.driver("delays")
    stage.launcher.vanish("delays")
    stage.look()
    gone = Driver.objects.get(pk=old.pk)
    assert (gone.exit_python, gone.exit_jvm) == ("UNKNOWN", "UNKNOWN")
    assert stage.phase("delays") == Phase.STARTING


def test_an_orphaned_jvm_is_killed_before_anything_starts(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.orphan("delays")
    stage.look()
    assert stage.launcher.calls[-1].verb == "kill"
    assert len(stage.launcher.epochs("delays")) == 1
    stage.wait(2)
    assert len(stage.launcher.epochs("delays")) == 2


def test_a_silent_host_loses_nothing_and_starts_nothing(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.elsewhere = True
    stage.look()
    assert stage.phase("delays") == Phase.UNREACHABLE
    stage.wait(600)
    assert Driver.objects.count() == 1
    stage.launcher.elsewhere = False
    stage.look()
    assert stage.phase("delays") == Phase.RUNNING


def test_a_held_checkpoint_is_waited_for_naming_the_holder(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "held", holder_pid=4711)
    stage.look()
    stage.launcher.refuse(stage.run("delays").pk, "held", holder_pid=4711)
    stage.look()
    row = stage.row("delays")
    assert (row.phase, row.phase_reason) == (Phase.BACKOFF, Reason.WAITS_LOCK)
    assert "4711" in row.phase_detail.text
    stage.wait(10)
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING


def test_a_strangers_checkpoint_waits_for_an_author(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "foreign")
    stage.look()
    assert stage.phase("delays") == Phase.FAILED
    stage.launcher.obliging = True
    operations.confirm_takeover(query=stage.row("delays"), actor="ada", now=stage.now)
    stage.wait(60)
    assert stage.phase("delays") == Phase.RUNNING
    assert Checkpoint.objects.get().takeover_at is None, "one confirmation is one takeover"


def test_an_end_that_nobody_asked_for_is_retried(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.launcher.end_run(stage.run("delays").pk)
    stage.look()
    assert stage.phase("delays") == Phase.STARTING
    assert Failure.objects.get().policy == "RETRY"


def test_one_failure_ends_all_where_the_application_says_so(stage: Stage) -> None:
    stage.application("flights", failure_scope="application")
    stage.query("a", "flights")
    stage.query("b", "flights")
    stage.up("a", "flights")
    stage.start("b")
    stage.commit("b")
    old = stage.driver("flights")
    stage.fail("a", BROKEN_PIPE)
    assert stage.phase("b") == Phase.STOPPING
    stage.launcher.leave("flights")
    stage.look()
    stage.wait(1)
    assert stage.driver("flights").epoch > old.epoch
    assert {stage.phase("a"), stage.phase("b")} == {Phase.STARTING}
    assert Failure.objects.count() == 1


def test_a_session_that_cannot_be_built_fails_the_application(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.launcher.session_fails("delays", NO_SUCH_SOURCE)
    stage.look()
    assert stage.phase("delays") == Phase.FAILED
    assert Application.objects.get().restart_block == "FAILED"
    stage.wait(600)
    assert Driver.objects.count() == 1
    stage.start("delays")
    assert Driver.objects.count() == 2


def test_a_driver_that_never_comes_up_is_killed_and_retried(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.wait(190)
    assert Driver.objects.count() == 2
    failure = Failure.objects.get()
    assert "not up in time" in failure.root_cause


def test_every_change_of_phase_leaves_its_reason(stage: Stage) -> None:
    test_a_killed_driver_is_replaced_at_once_with_a_new_epoch(stage)
    for row in Transition.objects.filter(subject="phase"):
        assert row.reason
    assert stage.phases("delays")[:4] == ["STARTING", "RUNNING", "PENDING", "STARTING"]
    assert stage.now - timedelta(hours=1) < Transition.objects.order_by("pk")[0].at
