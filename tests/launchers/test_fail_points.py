"""A worker or a shim that is killed between any two steps of a launch or of an exit.

The driver here finds a Java that cannot run, so it ends by itself with a code of its own; nothing
of Spark is started.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from controlplane import fail_points
from headgate_ground import identities
from headgate_ground.files import is_locked
from queries.domain.protocol import Assignment, DriverSpec
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness, Sighting
from queries.driver_folder import read_current
from queries.launchers.process import sighting
from queries.launchers.process.launcher import LocalProcessLauncher
from tests.killed import killed_at
from tests.launchers.test_contract import HANGS

T = TypeVar("T")
LIMIT_S = 120  # generous: a loaded machine must not fail a test
SESSION_FAILED = "70"


class Launch:
    """One driver that is launched, killed at a point of the launch, and launched again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.launcher = LocalProcessLauncher(home / "drivers", home / "code")
        self.directory = self.launcher.directory("app", 1)
        self.most = 0  # drivers that lived at once

    def launch(self, *, standby: bool = False) -> None:
        spec = DriverSpec(
            driver=1,
            epoch=1,
            application="app",
            installation="here",
            host="test-host",
            master="local[1]",
            memory="512m",
            conf={},
            env={},
            code_roots=(),
            code_sha256="",
            scheduler_mode="FIFO",
            listeners=(),
            redis_url="redis://127.0.0.1:9/0",  # nobody listens: the sweep finds the exit
            stream="events",
            env_allowlist=(fail_points.ENVIRONMENT,),
            standby=standby,
        )
        generation = 0 if standby else 1
        self.launcher.launch(spec, Assignment(generation, epoch=1), "<allocations/>")

    def sight(self) -> Sighting:
        self.most = max(self.most, sum(map(_leads, sighting.processes_of(self.directory))))
        return self.launcher.sight("app", 1)

    def wait(self, *wanted: Liveness) -> Sighting:
        """Return the first sighting of one of these kinds."""
        return wait_for(lambda: seen if (seen := self.sight()).liveness in wanted else None)


def _leads(process: tuple[int, int]) -> bool:
    """Whether a process is a driver's Python, the first of its session, and none that it forks."""
    pid, _ = process
    try:
        first = os.getsid(pid) == pid
    except ProcessLookupError:
        return False
    return first and "queries.runtime.main" in identities.command_line(pid)


def wait_for(look: Callable[[], T | None]) -> T:
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if (found := look()) is not None:
            return found
        time.sleep(0.05)  # another process's files and ends: there is no event to wait for
    raise AssertionError(f"not within {LIMIT_S} s")


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    java = tmp_path / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return Launch(tmp_path)


def _ended_once(launch: Launch) -> None:
    """The driver has run to its end once, and its exit is told."""
    report = launch.wait(Liveness.EXITED).exit
    assert report is not None
    assert report.python == SESSION_FAILED
    assert launch.most <= 1  # a short life may lie between two looks
    launch.launch()  # a late task: it starts nothing
    assert launch.sight().liveness is Liveness.EXITED
    wait_for(lambda: None if is_locked(launch.directory / "control/shim.lock") else True)
    assert not (launch.directory / "own/tmp").exists()


@pytest.mark.parametrize("point", [fail_points.AFTER_INTENT, fail_points.AFTER_SPAWN])
def test_a_worker_killed_in_a_launch_leaves_one_driver(launch: Launch, point: str) -> None:
    assert killed_at(point, launch.launch)
    if point == fail_points.AFTER_INTENT:
        assert launch.sight().liveness is Liveness.ABSENT
    launch.launch()  # the next worker completes it
    _ended_once(launch)


def test_a_shim_killed_before_it_names_its_driver_is_followed_by_another(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver ends by itself; then, and not before, the next shim starts one."""
    monkeypatch.setenv(fail_points.ENVIRONMENT, fail_points.BEFORE_IDENT)
    launch.launch()
    monkeypatch.delenv(fail_points.ENVIRONMENT)
    launch.wait(Liveness.ABSENT)  # after ORPHANED, for as long as the driver lives
    launch.launch()
    _ended_once(launch)


def test_a_shim_killed_after_it_has_named_its_driver_leaves_an_unknown_exit(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fail_points.ENVIRONMENT, fail_points.AFTER_IDENT)
    launch.launch()
    monkeypatch.delenv(fail_points.ENVIRONMENT)
    seen = launch.wait(Liveness.GONE)
    assert seen.exit is None  # nobody saw it: unknown, never a guess
    launch.launch()
    assert launch.sight().liveness is Liveness.GONE  # it was started once
    assert launch.most <= 1  # a short life may lie between two looks


def test_a_shim_killed_after_the_exit_has_told_it(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit is on disk before the temporary files go and anybody is notified."""
    monkeypatch.setenv(fail_points.ENVIRONMENT, fail_points.AFTER_EXIT)
    launch.launch()
    monkeypatch.delenv(fail_points.ENVIRONMENT)
    report = launch.wait(Liveness.EXITED).exit
    assert report is not None
    assert report.python == SESSION_FAILED
    assert (launch.directory / "own/tmp").exists()
    launch.launch()
    assert launch.sight().liveness is Liveness.EXITED
    assert launch.most <= 1  # a short life may lie between two looks


@pytest.mark.parametrize("point", [fail_points.TAKEN_OVER, fail_points.BEFORE_ASSIGNMENT])
def test_a_worker_killed_while_a_standby_takes_over_is_followed_by_another(
    launch: Launch, point: str
) -> None:
    """The rows name it already; whatever is missing in its files comes with the next look."""
    (launch.home / "java/bin/java").write_text(HANGS)
    launch.launch(standby=True)
    launch.wait(Liveness.ALIVE)
    taken = Assignment(generation=1, epoch=1)
    assert killed_at(point, lambda: launch.launcher.assign("app", taken))
    assert launch.sight().assignment_generation == 0
    named = read_current(launch.directory.parent) is not None
    assert named == (point == fail_points.BEFORE_ASSIGNMENT)
    launch.launcher.assign("app", taken)
    assert launch.sight().assignment_generation == 1
    assert read_current(launch.directory.parent) is not None
    launch.launcher.kill("app", 1, Reason.GIVEN_UP)
    launch.wait(Liveness.EXITED)


def test_no_point_is_left_out() -> None:
    """Those of the launch are walked here, the others in tests of the ingester and of alerts."""
    assert set(fail_points.NAMES) == {
        fail_points.AFTER_INTENT,
        fail_points.AFTER_SPAWN,
        fail_points.TAKEN_OVER,
        fail_points.BEFORE_ASSIGNMENT,
        fail_points.BEFORE_IDENT,
        fail_points.AFTER_IDENT,
        fail_points.AFTER_EXIT,
        fail_points.BEFORE_ACK,
        fail_points.AFTER_ALERT,
    }
