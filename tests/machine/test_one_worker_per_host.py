"""A host's name belongs to one worker: real processes, one database, no Redis."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import conftest_tables

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 120  # generous: machines that run tests are small and shared
NAME_TAKEN = 69

pytestmark = pytest.mark.timeout(400)


class Workers:
    """Workers of one home and one host's name."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "DATABASE_URL"},
            "HEADGATE_HOME": str(home),
            "HEADGATE_HOST": "host-a",
            "REDIS_URL": "redis://127.0.0.1:9/0",
            "SECRET_KEY": "of-these-tests",
        }
        self.processes: list[subprocess.Popen[str]] = []

    def migrate(self) -> None:
        """Make the tables."""
        command = [sys.executable, "manage.py", "migrate", "-v0"]
        subprocess.run(command, cwd=REPOSITORY, env=self.environment, check=True, timeout=LIMIT_S)

    def start(self) -> "subprocess.Popen[str]":
        """Start a worker as `make run` does."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "celery", "--app", "controlplane", "worker"),
                *("--pool", "threads", "--concurrency", "2"),
            ],
            cwd=REPOSITORY,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def holder(self) -> int | None:
        """Return the pid that holds the name, None for nobody."""
        with sqlite3.connect(self.home / "headgate.sqlite3", timeout=20) as database:
            rows = database.execute("SELECT pid, claim FROM queries_host WHERE name = 'host-a'")
            found = rows.fetchone()
        return found[0] if found and found[1] else None

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, f"never: {what}"
            time.sleep(0.1)

    def close(self) -> None:
        """End what is left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def workers(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Workers]:
    found = Workers(tmp_path)
    try:
        if not conftest_tables.fetch(pytestconfig, tmp_path / "headgate.sqlite3"):
            found.migrate()
        yield found
    finally:
        found.close()


def test_a_name_belongs_to_one_worker_until_it_is_killed_or_another_takes_it(
    workers: Workers,
) -> None:
    # A second worker of the name leaves with a sentence.
    first = workers.start()
    workers.wait("the first worker claims the name", lambda: workers.holder() == first.pid)

    second = workers.start()
    _, said = second.communicate(timeout=LIMIT_S)

    assert second.returncode == NAME_TAKEN
    assert "Another worker already acts for host host-a, so this one exits." in said
    assert "HEADGATE_HOST" in said
    assert "Traceback" not in said
    assert (workers.holder(), first.poll()) == (first.pid, None)

    # One that was killed is replaced at once.
    first.send_signal(signal.SIGKILL)
    first.wait(LIMIT_S)
    third = workers.start()
    workers.wait("the next worker takes the name", lambda: workers.holder() == third.pid)

    # One whose name was taken leaves too.
    with sqlite3.connect(workers.home / "headgate.sqlite3", timeout=20) as database:
        database.execute("UPDATE queries_host SET claim = 'another', pid = 1")
    _, said = third.communicate(timeout=LIMIT_S)

    assert third.returncode == NAME_TAKEN
    assert "Another worker already acts for host host-a" in said
