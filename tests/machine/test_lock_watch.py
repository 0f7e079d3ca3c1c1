"""A program that is frozen inside a write stops everybody: it is named, and ended if it is ours."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controlplane.write_lock import write_lock_holder
from headgate_ground import identities
from installation.machine.claims import IDLE_FOR_S, STOPPED_FOR_S, LockWatch
from queries.services.system import writes as sqlite_writes
from queries.services.system.writes import Writes

LIMIT_S = 60
#: Holds the lock, and writes or computes when it is told to.
WRITER = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA cache_size=1")
database.execute("CREATE TABLE IF NOT EXISTS rows (text)")
database.execute("BEGIN IMMEDIATE")
print("held", flush=True)
for line in sys.stdin:
    if line == "work\\n":
        until = time.process_time() + 1
        while time.process_time() < until:
            pass
    elif line == "write\\n":
        for _ in range(1000):
            database.execute("INSERT INTO rows VALUES (?)", ("x" * 10_000,))
    else:
        database.execute("COMMIT")
    print("done", flush=True)
"""


@dataclass
class Writer:
    """A program that holds the write lock."""

    process: "subprocess.Popen[str]"
    database: Path
    run: Path  # the identities of `make run`'s programs
    said: list[str] = field(default_factory=list)

    def do(self, what: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def ended(self) -> int | None:
        """Return its exit code; None if it still runs: `look` waits for its end."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(5)
        return None

    def is_ours(self, name: str) -> None:
        who = {"boot_id": identities.boot_id(), "pid": self.process.pid}
        who["start_time"] = identities.start_time(self.process.pid)
        (self.run / f"{name}.process").write_text(json.dumps(who))

    def watch(self) -> LockWatch:
        return LockWatch(self.database, self.run, self.said.append)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    (tmp_path / "run").mkdir()
    database = tmp_path / "headgate.sqlite3"
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield Writer(process, database, tmp_path / "run")
    process.kill()
    process.communicate(timeout=LIMIT_S)


def test_the_holder_is_found_and_named(writer: Writer) -> None:
    found = write_lock_holder(writer.database, writer.run)
    assert found is not None
    assert (found.pid, found.program, found.stopped) == (writer.process.pid, "", False)
    assert found.called.startswith(f"`{sys.executable} -c")
    writer.is_ours("ingester")
    writer.stop()
    found = write_lock_holder(writer.database, writer.run)
    assert found is not None
    assert (found.called, found.stopped) == (f"the ingester (PID {writer.process.pid})", True)


def test_without_a_write_nobody_holds_it(writer: Writer, tmp_path: Path) -> None:
    writer.do("commit")
    assert write_lock_holder(writer.database, writer.run) is None
    assert write_lock_holder(tmp_path / "none.sqlite3", writer.run) is None


def test_a_frozen_program_of_ours_is_ended_after_a_minute_and_writes_go_on(writer: Writer) -> None:
    writer.is_ours("ingester")
    writer.stop()
    watch = writer.watch()
    for now in (100.0, 130.0, 100.0 + STOPPED_FOR_S):
        watch.look(now)
    assert writer.process.poll() is None
    watch.look(101.0 + STOPPED_FOR_S)
    assert writer.ended() == -signal.SIGKILL
    assert "The ingester" in writer.said[0]
    assert "for 61 s, and it is stopped" in writer.said[0]
    with closing(sqlite3.connect(writer.database, LIMIT_S)) as database, database:
        database.execute("INSERT INTO rows VALUES ('after')")


@pytest.mark.guarantee("G-HOST-4")
def test_a_program_that_waits_has_more_time(writer: Writer) -> None:
    writer.is_ours("worker")
    watch = writer.watch()
    for now in (100.0, 101.0 + STOPPED_FOR_S, 100.0 + IDLE_FOR_S):
        watch.look(now)
    assert writer.process.poll() is None
    watch.look(101.0 + IDLE_FOR_S)
    assert writer.ended() == -signal.SIGKILL


@pytest.mark.parametrize("what", ["work", "write"])
def test_a_program_that_makes_progress_is_left_alone(writer: Writer, what: str) -> None:
    writer.is_ours("worker")
    watch = writer.watch()
    watch.look(100.0)
    writer.do(what)
    watch.look(1000.0)
    assert writer.process.poll() is None
    watch.look(1000.0 + STOPPED_FOR_S)  # counted from its progress on
    assert writer.process.poll() is None


def test_a_program_that_is_not_ours_is_never_ended(writer: Writer) -> None:
    writer.stop()
    watch = writer.watch()
    for now in (100.0, 10_000.0):
        watch.look(now)
    assert identities.state(writer.process.pid) == "T"
    assert writer.said == []


@pytest.mark.guarantee("G-HOST-4")
def test_the_health_check_names_a_frozen_holder(
    writer: Writer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connection:
        """Stands for Django's, whose test database is in memory."""

        settings_dict = {"NAME": str(writer.database)}
        in_atomic_block = False

    monkeypatch.setattr(sqlite_writes, "connection", Connection)
    settings.HOME = type(settings.HOME)(writer.run.parent)
    writes = Writes()
    assert writes.problem_with_writes() == ""  # one who writes is no problem yet
    monkeypatch.setattr(sqlite_writes, "LATE_AFTER_S", 0.0)
    assert f"(PID {writer.process.pid}) holds the write lock" in writes.problem_with_writes()
    monkeypatch.undo()
    monkeypatch.setattr(sqlite_writes, "connection", Connection)
    writer.stop()
    said = writes.problem_with_writes()
    assert f"(PID {writer.process.pid}) is stopped and holds the write lock" in said
    assert f"kill {writer.process.pid}" in said
    monkeypatch.setattr(Connection, "in_atomic_block", True)
    assert writes.problem_with_writes() == ""  # the lock is this thread's own
    monkeypatch.setattr(Connection, "in_atomic_block", False)
    writer.process.kill()
    writer.process.wait(LIMIT_S)
    assert writes.problem_with_writes() == ""
