"""Two workers of two hosts on one database and one Redis: each leaves the other's driver alone.

The hosts are two data folders of one machine; `make run` is the first host, a worker alone the
second. One driver runs on each.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import pieces
from tests.faults.system import REPOSITORY, System

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(900)]

FIRST, SECOND = "host-a", "host-b"
#: How many times each host looks at its driver while neither may be judged by the other.
LOOKS = 4
SPEC = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate", "options": {"rowsPerSecond": "5"}}],
    "sql": "SELECT value FROM ticks",
    "sink": {"format": "noop"},
    "trigger": {"kind": "processing_time", "interval": "1 second"},
}


class TwoHosts:
    """A whole system as the first host, and the worker of the second."""

    def __init__(self, folder: Path) -> None:
        self.home, self.other = folder / "a", folder / "b"
        own = {"HEADGATE_DEMO": "0", "HEADGATE_HOST": FIRST, "HEADGATE_HOST_GONE_S": "15"}
        self.system = System(self.home, pieces.free_port(), **own)
        self.worker: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        self.system.up()
        self.start_worker()
        self.system.wait("both hosts", lambda: SECOND in self.hosts()["message"])

    @property
    def environment(self) -> dict[str, str]:
        """The second host's: a folder of its own; database and Redis of the first."""
        return {
            **self.system.environment,
            "HEADGATE_HOME": str(self.other),
            "HEADGATE_HOST": SECOND,
            "DATABASE_URL": f"sqlite:///{self.home / 'headgate.sqlite3'}",
            "REDIS_URL": (self.home / "redis_url").read_text().strip(),
            "SECRET_KEY": (self.home / "secret_key").read_text().strip(),
        }

    def start_worker(self) -> None:
        """Start the second host's worker, as docs/several-hosts.md says."""
        self.other.mkdir(exist_ok=True)
        with (self.other / "worker.log").open("ab") as log:
            self.worker = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "--app", "controlplane", "worker"),
                    *("--pool", "threads", "--concurrency", "4"),
                    *("--queues", f"headgate,headgate.{SECOND}"),
                ],
                cwd=REPOSITORY,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def close(self) -> None:
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(signal.SIGCONT)
            self.worker.kill()
            self.worker.wait(60)
        if self.system.process is not None:
            command = [sys.executable, "manage.py", "stop"]
            subprocess.run(command, cwd=REPOSITORY, env=self.environment, timeout=240, check=False)
            self.system.close()

    def hosts(self) -> Any:
        """Return what /readyz says of the hosts."""
        with urllib.request.urlopen(f"{self.system.base}/readyz", timeout=10) as answer:
            return json.loads(answer.read())["checks"]["hosts"]

    def define(self, name: str, host: str) -> None:
        """Define a query that is placed on a host, as if that one's worker had taken it."""
        status, body = self.system.call("POST", "queries/", {"name": name, "spec": SPEC})
        assert status == 201, body
        with sqlite3.connect(self.home / "headgate.sqlite3", timeout=20) as database:
            sql = "UPDATE queries_application SET host = ? WHERE name = ?"
            database.execute(sql, (host, name))

    def looks(self) -> dict[str, str]:
        """Return when each driver is due to be looked at next: it moves with each look."""
        with closing(sqlite3.connect(self.home / "headgate.sqlite3", timeout=20)) as database:
            return dict(database.execute("SELECT name, reconcile_after FROM queries_application"))

    def phases_until_a_look(self) -> set[str]:
        """Wait until each host has looked at its driver; return all phases seen meanwhile."""
        before, seen = self.looks(), set[str]()

        def looked() -> bool:
            seen.update(self.phases().values())
            return all(self.looks()[name] != due for name, due in before.items())

        self.system.wait("a look of each host", looked)
        return seen

    def phases(self) -> dict[str, str]:
        found = self.system.get("queries/")["results"]
        return {one["name"]: one["phase"] for one in found}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    found = TwoHosts(tmp_path_factory.mktemp("hosts"))
    try:
        found.up()
        for name, host in (("here", FIRST), ("there", SECOND)):
            found.define(name, host)
            found.system.verb(name, "start")
        yield found
    finally:
        found.close()


