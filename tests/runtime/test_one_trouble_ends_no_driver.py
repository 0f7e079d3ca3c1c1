"""A full disk, a rotten file or a rotten run: the driver logs it, goes on, and tries again."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from queries.domain.protocol import (
    ASSIGNMENT,
    CURRENT,
    JVM_DIED,
    STATUS,
    Assignment,
    AssignmentEntry,
    Current,
    DriverSpec,
    DriverStatus,
    RunState,
    Want,
)
from queries.driver_folder import DriverFolder, current_file
from queries.runtime import main
from queries.runtime.assignment import Assignments
from queries.runtime.checkpoints.locks import CheckpointLock
from queries.runtime.jvms.driver import Jvm
from queries.runtime.main import FENCED, JVM, DriverProgram

EPOCH = 7


class Life:
    """A driver without a JVM: its main loop, one turn at a time."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "flights" / str(EPOCH)
        self.folder = DriverFolder.make(self.directory)
        self.current = current_file(self.directory.parent)
        self.current.parent.mkdir()
        spec = _spec()
        self.driver = DriverProgram(self.folder, spec, Jvm(spec, self.folder.own, lock=-1))
        self.lost: list[tuple[CheckpointLock, int | None]] = []
        self.driver.locks = SimpleNamespace(lost=lambda *_: self.lost)  # type: ignore[assignment]
        self.begun: list[int] = []
        self.assignments = Assignments(
            self.folder.control, EPOCH, self.driver.board, self._begin, self.driver.each
        )
        self.sessions: Any = SimpleNamespace(close_unused=lambda _: None)

    def _begin(self, entry: AssignmentEntry) -> Any:
        if entry.name == "rotten":
            raise ValueError("env:PASSWORD is not a variable that drivers may read")
        self.begun.append(entry.run)
        return SimpleNamespace(
            entry=entry, working=True, request_end=lambda *_: None, check_start=lambda: None
        )

    def turn(self) -> int | None:
        """Let the main loop turn once; return the exit code that ends it."""
        self.driver.wake.notify()
        return self.driver._work_once(self.assignments, self.sessions)

    def assign(self, *names: str, generation: int = 1) -> None:
        entries = tuple(
            AssignmentEntry(n, name, 10 + n, 100 + n, {}, f"file:///c/{name}", "", Want.RUN)
            for n, name in enumerate(names)
        )
        text = Assignment(generation=generation, epoch=EPOCH, queries=entries).dumps()
        (self.folder.control / ASSIGNMENT).write_text(text)

    @property
    def status(self) -> DriverStatus:
        return DriverStatus.loads((self.folder.own / STATUS).read_text())

    @property
    def troubles(self) -> list[str]:
        return [one.about for one in self.driver.each.now()]


def _spec() -> DriverSpec:
    return DriverSpec(
        driver=3,
        epoch=EPOCH,
        application="flights",
        installation="here",
        host="host",
        master="local[1]",
        memory="1g",
        conf={},
        env={},
        code_roots=(),
        code_sha256="",
        scheduler_mode="FIFO",
        listeners=(),
        redis_url="redis://127.0.0.1:9/0",
        stream="events",
    )


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    monkeypatch.setattr(main, "LOOK_S", 0)
    made = Life(tmp_path)
    yield made
    made.driver.telemetry._outbox._client.close()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


