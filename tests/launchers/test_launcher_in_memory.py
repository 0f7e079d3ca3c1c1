"""What a test can make the double do; what it promises stands in `tests/launchers`."""

from dataclasses import replace

import pytest

from queries.domain.protocol import Assignment, AssignmentEntry, DriverSpec, RunState, Want
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness
from queries.launchers.base import LaunchRefused
from tests.launchers.in_memory import Crash, InMemoryLauncher


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


def _assignment(generation: int, *runs: int) -> Assignment:
    entries = tuple(
        AssignmentEntry(run, f"q{run}", run, run, {}, f"/checkpoints/{run}", "", Want.RUN)
        for run in runs
    )
    return Assignment(generation, 1, entries)


def test_a_driver_takes_its_runs_when_the_test_says_it_is_ready() -> None:
    launcher = InMemoryLauncher()
    launcher.launch(_spec(), _assignment(1, 7), "<allocations/>")
    assert launcher.sight("flights", 1).liveness is Liveness.ALIVE
    assert launcher.sight("flights", 1).status is None
    launcher.ready("flights")
    launcher.commit(7)
    status = launcher.sight("flights", 1).status
    assert status is not None
    assert [(run.state, run.last_batch) for run in status.runs] == [(RunState.RUNNING, 0)]


def test_deaths_orphans_and_vanished_drivers_look_different() -> None:
    launcher = InMemoryLauncher()
    for epoch in (1, 2, 3):
        launcher.launch(_spec(epoch), _assignment(1), "")
    launcher.die("flights", epoch=1)
    launcher.orphan("flights", epoch=2)
    launcher.vanish("flights", epoch=3)
    seen = [launcher.sight("flights", epoch).liveness for epoch in (1, 2, 3)]
    assert seen == [Liveness.EXITED, Liveness.ORPHANED, Liveness.GONE]
    launcher.kill("flights", 2, Reason.GIVEN_UP)
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


def test_a_query_ends_its_driver_at_its_start_or_at_a_batch() -> None:
    launcher = InMemoryLauncher()
    launcher.kills = {"q2": 1}
    launcher.launch(_spec(), _assignment(1, 1, 2), "")
    launcher.ready("flights")
    launcher.commit(2)
    assert launcher.has(1)
    launcher.commit(2)
    gone = launcher.sight("flights", 1)
    assert gone.liveness is Liveness.EXITED
    assert gone.exit is not None
    assert gone.exit.python == "1"
    assert not launcher.has(1)
    launcher.kills = {"q1": "start"}
    launcher.launch(_spec(2), replace(_assignment(2, 1, 2), epoch=2), "")
    launcher.ready("flights")
    assert launcher.sight("flights", 2).liveness is Liveness.EXITED


def test_a_silent_query_starts_and_never_commits_for_an_obliging_driver() -> None:
    launcher = InMemoryLauncher(obliging=True)
    launcher.silent = {"q1"}
    launcher.launch(_spec(), _assignment(1, 1, 2), "")
    status = launcher.sight("flights", 1).status
    assert status is not None
    assert {run.run: run.state for run in status.runs} == {
        1: RunState.STARTING,
        2: RunState.RUNNING,
    }


def test_a_run_that_spark_has_not_started_has_no_time_of_its_start() -> None:
    launcher = InMemoryLauncher()
    launcher.launch(_spec(), _assignment(1, 1), "")
    launcher.ready("flights")
    launcher.not_started(1)
    status = launcher.sight("flights", 1).status
    assert status is not None
    assert status.runs[0].started_at is None
