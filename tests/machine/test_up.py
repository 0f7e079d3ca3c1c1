"""The whole system on one machine: started, hurt, started again, stopped. All for real."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from headgate_ground import identities as processes
from tests import pieces
from tests.faults.system import PROGRAMS, Programs

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 150

pytestmark = [pytest.mark.redis, pytest.mark.faults, pytest.mark.timeout(600)]


class System(Programs):
    """One `manage.py up` with a data folder, a port and a Redis of its own; no demo."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = pieces.free_port()
        hidden = ("REDIS_URL", "DATABASE_URL", "SECRET_KEY")
        self.environment = {k: v for k, v in os.environ.items() if k not in hidden} | {
            "HEADGATE_HOME": str(home),
            "HEADGATE_PORT": str(self.port),
            "HEADGATE_DEMO": "0",
            "HEADGATE_DISK_WARNING_MB": "0",
            "PYTHONUNBUFFERED": "1",
        }
        self.output = home.parent / "up.out"
        self.up: subprocess.Popen[bytes] | None = None

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of manage.py to its end."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def start(self) -> str:
        """Start `up` and return what it said until its address stood there."""
        self.begin()
        return self.address()

    def address(self) -> str:
        """Return what `up` said until its address stood there."""
        self.until(lambda: "Headgate is at" in self.said() or self.up_has_ended())
        assert "Headgate is at" in self.said(), self.said()
        return self.said()

    def begin(self) -> None:
        """Start `up` and return at once."""
        with self.output.open("wb") as output:
            self.up = subprocess.Popen(
                [sys.executable, "manage.py", "up"],
                cwd=REPOSITORY,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        """Return everything that `up` has said."""
        return self.output.read_text()

    def up_has_ended(self) -> bool:
        """Tell whether `up` is gone."""
        return self.up is None or self.up.poll() is not None

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for an event with a generous limit."""
        deadline = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.15)

    def end(self) -> None:
        """End whatever is left, whatever happened."""
        if self.up is not None and self.up.poll() is None:
            self.up.terminate()
            try:
                self.up.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.up.kill()
                self.up.wait()
        for who in self.identities().values():
            processes.kill_and_wait(*who, 10)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Return the system whose story this file tells, from its first start on."""
    system = System(tmp_path_factory.mktemp("up") / "home")
    yield system
    system.end()


@pytest.mark.promise
def test_it_starts_says_what_it_uses_heals_and_stops_whole(system: System) -> None:
    with socket.create_server(("127.0.0.1", system.port + 1)):  # where Spark UIs would be
        system.begin()
        system.until(lambda: system.ready() or system.up_has_ended())
        token = system.manage("createtoken", "admin")  # a script needs no line of output
        assert token.returncode == 0, token.stderr
        said = system.address()
    for word in ("Java      ", "Redis     ", "Database  SQLite", f"Data      {system.home}"):
        assert word in said
    found = re.search(rf"Spark UI  port {system.port + 1} is in use, so port (\d+) is used", said)
    assert found is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/healthz", timeout=30) as answer:
        assert answer.status == 200
    assert (system.home / "data").is_dir()
    assert "login admin / " in said
    assert said.index("login admin") < said.index("shown once")
    assert system.ready()

    # Another run on the same folder, and one on the same port, say what is in the way.
    second = system.manage("up")
    assert (second.returncode, "already running" in second.stderr) == (1, True)
    system.environment["HEADGATE_HOME"] = str(system.home.parent / "other")
    third = system.manage("up")
    assert (third.returncode, f"Port {system.port} is in use" in third.stderr) == (1, True)
    system.environment["HEADGATE_HOME"] = str(system.home)

    # A killed worker comes back by itself.
    before = system.identities()["worker"]
    os.kill(before[0], signal.SIGKILL)
    system.until(lambda: system.identities()["worker"] != before)
    system.until(system.ready)

    # So does a killed Redis whose folder is lost, at the address that drivers know.
    address = (system.home / "redis_url").read_text()
    before = system.identities()["valkey"]
    shutil.rmtree(system.home / "valkey")
    os.kill(before[0], signal.SIGKILL)
    again = Retry(ConstantBackoff(0.2), 5 * LIMIT_S)
    with redis.Redis.from_url(address.strip(), retry=again) as client:
        assert client.ping()
    assert system.identities()["valkey"] != before
    system.until(system.ready)

    assert system.up is not None
    system.up.send_signal(signal.SIGINT)
    assert system.up.wait(LIMIT_S) == 0
    assert "Stopped. No driver is streaming." in system.said()
    assert system.living() == set()


def test_a_killed_supervisor_is_started_again_and_a_killed_up_leaves_nothing(
    system: System,
) -> None:
    system.end()
    system.start()
    before = system.identities()
    assert system.living() == PROGRAMS | {"supervisord"}
    os.kill(before["supervisord"][0], signal.SIGKILL)
    system.until(lambda: system.identities()["supervisord"] != before["supervisord"])
    system.until(lambda: system.living() == PROGRAMS | {"supervisord"})
    system.until(system.ready)
    assert "process supervisor has ended (SIGKILL); restarting it" in system.said()
    assert system.up is not None
    os.kill(system.up.pid, signal.SIGKILL)
    system.up.wait()
    system.until(lambda: not system.living())
    stopped = system.manage("stop")
    assert (stopped.returncode, stopped.stdout) == (0, "Nothing is running.\n")
    said = system.start()
    assert "login admin" not in said
    assert system.ready()


def test_stop_ends_a_running_system_from_elsewhere(system: System) -> None:
    if system.up_has_ended():
        system.start()
    stopped = system.manage("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stdout.startswith("Stopped.")
    system.until(system.up_has_ended)
    assert system.living() == set()
