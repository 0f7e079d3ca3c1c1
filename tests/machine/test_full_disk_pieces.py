"""What gives way on a full disk, piece by piece; /dev/full takes no byte, as such a disk does."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from supervisor import loggers

from headgate_ground.files import KEEP_FREE, KEEP_LOG
from headgate_server.places import ROOT as REPOSITORY
from installation.machine import program
from installation.machine.supervisor import YieldingLog
from queries.runtime import process
from queries.services.system.writes import full_disk

_TALKS = """
import logging, sys
from headgate_ground.files import use_forgiving_output
use_forgiving_output()
logging.basicConfig(stream=sys.stderr)
print("a word", flush=True)
logging.warning("another")
sys.stdout.write("x" * 100_000)
sys.exit(7)
"""


def test_a_process_whose_output_finds_no_room_goes_on_to_its_own_end() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", _TALKS], stdout=full, stderr=full, cwd=REPOSITORY, check=False
        )
    assert done.returncode == 7


def test_output_that_finds_room_is_whole_and_there_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TALKS], capture_output=True, cwd=REPOSITORY, check=False
    )
    assert done.stdout == b"a word\n" + b"x" * 100_000
    assert b"another" in done.stderr


class Log:
    """One log of supervisord's, on a disk whose free space a test says."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.free = 10 * KEEP_FREE
        patch.setattr(YieldingLog, "_free", lambda _: self.free)
        patch.setattr("installation.machine.supervisor.LOOK_EVERY_S", 0.0)
        patch.setattr(loggers, "RotatingFileHandler", YieldingLog)
        self.file = folder / "web.log"
        self.logger = loggers.getLogger()
        loggers.handle_file(
            self.logger,
            str(self.file),
            "%(message)s",
            rotating=True,
            maxbytes=50_000_000,
            backups=2,
        )

    def say(self, text: str) -> str:
        self.logger.info(text)
        return self.file.read_text()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(tmp_path, monkeypatch)


def test_logs_give_way_while_the_disk_is_nearly_full_and_count_what_they_left_out(
    log: Log,
) -> None:
    old = log.file.with_name("web.log.1")
    old.write_text("yesterday")
    assert log.say("one\n") == "one\n"
    assert old.exists()
    log.free = KEEP_FREE - 1
    assert log.say("two\n") == "one\n"
    assert log.say("three\n") == "one\n"
    assert not old.exists()
    log.free = KEEP_FREE
    assert log.say("four\n") == "one\n(2 lines were omitted because the disk was full)\nfour\n"
    log.logger.close()


def test_a_large_log_is_cut_where_the_disk_is_nearly_full(log: Log) -> None:
    log.say("x" * (KEEP_LOG + 1))
    log.free = 0
    assert log.say("more") == ""
    log.free = KEEP_FREE
    assert log.say("again\n").endswith("again\n")
    log.logger.close()


def test_a_log_line_that_finds_no_room_ends_nobody(log: Log) -> None:
    (handler,) = log.logger.handlers
    log.say("before\n")
    handler.stream.close()
    handler.stream = Path("/dev/full").open("ab")  # noqa: SIM115
    log.say("lost\n")
    log.say("after\n")
    assert log.file.read_text() == (
        "before\n(1 line was omitted because the disk was full)\nafter\n"
    )
    log.logger.close()


class DriverLogs:
    """The logs in a driver's directory, on a disk whose free space a test says."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.free = 10 * KEEP_FREE
        patch.setattr(process, "free_bytes", lambda _: self.free)
        for name in ("driver.log.1", "spark.log", "spark.log.1.gz", "status.json"):
            (folder / name).write_text("kept")
        self.grow(KEEP_LOG + 1)

    def grow(self, size: int) -> None:
        log = self.folder / "driver.log"
        log.touch()
        os.truncate(log, size)

    def look(self) -> dict[str, int]:
        process.keep_small(self.folder)
        return {path.name: path.stat().st_size for path in self.folder.iterdir()}


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DriverLogs:
    return DriverLogs(tmp_path, monkeypatch)


def test_a_drivers_logs_give_way_while_the_disk_is_nearly_full(logs: DriverLogs) -> None:
    before = {path.name: path.stat().st_size for path in logs.folder.iterdir()}
    assert logs.look() == before
    logs.free = KEEP_FREE - 1
    assert logs.look() == {"driver.log": 0, "spark.log": 4, "status.json": 4}
    logs.grow(KEEP_LOG)
    assert logs.look()["driver.log"] == KEEP_LOG


def test_a_drivers_log_that_is_too_long_is_copied_and_begun_again(
    logs: DriverLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOG_LIMIT", 3 * KEEP_LOG)
    logs.grow(3 * KEEP_LOG + 1)
    seen = logs.look()
    assert (seen["driver.log"], seen["driver.log.1"]) == (0, 3 * KEEP_LOG + 1)


def _no_room() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize("known", [False, True])
def test_a_program_starts_where_its_identity_cannot_be_written(tmp_path: Path, known: bool) -> None:
    file = tmp_path / "web.process"
    if known:
        file.write_text("{}")
    done = subprocess.run(
        [sys.executable, "-I", program.__file__, str(file), "sh", "-c", "exit 5"],
        preexec_fn=_no_room,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == (["web.process"] if known else [])


def test_an_identity_is_written_in_place_where_there_is_room_for_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "web.process"
    file.write_text(json.dumps(program.identity() | {"longer": "x" * 100}))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    program.write_identity(str(file))
    assert json.loads(file.read_text()) == program.identity()
    assert [path.name for path in tmp_path.iterdir()] == ["web.process"]


def test_a_full_disk_is_recognized_below_other_errors_and_nothing_else_is() -> None:
    try:
        try:
            with Path("/dev/full").open("wb", buffering=0) as full:
                full.write(b"x")
        except OSError as error:
            raise RuntimeError("the session was not saved") from error
    except RuntimeError as error:
        found = full_disk(error)
    assert found is not None
    assert "The disk is full" in str(found)
    assert full_disk(ValueError("no such column")) is None
    assert full_disk(RuntimeError("disk I/O error")) is None  # with room left: something else
    assert full_disk(None) is None
