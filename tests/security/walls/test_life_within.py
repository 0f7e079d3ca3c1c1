"""A driver within bubblewrap's walls lives, is adopted and ends as any other does."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_ground import identities
from queries.domain.hosts import Mode
from queries.domain.probes.questions import XrayTask
from queries.domain.protocol import ExitReport, RunState
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness
from tests.spark.driver_under_test import DriverUnderTest, holder, rate_query, wait_for

pytestmark = [pytest.mark.walls, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(900)]

CHILDREN = """
import subprocess


def frame(spark, params):
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    return spark.readStream.format("rate").option("rowsPerSecond", "5").load()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("within")
    (home / "root").mkdir()
    (home / "root/users_children.py").write_text(CHILDREN)
    return home


@pytest.fixture(scope="module")
def drivers(home: Path) -> Iterator[list[DriverUnderTest]]:
    """Collect the drivers, and leave none behind."""
    started: list[DriverUnderTest] = []
    yield started
    for driver in started:
        driver.end()


def _driver(home: Path, drivers: list[DriverUnderTest]) -> DriverUnderTest:
    """Return a driver within walls: the last one, if a test has put it to rest."""
    if drivers and drivers[-1].idle():
        return drivers[-1]
    for before in drivers:
        before.end()
    driver = DriverUnderTest(home, epoch=len(drivers) + 1, walls=Mode.BUBBLEWRAP)
    drivers.append(driver)
    (copy,), sha256 = driver.launcher.freeze_code((str(home / "root"),))
    driver.launch(
        code_roots=(copy,),
        code_sha256=sha256,
        own_folders=(f"file://{home}",),
        checkpoints=(f"file://{home}/checkpoints/q1",),
    ).ready()
    return driver


def _report(driver: DriverUnderTest) -> ExitReport:
    report = driver.wait_exit().exit
    assert report is not None
    return report


@pytest.mark.guarantee("G-ISOLATION-10")
def test_a_checkpoint_that_the_walls_do_not_show_waits_for_the_next_driver(
    drivers: list[DriverUnderTest], home: Path
) -> None:
    driver = _driver(home, drivers)
    driver.start(20, rate_query())
    refused = driver.wait_run(20, RunState.REFUSED, RunState.RUNNING, RunState.FAILED)
    assert refused.error is not None
    # As a hanging start of its own: supervision replaces a driver that runs nothing else.
    status = driver.sight().status
    assert status is not None
    assert (refused.error.refused, refused.error.holder_pid) == ("own", status.jvm_pid)
    assert "Restart the application" in refused.error.message
    assert not (home / "checkpoints/q2").exists()
    driver.rest()


def test_both_kills_are_reported_as_they_were_and_leave_nothing(
    drivers: list[DriverUnderTest], home: Path
) -> None:
    driver = _driver(home, drivers)
    children = {
        "kind": "python",
        "function": "users_children:frame",
        "sink": {"format": "noop"},
        "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
    }
    driver.start(10, children)
    driver.wait_run(10, RunState.RUNNING)
    ident = driver.ident()
    assert ident.jvm_pid is not None
    assert holder(f"file://{home}/checkpoints/q1") == ident.jvm_pid
    below = identities.descendants(ident.shim_pid)
    known = [(pid, identities.start_time(pid)) for pid in below]
    assert len(known) >= 5  # bubblewrap, its init, Python, JVM, the sleep
    driver.kill_python()
    report = _report(driver)
    assert (report.python, report.jvm in ("0", "SIGKILL")) == ("SIGKILL", True)
    assert not [pid for pid, started in known if identities.is_alive(pid, started)]
    assert holder(f"file://{home}/checkpoints/q1") is None

    later = _driver(home, drivers)  # on the same checkpoint, as supervision would
    later.start(10, rate_query(), epoch=500)
    later.wait_run(10, RunState.RUNNING)
    jvm = later.ident().jvm_pid
    assert jvm is not None
    os.kill(jvm, signal.SIGKILL)
    report = _report(later)
    assert (report.python, report.jvm) == ("71", "SIGKILL")


def test_it_is_adopted_directed_and_stopped_by_whoever_comes_next(
    drivers: list[DriverUnderTest], home: Path
) -> None:
    first = _driver(home, drivers)
    # A worker that was started anew.
    other = DriverUnderTest(home, epoch=first.epoch, walls=Mode.NEITHER)
    assert other.launcher.living() == [("app", first.epoch)]
    known = dict(first.sight().process)
    other.generation = first.generation
    other.start(10, rate_query(), epoch=600)
    other.wait_run(10, RunState.RUNNING)
    os.kill(other.ident().shim_pid, signal.SIGKILL)  # a dead shim kills no driver
    assert other.sight().liveness is Liveness.ALIVE
    assert other.sight().process == known
    other.launcher.kill("app", first.epoch, Reason.GIVEN_UP)
    init = other.ident()
    assert not identities.is_alive(init.init_pid or 0, init.init_start_time)
    assert other.sight().liveness is Liveness.GONE
    assert holder(f"file://{home}/checkpoints/q1") is None


def test_a_probe_reads_its_copy_within_walls(home: Path) -> None:
    """Without state there is nothing to show: its answer says so, in a file that it could write."""
    probe = DriverUnderTest(home, epoch=5, walls=Mode.BUBBLEWRAP)
    launcher = probe.launcher
    task = XrayTask(f"file://{home}/checkpoints/q1", limit_s=120, rows=5)
    launcher.launch_probe(replace(probe.spec, probe=True, redis_url=""), task.dumps())
    try:
        wait_for(
            lambda: launcher.sight("app", 5, probe=True).liveness is Liveness.EXITED,
            "the probe has answered",
        )
        answer = json.loads(launcher.probe_result("app", 5))
        assert answer["done"]
        assert "has no state operator 0" in answer["error"]["root_cause"]
    finally:
        launcher.end_probes()
