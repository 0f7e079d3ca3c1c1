"""A driver that runs as its application's account lives, is adopted and ends as any other does."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_server.places import ROOT as REPOSITORY
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import snapshot
from queries.domain.probes.questions import XrayTask
from queries.domain.protocol import RunState, Want
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness
from queries.domain.walls import Mode
from queries.launchers.process import identities
from queries.launchers.process.walls import proven
from queries.launchers.process.walls.accounts import Account, Accounts
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, holder, rate_query, wait_for

pytestmark = [
    *(pytest.mark.accounts, pytest.mark.open_python, pytest.mark.spark, pytest.mark.faults),
    pytest.mark.timeout(900),
]

#: A worker of its own: it launches the driver that its arguments name, and waits to be killed.
WORKER = """
import signal, sys
from pathlib import Path
from queries.domain.walls import Mode
from tests.spark.driver_under_test import DriverUnderTest
home, epoch, *names = sys.argv[1:]
DriverUnderTest(Path(home), epoch=int(epoch), walls=Mode.ACCOUNTS, accounts=names).launch()
print("launched", flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with pieces.reachable_folder() as home:
        yield home


@pytest.fixture(scope="module")
def names(home: Path) -> Iterator[list[str]]:
    with pieces.accounts_made(home, 1) as names:
        yield names


@pytest.fixture
def drivers(
    home: Path, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[DriverUnderTest]]:
    """Collect the drivers of a test, and leave none behind."""
    monkeypatch.setattr(proven, "accounts", lambda: Accounts(tuple(names), home))
    started: list[DriverUnderTest] = []
    yield started
    for driver in started:
        driver.end()


def _driver(
    home: Path, drivers: list[DriverUnderTest], names: list[str], epoch: int
) -> DriverUnderTest:
    driver = DriverUnderTest(home, epoch=epoch, walls=Mode.ACCOUNTS, accounts=names)
    drivers.append(driver)
    return driver


def _runs_as(pid: int) -> int:
    """Return the uid of a process."""
    return Path(f"/proc/{pid}").stat().st_uid


def _commits(home: Path, name: str, more_than: int) -> int:
    """Wait for a further commit of a checkpoint; return the newest."""
    logs = CheckpointLogs.at(f"file://{home}/checkpoints/{name}")

    def look() -> int | None:
        newest = logs.last_commit()
        return newest if newest is not None and newest > more_than else None

    return wait_for(look, f"a batch of {name} after {more_than}")


def test_it_commits_as_its_account_is_rewound_and_goes_on(
    drivers: list[DriverUnderTest], home: Path, names: list[str]
) -> None:
    account = Account.of(names[0])
    driver = _driver(home, drivers, names, 1)
    driver.launch().ready()
    driver.start(10, rate_query())
    driver.wait_run(10, RunState.RUNNING)
    ident = driver.ident()
    assert ident.jvm_pid is not None
    assert (_runs_as(ident.pid), _runs_as(ident.jvm_pid)) == (account.uid, account.uid)
    assert _runs_as(ident.shim_pid) == os.geteuid()
    assert holder(f"file://{home}/checkpoints/q1") == ident.jvm_pid
    _commits(home, "q1", 2)
    taken = home / "checkpoints/.headgate/q1.snapshots/one"
    snapshot(f"file://{home}/checkpoints/q1", taken)  # while it runs
    driver.ask(10, Want.STOP)
    driver.wait_run(10, RunState.ENDED)
    snapshot(f"file://{home}/checkpoints/q1", home / "checkpoints/q2", 1)
    driver.start(20, rate_query())
    driver.wait_run(20, RunState.RUNNING)
    _commits(home, "q2", 1)
    owners = {path.lstat().st_uid for path in (home / "checkpoints/q2").rglob("*")}
    assert owners == {account.uid}
    driver.launcher.terminate("app", 1)
    exit_report = driver.wait_exit().exit
    assert exit_report is not None
    assert (exit_report.python, exit_report.jvm) == ("0", "0")
    assert holder(f"file://{home}/checkpoints/q2") is None
    wait_for(lambda: not (driver.directory / "own/tmp").exists(), "the end of its scratch folder")
    assert not (driver.directory / "control/secrets").exists()


def test_it_outlives_its_worker_and_its_shim_and_is_directed_by_the_next(
    drivers: list[DriverUnderTest], home: Path, names: list[str]
) -> None:
    driver = _driver(home, drivers, names, 2)
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", WORKER, str(home), "2", *names],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    with worker.stdout as said:
        assert said.readline() == "launched\n"
    worker.kill()
    worker.wait()
    driver.ready()
    assert driver.launcher.living() == [("app", 2)]
    driver.start(10, rate_query())
    driver.wait_run(10, RunState.RUNNING)
    known = dict(driver.sight().process)
    os.kill(driver.ident().shim_pid, signal.SIGKILL)
    assert driver.sight().liveness is Liveness.ALIVE
    assert driver.sight().process == known
    ident = driver.ident()
    driver.launcher.kill("app", 2, Reason.GIVEN_UP)
    assert not identities.is_alive(ident.jvm_pid or 0, ident.jvm_start_time)
    assert driver.sight().liveness is Liveness.GONE
    assert holder(f"file://{home}/checkpoints/q1") is None


def test_an_orphaned_jvm_of_an_account_is_found_and_ended(
    drivers: list[DriverUnderTest], home: Path, names: list[str]
) -> None:
    driver = _driver(home, drivers, names, 3)
    driver.launch().ready()
    driver.start(10, rate_query())
    driver.wait_run(10, RunState.RUNNING)
    ident = driver.ident()
    os.kill(ident.shim_pid, signal.SIGKILL)
    os.kill(ident.jvm_pid or 0, signal.SIGSTOP)  # or it would leave with its Python
    driver.kill_python()
    place = f"file://{home}/checkpoints/q1"
    wait_for(lambda: driver.sight((place,)).liveness is Liveness.ORPHANED, "the JVM is seen alone")
    driver.launcher.kill("app", 3, Reason.GIVEN_UP)
    assert not identities.is_alive(ident.jvm_pid or 0, ident.jvm_start_time)
    assert holder(place) is None


def test_a_probe_reads_a_copy_of_state_as_the_same_account(
    drivers: list[DriverUnderTest], home: Path, names: list[str]
) -> None:
    driver = _driver(home, drivers, names, 4)
    driver.launch().ready()
    sink = {"format": "noop", "output_mode": "complete"}
    counting = "SELECT value % 3 AS rest, count(*) AS n FROM numbers GROUP BY value % 3"
    driver.start(30, rate_query(sql=counting, sink=sink))
    driver.wait_run(30, RunState.RUNNING)
    _commits(home, "q3", 2)
    copy = home / "checkpoints/.headgate/probes/one/copy"
    snapshot(f"file://{home}/checkpoints/q3", copy, new_id=True)
    probe = DriverUnderTest(home, epoch=5, walls=Mode.ACCOUNTS, accounts=names)
    task = XrayTask(f"file://{copy}", limit_s=240, rows=5)
    launcher = probe.launcher
    launcher.launch_probe(replace(probe.spec, probe=True, redis_url=""), task.dumps())
    try:
        wait_for(
            lambda: launcher.sight("app", 5, probe=True).liveness is Liveness.EXITED,
            "the probe has answered",
        )
        answer = json.loads(launcher.probe_result("app", 5))
        assert answer["done"], answer
        assert answer["error"] is None, answer
        assert answer["state"]["rows"], answer
    finally:
        launcher.end_probes()