def test_no_worker_touches_or_judges_the_other_hosts_driver(both: TwoHosts) -> None:
    runs = {name: both.system.running(name)["current_run"] for name in ("here", "there")}
    assert {name: run["host"] for name, run in runs.items()} == {"here": FIRST, "there": SECOND}
    assert list((both.other / "drivers").glob("there/*/control/ident.json"))
    # The web defined it below its own home; the host that runs it has another.
    assert list((both.other / "checkpoints").glob("there/commits/*"))
    assert not (both.home / "checkpoints" / "there").exists()
    assert not list((both.home / "drivers").glob("there/[0-9]*"))

    for _ in range(LOOKS):
        assert both.phases_until_a_look() == {"RUNNING"}

    now = {name: both.system.query(name)["current_run"] for name in runs}
    assert {name: run["id"] for name, run in now.items()} == {
        name: run["id"] for name, run in runs.items()
    }
    for name in runs:
        assert both.system.query(name)["dropped_events"]["missing_batches"] == 0
    assert both.hosts()["status"] == "ok"


def test_a_silent_hosts_driver_is_lost_goes_on_and_is_adopted(both: TwoHosts) -> None:
    run = both.system.running("there")["current_run"]
    bystander = both.system.running("here")["current_run"]
    assert both.worker is not None
    both.worker.send_signal(signal.SIGSTOP)
    both.system.wait("there is UNREACHABLE", lambda: both.phases()["there"] == "UNREACHABLE")
    assert psutil.pid_exists(run["pid"])
    both.system.wait("readyz names it", lambda: both.hosts()["status"] == "problem")
    assert f"Host {SECOND} has sent no heartbeat" in both.hosts()["message"]
    assert both.phases()["here"] == "RUNNING"

    # Killed while it is silent: the next worker of that name finds it dead, and adopts its driver.
    os.kill(both.worker.pid, signal.SIGKILL)
    both.worker.wait(60)
    both.start_worker()
    after = both.system.running("there")["current_run"]
    assert (after["id"], after["pid"]) == (run["id"], run["pid"])
    assert both.system.query("here")["current_run"]["id"] == bystander["id"]
    both.system.wait("readyz is well", lambda: both.hosts()["status"] == "ok")


@pytest.mark.guarantee("G-HOST-2")
def test_a_driver_whose_host_was_declared_gone_ends_by_itself_and_the_query_goes_on_there(
    both: TwoHosts,
) -> None:
    """Its worker is frozen: the driver finds in Redis that its epoch was revoked."""
    run = both.system.running("there")["current_run"]
    bystander = both.system.running("here")["current_run"]
    assert both.worker is not None
    both.worker.send_signal(signal.SIGSTOP)
    both.system.wait("there is UNREACHABLE", lambda: both.phases()["there"] == "UNREACHABLE")
    status, refused = both.system.call("POST", "queries/there/start/", {})
    assert (status, SECOND in refused["detail"]) == (409, True), refused
    status, restart = both.system.call("POST", "queries/there/restart/", {})
    assert (status, restart["detail_code"]) == (202, "HOST_AWAY"), restart

    def declared() -> bool:
        address = "applications/there/declare-host-gone/"
        return both.system.call("POST", address, {"host": SECOND})[0] == 202

    both.system.wait("it has been silent for long enough", declared)
    both.system.wait("its run has ended", lambda: both.phases()["there"] == "PENDING")
    both.system.wait("its driver ends", lambda: not psutil.pid_exists(run["pid"]))
    committed = set((both.other / "checkpoints").glob("there/commits/[0-9]*"))
    assert committed

    both.worker.send_signal(signal.SIGCONT)
    after = both.system.running("there")["current_run"]
    assert (after["host"], after["id"] != run["id"]) == (SECOND, True)
    assert both.system.query("here")["current_run"]["id"] == bystander["id"]


def test_the_others_log_is_not_looked_for_here(both: TwoHosts) -> None:
    run = both.system.running("there")["current_run"]
    status, body = both.system.call("GET", f"runs/{run['id']}/log/")
    assert status == 409
    assert f"is on host {SECOND}" in str(body)


def test_stopping_the_second_host_ends_its_driver_alone(both: TwoHosts) -> None:
    bystander = both.system.running("here")["current_run"]
    assert both.worker is not None
    both.worker.terminate()
    both.worker.wait(120)
    command = [sys.executable, "manage.py", "stop"]
    subprocess.run(command, cwd=REPOSITORY, env=both.environment, timeout=240, check=True)
    assert not [
        found
        for found in (both.other / "drivers").glob("there/[0-9]*")
        if found.is_dir() and not (found / "control/exit.json").exists()
    ]
    now = both.system.running("here")["current_run"]
    assert (now["id"], now["pid"]) == (bystander["id"], bystander["pid"])