def test_a_status_file_that_cannot_be_written_ends_nothing_and_is_written_later(
    life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = life.folder.own / STATUS
    in_the_way.mkdir()  # no rename replaces a folder, as none works on a full disk
    life.assign("delays")
    for _ in range(3):
        assert life.turn() is None
    assert life.begun == [10]
    assert life.troubles == [STATUS]
    assert len(errors(caplog)) == 1
    in_the_way.rmdir()
    assert life.turn() is None
    assert life.status.applied_generation == 1
    assert life.troubles == []


def test_a_run_whose_state_cannot_be_written_goes_on(life: Life) -> None:
    (life.folder.own / STATUS).mkdir()
    told: list[str] = []
    life.driver.board.send_state = lambda **said: told.append(said["state"])
    life.assign("rotten")
    life.turn()
    life.driver.board.run(10, state=RunState.RUNNING)  # as the run's own thread does
    assert told[-1] == RunState.RUNNING


@pytest.mark.guarantee("G-FENCE-2")
@pytest.mark.parametrize("text", ["", "{", "[]", '{"epoch": "nine"}', "{}"])
def test_a_rotten_current_json_fences_nobody(
    life: Life, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    current = life.current
    current.write_text(text)
    life.assign("delays")
    for _ in range(3):
        assert life.turn() is None
    assert life.begun == [10]
    assert life.troubles == [CURRENT]
    assert len(errors(caplog)) == 1
    current.write_text(Current(EPOCH + 1, "elsewhere").dumps())
    assert life.turn() == FENCED


def test_a_standby_executes_nothing_until_current_json_names_it(life: Life) -> None:
    life.driver.stands_by = True
    life.assign("delays")
    life.current.write_text(Current(EPOCH - 1, "elsewhere").dumps())
    assert life.turn() is None
    assert life.begun == []
    life.current.write_text(Current(EPOCH, "here").dumps())
    assert life.turn() is None
    assert life.begun == [10]
    life.current.unlink()  # from now on it is a driver as any other
    life.assign("delays", "arrivals", generation=2)
    assert life.turn() is None
    assert life.begun == [10, 11]


def test_a_standby_whose_own_batch_fails_waits_all_the_same(
    life: Life, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no state store")

    monkeypatch.setattr(main, "warm_up", fails)
    life.driver._warm_up(None)
    assert "the standby's own first batch failed: no state store" in caplog.text
    assert life.troubles == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"queries": 7}'])
def test_a_rotten_assignment_changes_nothing_until_it_can_be_read(life: Life, text: str) -> None:
    life.assign("delays")
    life.turn()
    (life.folder.control / ASSIGNMENT).write_text(text)
    assert life.turn() is None
    assert life.troubles == [ASSIGNMENT]
    life.assign("delays", "arrivals", generation=2)
    life.turn()
    assert life.begun == [10, 11]
    assert life.troubles == []


def test_a_run_that_cannot_even_be_begun_has_failed_and_its_neighbours_run(life: Life) -> None:
    life.assign("delays", "rotten", "arrivals")
    for _ in range(3):
        assert life.turn() is None
    assert life.begun == [10, 12]
    [line] = life.status.runs
    assert (line.run, line.state) == (11, RunState.FAILED)
    assert line.error is not None
    assert line.error.root_cause == "env:PASSWORD is not a variable that drivers may read"


def test_the_trouble_of_one_run_keeps_the_others_from_nothing(life: Life) -> None:
    life.assign("delays", "arrivals")
    life.turn()
    checked: list[str] = []

    def fails() -> None:
        raise RuntimeError("py4j")

    life.assignments.runs[10].check_start = fails  # type: ignore[method-assign]
    life.assignments.runs[11].check_start = lambda: checked.append("arrivals")  # type: ignore[method-assign]
    life.assignments.runs[10].lock_lost = lambda error: fails()  # type: ignore[method-assign]
    life.assignments.runs[11].lock_lost = lambda error: checked.append("its lock")  # type: ignore[method-assign]
    life.lost = [(CheckpointLock("file:///c", run, run), 99) for run in (10, 11)]
    assert life.turn() is None
    assert checked == ["arrivals", "its lock"]
    assert life.troubles == ["run 10 of delays: its start", "run 10 of delays: its lock"]


def test_unused_sessions_and_executors_that_cannot_be_seen_to_end_no_driver(life: Life) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("py4j")

    life.sessions.close_unused = fails
    life.driver.executors = SimpleNamespace(look=fails)  # type: ignore[assignment]
    life.assign("delays")
    assert life.turn() is None
    assert life.begun == [10]
    assert life.troubles == ["unused sessions", "executors"]


def test_its_heartbeats_say_what_it_passes_over(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    (life.current).write_text("{")
    life.turn()
    telemetry: Any = life.driver.telemetry
    monkeypatch.setattr("listeners.spark.listener.jvm_heap_mb", lambda _: (1, 2))
    monkeypatch.setattr("listeners.spark.telemetry.jvm_alive", lambda _: True)
    telemetry._counters["streams"] = SimpleNamespace(read=lambda: None)
    telemetry.heartbeat()
    [told] = telemetry._inbox.get(timeout=5).body["troubles"]
    assert (told["about"], told["times"]) == (CURRENT, 1)
    assert json.dumps(told)


def test_calls_into_a_jvm_that_has_ended_are_no_trouble_beside_its_end(life: Life) -> None:
    from py4j.protocol import Py4JNetworkError

    def fails(*_: Any) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    life.sessions.close_unused = fails
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as jvm:
        life.driver.wake.watch(os.pidfd_open(jvm.pid), JVM)
        assert life.turn() is None
        assert life.troubles == ["unused sessions"]
        life.sessions.close_unused = lambda _: None
        assert life.turn() is None
        assert life.troubles == []

        life.sessions.close_unused = fails
        jvm.kill()
        assert life.turn() == JVM_DIED
    assert life.troubles == []
