"""The double promises what the real launcher promises."""

import pytest

from queries.domain.protocol import Assignment, AssignmentEntry, DriverSpec, RunState, Want
from queries.domain.supervision.observation import Liveness
from queries.launchers.base import Launcher, LaunchRefused
from queries.launchers.in_memory import Crash, InMemoryLauncher


def _spec(epoch: int = 1) -> DriverSpec:
    return DriverSpec(
        driver=epoch,
        epoch=epoch,
        application="flights",
        installation="here",
        host="one",
        master="local[2]",
        memory="1g",
        conf={},
        env={},
        code_roots=(),
        code_sha256="",
        scheduler_mode="FAIR",
        listeners=(),
        redis_url="",
        stream="",
    )


def _assignment(generation: int, *runs: int, want: Want = Want.RUN) -> Assignment:
    entries = tuple(
        AssignmentEntry(run, f"q{run}", run, run, {}, f"/checkpoints/{run}", "", want)
        for run in runs
    )
    return Assignment(generation, 1, entries)


def test_a_driver_takes_its_runs_when_the_test_says_it_is_ready() -> None:
    launcher: Launcher = (double := InMemoryLauncher())
    launcher.launch(_spec(), _assignment(1, 7), "<allocations/>")
    assert launcher.sight("flights", 1).liveness is Liveness.ALIVE
    assert launcher.sight("flights", 1).status is None
    double.ready("flights")
    double.commit(7)
    status = launcher.sight("flights", 1).status
    assert status is not None
    assert [(run.state, run.last_batch) for run in status.runs] == [(RunState.RUNNING, 0)]
    assert launcher.holder("/checkpoints/7") == status.jvm_pid


def test_an_assignment_of_a_lower_generation_changes_nothing() -> None:
    launcher = InMemoryLauncher()
    launcher.launch(_spec(), _assignment(5, 7), "")
    launcher.assign("flights", _assignment(4))
    assert launcher.assignment("flights").generation == 5


def test_a_second_launch_of_an_epoch_starts_nothing() -> None:
    launcher = InMemoryLauncher()
    launcher.launch(_spec(), _assignment(1), "")
    first = launcher.sight("flights", 1).ident
    launcher.launch(_spec(), _assignment(1), "")
    assert launcher.sight("flights", 1).ident == first


def test_an_ended_run_stays_until_the_assignment_drops_it() -> None:
    launcher = InMemoryLauncher(obliging=True)
    launcher.launch(_spec(), _assignment(1, 7), "")
    launcher.assign("flights", _assignment(2, 7, want=Want.STOP))
    status = launcher.sight("flights", 1).status
    assert status is not None
    assert [run.state for run in status.runs] == [RunState.ENDED]
    launcher.assign("flights", _assignment(3))
    status = launcher.sight("flights", 1).status
    assert status is not None
    assert status.runs == ()


def test_deaths_orphans_and_vanished_drivers_look_different() -> None:
    launcher = InMemoryLauncher()
    for epoch in (1, 2, 3):
        launcher.launch(_spec(epoch), _assignment(1), "")
    launcher.die("flights", epoch=1)
    launcher.orphan("flights", 99, epoch=2)
    launcher.vanish("flights", epoch=3)
    seen = [launcher.sight("flights", epoch).liveness for epoch in (1, 2, 3)]
    assert seen == [Liveness.EXITED, Liveness.ORPHANED, Liveness.GONE]
    launcher.kill("flights", 2)
    assert launcher.sight("flights", 2).liveness is Liveness.GONE


def test_switches_refuse_a_launch_and_kill_the_worker_in_the_middle() -> None:
    launcher = InMemoryLauncher()
    launcher.refusal = "no space"
    with pytest.raises(LaunchRefused, match="no space"):
        launcher.launch(_spec(), _assignment(1), "")
    launcher.refusal = ""
    launcher.crash_after = {"launch"}
    with pytest.raises(Crash):
        launcher.launch(_spec(), _assignment(1), "")
    assert launcher.epochs("flights") == (1,)
