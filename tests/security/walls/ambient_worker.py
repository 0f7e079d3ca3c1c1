"""A worker that is not root: launches drivers as accounts with the capabilities of its unit alone.

Runs as a process of its own, and tells what it has seen in a line of JSON.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from queries import account_files
from queries.account_files import capabilities
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import remove, snapshot
from queries.domain.protocol import RunState
from queries.domain.states import Reason
from queries.domain.walls import Mode
from queries.launchers.process import identities, sighting
from queries.launchers.process.walls.accounts import Accounts
from tests.spark.driver_under_test import DriverUnderTest, holder, rate_query, wait_for


def main(home: Path, names: list[str]) -> dict[str, Any]:
    """Lead one driver to a stop and another to a kill, and tidy up after both."""
    account_files.know(Accounts(tuple(names), home).uids)
    seen: dict[str, Any] = {"uid": os.geteuid(), "capabilities": capabilities()}
    drivers = [_driver(home, names, epoch) for epoch in (1, 2)]
    try:
        seen["stopped"] = _stopped(drivers[0], home)
        seen["killed"] = _killed(drivers[1], home)
    finally:
        for driver in drivers:
            driver.end()
    return seen | _tidied(drivers[0], home)


def _driver(home: Path, names: list[str], epoch: int) -> DriverUnderTest:
    return DriverUnderTest(home, epoch=epoch, walls=Mode.ACCOUNTS, accounts=names)


def _streaming(driver: DriverUnderTest, home: Path) -> dict[str, Any]:
    """Launch a driver, wait for a commit, and return who its processes are and what is read."""
    driver.launch(checkpoints=(f"file://{home}/checkpoints/q1",)).ready()
    driver.start(10, rate_query())
    driver.wait_run(10, RunState.RUNNING)
    logs = CheckpointLogs.at(f"file://{home}/checkpoints/q1")
    before = logs.last_commit() or 0
    wait_for(lambda: (logs.last_commit() or 0) > before, "a further commit")
    ident = driver.ident()
    found = {pid for pid, _ in sighting.processes_of(driver.directory)}
    return {
        "processes": [_status(pid) for pid in (ident.pid, ident.jvm_pid or 0)],
        "found": {ident.pid, ident.jvm_pid} <= found,
        "holder": holder(f"file://{home}/checkpoints/q1") == ident.jvm_pid,
        "log": driver.launcher.log_size("app", driver.epoch) > 0,
        "spooled": len(list(driver.launcher.spooled(driver.epoch, 0))),
    }


def _status(pid: int) -> dict[str, str]:
    """Return what the kernel says of a process's account and rights."""
    lines = (Path(f"/proc/{pid}") / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _stopped(driver: DriverUnderTest, home: Path) -> dict[str, Any]:
    seen = _streaming(driver, home)
    snapshot(f"file://{home}/checkpoints/q1", _kept(home))  # while it runs
    driver.launcher.terminate("app", driver.epoch)
    report = driver.wait_exit().exit
    assert report is not None
    return seen | {"exit": [report.python, report.jvm], "last_seq": report.last_seq}


def _killed(driver: DriverUnderTest, home: Path) -> dict[str, Any]:
    seen = _streaming(driver, home)
    ident = driver.ident()
    os.kill(ident.shim_pid, signal.SIGKILL)  # nobody but the worker is left to end it
    driver.launcher.kill("app", driver.epoch, Reason.GIVEN_UP)
    alive = [
        identities.is_alive(pid or 0, started)
        for pid, started in ((ident.pid, ident.start_time), (ident.jvm_pid, ident.jvm_start_time))
    ]
    return seen | {"alive": alive}


def _kept(home: Path) -> Path:
    return home / "checkpoints/.headgate/q1.snapshots/one"


def _tidied(first: DriverUnderTest, home: Path) -> dict[str, Any]:
    """Remove what the account has written, as pruning and deletion do; return what is left."""
    seen = {"snapshot": sorted(path.name for path in _kept(home).iterdir())}
    first.launcher.prune("app", keep=1)
    remove(_kept(home))
    shutil.rmtree(home / "checkpoints/q1")
    left = (first.directory, _kept(home), home / "checkpoints/q1")
    return seen | {"left": [str(path) for path in left if path.exists()]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])) + "\n")
