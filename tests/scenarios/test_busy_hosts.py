"""A busy host: what is slow and healthy is left alone, and nothing is started that can wait."""

import pytest

from queries import host_pressure
from queries.domain.hosts import Pressure
from queries.domain.states import OperationOutcome, Phase, Reason
from queries.models.applications import Application
from queries.models.drivers import Driver
from queries.services.checkpoints.storage_jvms import NoStorage, storage_of
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

BUSY = Pressure(share=99.0, load=90.0, cores=2)
MINUTE = 60


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this host be busy."""
    monkeypatch.setattr(host_pressure, "read_pressure", lambda: BUSY)


def outcome(operation: object) -> str:
    """Return the outcome of an operation now."""
    operation.refresh_from_db()  # type: ignore[attr-defined]
    return str(operation.outcome)  # type: ignore[attr-defined]


def launches(stage: Stage) -> int:
    """Return how many drivers were launched."""
    return sum(call.verb == "launch" for call in stage.launcher.calls)


@pytest.mark.guarantee("G-START-1")
def test_a_start_that_advances_for_twenty_minutes_is_waited_for_and_so_is_its_operation(
    stage: Stage,
) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    for _ in range(20):
        stage.launcher.works("delays", cpu_s=2.5)
        stage.wait(MINUTE)
    assert launches(stage) == 1
    assert (stage.phase("delays"), outcome(operation)) == (Phase.STARTING, OperationOutcome.OPEN)
    stage.launcher.ready("delays")
    stage.launcher.commit(stage.run("delays").pk)
    stage.look("delays")
    assert (stage.phase("delays"), outcome(operation)) == (Phase.RUNNING, OperationOutcome.DONE)


@pytest.mark.guarantee("G-START-1")
def test_no_start_takes_longer_than_the_maximum_however_it_advances(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    for _ in range(31):
        stage.launcher.works("delays", cpu_s=60)
        stage.wait(MINUTE)
    first = Driver.objects.earliest("epoch")
    assert (first.end_wanted, first.exit_python) == (Reason.START_TIMED_OUT, "SIGKILL")
    assert launches(stage) == 2
    assert outcome(operation) == OperationOutcome.FAILED


def test_an_operation_that_waits_for_a_source_still_times_out(stage: Stage) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.launcher.ready("delays")
    stage.look("delays")
    stage.wait(11 * MINUTE)
    assert stage.phase("delays") == Phase.STARTING
    assert outcome(operation) == OperationOutcome.TIMED_OUT


def test_on_a_busy_host_the_first_batch_may_take_longer_than_an_operation(
    stage: Stage, busy: None
) -> None:
    stage.query("delays")
    operation = stage.start("delays")
    stage.launcher.ready("delays")
    stage.look("delays")
    stage.wait(11 * MINUTE)
    assert outcome(operation) == OperationOutcome.OPEN
    assert "This host is busy" in stage.row("delays").phase_detail.text
    stage.wait(30 * MINUTE)
    assert outcome(operation) == OperationOutcome.TIMED_OUT


def test_on_a_busy_host_a_driver_that_starts_keeps_its_slot(
    stage: Stage, busy: None, settings: object
) -> None:
    settings.STARTS_AT_ONCE = 1  # type: ignore[attr-defined]
    stage.query("delays")
    stage.query("other")
    stage.start("delays")
    operation = stage.start("other")
    for _ in range(12):
        stage.launcher.works("delays", cpu_s=2.5)
        stage.wait(MINUTE)
    assert launches(stage) == 1
    assert stage.row("other").phase_reason == Reason.WAITS_SLOT
    assert outcome(operation) == OperationOutcome.OPEN
    stage.launcher.ready("delays")
    stage.wait(2)
    assert launches(stage) == 2


def test_on_a_busy_host_no_storage_jvm_starts_beside_a_driver_that_starts(
    stage: Stage, busy: None
) -> None:
    stage.query("delays")
    stage.start("delays")
    row = Application.objects.get()
    with pytest.raises(NoStorage, match=r"a driver is starting on this busy host \(load 90 on 2"):
        storage_of(row, launcher=stage.launcher, now=stage.now)
    assert Driver.objects.count() == 1
