"""An author of Python tries to get out: stopped within walls, and done where there are none.

One real driver for each mode, whose query's code tries everything (`users_attack`). That each
attack succeeds in mode "neither" shows that it is one.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate_ground.files import take_lock
from queries.domain.hosts import Mode
from queries.domain.protocol import RunState
from tests.spark.driver_under_test import DriverUnderTest

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(600)]

ATTACKS = (
    "reads secret_key",
    "reads the database",
    "reads another application's secret",
    "reads another driver's log",
    "reads another checkpoint",
    "reads the worker's environment",
    "signals the worker",
    "ends a neighbour",
    "traces the worker",
    "replaces a control file",
    "replaces current.json",
    "replaces another's lock",
    "replaces another's owner",
)
SECRET = "a-key-that-only-the-control-plane-has"


@dataclass
class Tried:
    """What came of the attacks in one mode."""

    mode: Mode
    driver: DriverUnderTest
    found: dict[str, str]
    neighbour_ended: bool


def _control_plane(home: Path) -> None:
    """Lay out what stands around a driver, and is not its own; for its account alone, as we do."""
    before = os.umask(0o077)
    for name, text in {
        "secret_key": SECRET,
        "headgate.sqlite3": "rows",
        "secrets/theirs": "their-password",
        "secrets/ours": "our-password",
        "drivers/other/7/own/driver.log": "their rows",
        "checkpoints/other/offsets/0": "v1",
        "checkpoints/.headgate/other.held/lock": "",
        "checkpoints/.headgate/other.held/owner.json": "{}",
        "data/given.txt": "one",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    os.umask(before)


def _sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])


@pytest.fixture(
    scope="module",
    params=[
        Mode.NEITHER,
        pytest.param(Mode.BUBBLEWRAP, marks=pytest.mark.walls),
    ],
)
def tried(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tried]:
    mode: Mode = request.param
    home = tmp_path_factory.mktemp("home")
    _control_plane(home)
    root = home / "root"
    root.mkdir()
    shutil.copy(Path(__file__).with_name("users_attack.py"), root)
    driver = DriverUnderTest(home, walls=mode)
    worker, neighbour = _sleeper(), _sleeper()
    secrets = home / "secrets"
    if mode is not Mode.NEITHER:
        secrets = driver.directory / "control/secrets"
    spec = {
        "kind": "python",
        "function": "users_attack:attack",
        "params": {
            "home": str(home),
            "driver": str(driver.directory),
            "found": str(home / "data/found.json"),
            "worker": str(worker.pid),
            "neighbour": str(neighbour.pid),
            "secrets": str(secrets),
        },
        "sink": {"format": "noop"},
        "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
    }
    copies, sha256 = driver.launcher.freeze_code((str(root),))
    try:
        driver.launch(
            code_roots=copies,
            code_sha256=sha256,
            env={"PASSWORD": "file:ours"},
            secrets_dir=str(home / "secrets"),
            data_roots=(f"file://{home}/data",),
            own_folders=(f"file://{home}",),
            checkpoints=(f"file://{home}/checkpoints/q1",),
        ).ready()
        driver.start(10, spec)
        assert driver.wait_run(10, RunState.RUNNING, RunState.FAILED).state is RunState.RUNNING
        found = json.loads((home / "data/found.json").read_text())
        ended = found["ends a neighbour"] == "done" and neighbour.wait(60) != 0
        yield Tried(mode, driver, found, ended or neighbour.poll() is not None)
    finally:
        driver.end()
        for process in (worker, neighbour):
            process.kill()
            process.wait()


@pytest.mark.guarantee("G-ISOLATION-2")
@pytest.mark.promise
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_stopped_by_walls_and_done_without(tried: Tried, attack: str) -> None:
    done = tried.found[attack] == "done"
    assert done is (tried.mode is Mode.NEITHER), tried.found[attack]


def test_a_neighbour_lives_on_beyond_walls(tried: Tried) -> None:
    assert tried.neighbour_ended is (tried.mode is Mode.NEITHER)


@pytest.mark.guarantee("G-ISOLATION-2")
def test_a_planted_link_is_followed_in_no_mode(tried: Tried) -> None:
    assert tried.found["plants a link for the log"] == "done"
    assert (tried.driver.directory / "own/driver.log").read_text() == SECRET
    assert tried.driver.launcher.log_tail("app", 1) == ""


def test_a_driver_has_the_secrets_that_it_names(tried: Tried) -> None:
    assert tried.found["reads its own secret"] == "done"


def test_what_the_walls_leave_is_a_driver_like_any_other(tried: Tried) -> None:
    """Its processes are known by the numbers that they have here, and its checkpoint's lock."""
    driver = tried.driver
    ident = driver.ident()
    status = driver.sight().status
    assert status is not None
    assert ident.jvm_pid is not None
    assert status.jvm_pid == ident.jvm_pid
    command = Path(f"/proc/{ident.jvm_pid}/cmdline").read_bytes()
    assert b"org.apache.spark" in command
    lock = driver.home / "checkpoints/.headgate/q1.held/lock"
    assert take_lock(lock) is None
