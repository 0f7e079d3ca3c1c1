"""A start that fails says so at once, to people and to CI, whatever is tried afterwards."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.states import OperationOutcome, Phase, Reason, RunOutcome, StopMode
from queries.models.applications import Application
from queries.models.history import Failure, Operation, Transition
from queries.services.supervision.application_operations import request_application_restart
from tests.scenarios.stage import BROKEN_PIPE, NO_SUCH_SOURCE, Stage


def steps(page: str) -> dict[str, str]:
    """Return the steps of a query's newest operation: label -> done, now, todo or failed."""
    return {
        label: state for state, label in re.findall(r'<li class="way-(\w+)">([^<]+)</li>', page)
    }


def fresh(operation: Operation) -> Operation:
    operation.refresh_from_db()
    return operation


def test_the_first_failed_attempt_ends_the_start_and_names_the_failure(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", BROKEN_PIPE)
    assert fresh(operation).outcome == OperationOutcome.FAILED
    assert operation.ended_at == stage.now
    assert operation.failure == Failure.objects.get()
    assert "Connection refused" in operation.detail.text
    assert "It was retried immediately." in operation.detail.text
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING, "the query is retried all the same"
    assert fresh(operation).outcome == OperationOutcome.FAILED


def test_a_later_attempt_is_announced_with_its_time(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", BROKEN_PIPE)
    stage.fail("delays", BROKEN_PIPE)
    assert stage.phase("delays") == Phase.BACKOFF
    operation = stage.restart("delays")
    stage.launcher.leave("delays")
    stage.wait(2)
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "held", holder_pid=4711)
    stage.look()
    assert fresh(operation).outcome == OperationOutcome.FAILED
    assert "4711" in operation.detail.text


def test_a_refused_start_ends_as_failed(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "held", holder_pid=4711)
    stage.look()
    assert fresh(operation).outcome == OperationOutcome.FAILED
    assert operation.failure is not None
    assert "4711" in operation.detail.text


def test_a_session_that_cannot_be_built_ends_the_start_with_its_failure(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.launcher.session_fails("delays", NO_SUCH_SOURCE)
    stage.look()
    assert fresh(operation).outcome == OperationOutcome.FAILED
    assert operation.failure == Failure.objects.get()


def test_a_driver_that_dies_during_the_start_ends_it(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.launcher.die("delays", python="1")
    stage.look()
    assert fresh(operation).outcome == OperationOutcome.FAILED
    assert operation.failure == Failure.objects.get(run=None)
    assert "Python exited with 1" in operation.detail.text


def test_the_end_of_the_old_run_does_not_fail_a_restart(stage: Stage) -> None:
    stage.application("flights")
    stage.query("delays", "flights")
    stage.query("other", "flights")
    stage.up("delays", "flights")
    operation = stage.restart("delays")
    stage.launcher.fail_run(stage.run("delays").pk, BROKEN_PIPE)
    stage.look()
    assert fresh(operation).outcome == OperationOutcome.OPEN
    stage.commit("delays")
    assert fresh(operation).outcome == OperationOutcome.DONE


def test_a_start_that_is_over_is_not_failed_by_a_later_failure(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.ready("delays")
    stage.commit("delays")
    stage.fail("delays", BROKEN_PIPE)
    assert fresh(operation).outcome == OperationOutcome.DONE


def test_a_stop_is_done_however_the_run_ends(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    operation = stage.stop("delays", StopMode.NOW)
    stage.launcher.fail_run(stage.run("delays").pk, BROKEN_PIPE)
    stage.look()
    assert fresh(operation).outcome == OperationOutcome.DONE


def test_a_restart_of_the_application_fails_with_the_first_query_that_does(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    operation = request_application_restart(
        application=Application.objects.get(), actor="olga", now=stage.now
    )
    stage.settle()
    stage.launcher.leave("delays")
    stage.wait(2)
    stage.ready("delays")
    stage.fail("delays", BROKEN_PIPE)
    assert fresh(operation).outcome == OperationOutcome.FAILED
    assert operation.failure == Failure.objects.get()


@pytest.mark.sql("queries.selectors.supervision.history.first_attempt")
@pytest.mark.parametrize(("started", "step"), [(True, "Running"), (False, "Launching")])
def test_the_step_in_red_is_the_one_that_failed(
    client: Client, viewer: User, stage: Stage, started: bool, step: str
) -> None:
    client.force_login(viewer)
    stage.now = timezone.now()
    stage.query("delays")
    operation = stage.start("delays")
    stage.launcher.ready("delays")
    if not started:
        stage.launcher.not_started(stage.run("delays").pk)
    stage.look()
    stage.fail("delays", NO_SUCH_SOURCE)
    page = client.get("/queries/delays/").content.decode()
    assert steps(page)[step] == "failed"
    assert steps(page)["Requested"] == "done"
    page = client.get(f"/operations/{operation.uuid}/").content.decode()
    assert f"/failures/{Failure.objects.get().pk}/" in page


def test_ci_reads_the_failure_from_the_operation(
    client: Client, viewer: User, stage: Stage
) -> None:
    client.force_login(viewer)
    stage.query("delays")
    operation = stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", BROKEN_PIPE)
    body = client.get(f"/api/v1/operations/{operation.uuid}/").json()
    failure = Failure.objects.get().pk
    assert (body["outcome"], body["failure"]) == ("FAILED", failure)
    assert body["links"]["failure"] == f"/api/v1/failures/{failure}/"


def test_a_start_that_passes_its_deadline_has_failed_and_nobody_asked_for_a_restart(
    stage: Stage,
) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.launcher.ready("delays")
    run = stage.run("delays")
    stage.launcher.not_started(run.pk)
    stage.look()
    stage.wait(181)
    row = stage.row("delays")
    assert (row.phase, row.phase_reason) == (Phase.STOPPING, Reason.START_TIMED_OUT)
    assert "did not advance for 180 s" in row.phase_detail.text
    stage.launcher.end_run(run.pk)
    stage.look()
    run.refresh_from_db()
    assert run.outcome == RunOutcome.FAILED
    assert Failure.objects.get().error_type == "StartTimedOut"
    assert stage.run("delays").cause == Reason.RETRY_DUE
    assert fresh(operation).outcome == OperationOutcome.FAILED


def test_a_driver_that_passes_the_start_deadline_says_so_on_each_of_its_queries(
    stage: Stage,
) -> None:
    stage.query("delays")
    stage.start("delays")
    run = stage.run("delays")
    stage.wait(181)
    row = stage.row("delays")
    assert (row.phase, row.phase_reason) == (Phase.STOPPING, Reason.START_TIMED_OUT)
    stage.launcher.die("delays", python="SIGKILL")
    stage.look()
    run.refresh_from_db()
    assert run.outcome == RunOutcome.DRIVER_ENDED
    assert stage.driver("delays").state_reason in (Reason.START_TIMED_OUT, Reason.LAUNCHED)
    assert "restart" not in " ".join(
        Transition.objects.filter(query=row).values_list("reason", flat=True)
    )
