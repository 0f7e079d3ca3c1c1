"""A worker dies in the middle of a step: the next look finishes it, once."""

import pytest
from django.conf import settings

from queries.domain.protocol import Assignment, DriverSpec
from queries.domain.states import DriverState, Phase
from queries.domain.supervision.observation import Liveness, Sighting
from queries.models.drivers import Driver, Run
from queries.services.supervision.reconcile import reconcile
from tests.launchers.in_memory import Crash
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.sql


@pytest.mark.parametrize("switch", ["crash_before", "crash_after"])
def test_a_worker_that_dies_launching_leaves_one_driver(stage: Stage, switch: str) -> None:
    stage.query("delays")
    getattr(stage.launcher, switch).add("launch")
    with pytest.raises(Crash):
        stage.start("delays")
    stage.wait(2)
    stage.ready("delays")
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING
    assert (Driver.objects.count(), Run.objects.count()) == (1, 1)
    assert len(stage.launcher.living()) == 1


@pytest.mark.parametrize("switch", ["crash_before", "crash_after"])
def test_a_worker_that_dies_assigning_loses_no_stop(stage: Stage, switch: str) -> None:
    stage.application("flights")
    stage.query("a", "flights")
    stage.query("b", "flights")
    stage.up("a", "flights")
    stage.start("b")
    stage.commit("b")
    getattr(stage.launcher, switch).add("assign")
    with pytest.raises(Crash):
        stage.stop("a")
    stage.wait(2)
    assert stage.launcher.assignment("flights").queries[0].want == "DRAIN"
    stage.launcher.end_run(stage.run("a").pk)
    stage.look()
    assert stage.phase("a") == Phase.STOPPED
    assert stage.phase("b") == Phase.RUNNING


def test_a_launch_completed_by_a_second_worker_says_what_the_first_one_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has written the files, its shim has not yet taken them: a sweep comes by."""
    stage.query("delays")
    stage.start("delays")
    run = stage.run("delays").pk
    told = []
    half = Sighting(Liveness.ABSENT, assignment_generation=1)
    monkeypatch.setattr(stage.launcher, "sight", lambda *_, **__: half)
    monkeypatch.setattr(stage.launcher, "launch", lambda spec, said, pools: told.append(said))
    stage.look()
    assert [[entry.run for entry in said.queries] for said in told] == [[run]]


def _launch_half(stage: Stage) -> Driver:
    """Let a worker die after the driver's row, before its process; return the row."""
    stage.application("flights", python_path=["/code"])
    stage.query("delays", "flights")
    stage.launcher.crash_before.add("launch")
    with pytest.raises(Crash):
        stage.start("delays")
    return Driver.objects.get()


def test_a_launch_is_completed_with_the_code_that_it_was_begun_with(stage: Stage) -> None:
    driver = _launch_half(stage)
    stage.launcher.code_version = "2"  # somebody edits a file meanwhile
    stage.wait(5)
    spec = stage.launcher.spec("flights")
    assert spec.code_sha256 == driver.code_sha256
    assert all(driver.code_sha256 in root for root in spec.code_roots)
    assert len(spec.code_roots) == 1


def test_a_launch_whose_code_is_gone_copies_it_anew_where_it_is_the_same(stage: Stage) -> None:
    driver = _launch_half(stage)
    stage.launcher.lose_code()
    stage.wait(5)
    assert stage.launcher.spec("flights").code_sha256 == driver.code_sha256


def test_a_launch_whose_code_is_gone_and_differs_says_so_and_a_start_runs_todays(
    stage: Stage,
) -> None:
    driver = _launch_half(stage)
    stage.launcher.lose_code()
    stage.launcher.code_version = "2"
    stage.wait(5)
    assert stage.phase("delays") == Phase.FAILED
    assert "is gone, and the files have changed" in stage.row("delays").phase_detail.text
    driver.refresh_from_db()
    assert driver.ended_at is not None
    stage.start("delays")
    stage.ready("flights")
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING
    assert stage.driver("flights").code_sha256 != driver.code_sha256


def test_of_two_workers_on_one_application_one_wins(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    application = stage.row("delays").application
    seen = stage.launcher.freeze_code

    def another_comes_first(roots: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        monkeypatch.setattr(stage.launcher, "freeze_code", seen)
        assert reconcile(application.pk, launcher=stage.launcher, now=stage.now)
        return seen(roots)

    monkeypatch.setattr(stage.launcher, "freeze_code", another_comes_first)
    stage.start("delays")
    assert Driver.objects.count() == 1
    assert len(stage.launcher.epochs("delays")) == 1


@pytest.mark.guarantee("G-FENCE-2")
def test_a_worker_that_sleeps_between_a_row_and_its_process_starts_nothing_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps beyond the start's deadline; the others have given the driver up meanwhile."""
    stage.query("delays")
    launch = stage.launcher.launch

    def sleeps(spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        monkeypatch.setattr(stage.launcher, "launch", _nothing)
        stage.wait(settings.START_DEADLINE_S + 20)
        monkeypatch.setattr(stage.launcher, "launch", launch)
        launch(spec, assignment, pools_xml)

    monkeypatch.setattr(stage.launcher, "launch", sleeps)
    stage.start("delays")
    first = Driver.objects.order_by("epoch")[0]
    assert (first.state, first.exit_python) == (DriverState.ENDED, "UNKNOWN")
    stage.pause("delays")
    stage.look()
    stage.ready("delays")
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING
    assert stage.launcher.living() == [("delays", stage.driver("delays").epoch)]
    assert stage.driver("delays").epoch > first.epoch


def _nothing(*_: object) -> None:
    """Another worker that dies before it does anything."""


def test_a_driver_that_is_refused_to_one_worker_is_not_started_by_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sleeps before its launch; another finds no Java and gives up; then there is Java."""
    stage.query("delays")
    launch = stage.launcher.launch

    def sleeps(spec: DriverSpec, assignment: Assignment, pools_xml: str) -> None:
        monkeypatch.setattr(stage.launcher, "launch", launch)
        stage.launcher.refusal = "No Java was found."
        stage.wait(2)
        stage.launcher.refusal = ""
        launch(spec, assignment, pools_xml)

    monkeypatch.setattr(stage.launcher, "launch", sleeps)
    stage.start("delays")
    assert stage.phase("delays") == Phase.FAILED
    assert stage.launcher.living() == []


def test_a_driver_that_is_not_wanted_any_more_before_it_was_spawned_never_is(stage: Stage) -> None:
    stage.query("delays")
    stage.launcher.crash_before.add("launch")
    with pytest.raises(Crash):
        stage.start("delays")
    stage.stop("delays")
    stage.wait(2)
    assert stage.phase("delays") == Phase.STOPPED
    assert stage.driver("delays").state == DriverState.ENDED
    assert "launch" not in [call.verb for call in stage.launcher.calls[1:]]
