"""Every driver gets an exit: killed, told to leave, orphaned or never started.

One home and one checkpoint; each test launches the next epoch on it, as supervision would.
"""

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headgate_ground import identities, spool
from headgate_ground.wire import FIELD, EventKind, HeartbeatBody, WireEvent
from queries.domain.protocol import (
    EXIT,
    IDENT,
    Current,
    ExitReport,
    Ident,
    Killer,
    RunState,
    Want,
)
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness
from queries.driver_folder import DriverFolder, current_file
from queries.launchers.process.launcher import LocalProcessLauncher
from tests.pieces import redis_server
from tests.spark.driver_under_test import DriverUnderTest, holder, rate_query, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.faults]

EPOCHS = itertools.count(1)  # rising, as an installation draws them

FORKS = """
import os
import subprocess
import time


def frame(spark, params):
    if os.fork() == 0:  # a child that keeps whatever it has inherited
        time.sleep(600)
        os._exit(0)
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    return spark.readStream.format("rate").option("rowsPerSecond", "5").load()
"""
WAITS = """
import time
from pathlib import Path


def writes(spark, params):
    def write(batch, number):
        Path(params["writing"]).touch()
        time.sleep(600)

    return spark.readStream.format("rate").load().writeStream.foreachBatch(write)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("exits")
    (home / "root").mkdir()
    (home / "root/users_forks.py").write_text(FORKS)
    (home / "root/users_waits.py").write_text(WAITS)
    return home


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
def drivers(home: Path, redis_url: str) -> Iterator[list[DriverUnderTest]]:
    """Collect the drivers of a test, and leave none behind."""
    started: list[DriverUnderTest] = []
    yield started
    for driver in started:
        driver.end()


@pytest.fixture(scope="module")
def strangers() -> Iterator[list[DriverUnderTest]]:
    """Collect the drivers of another application, and leave none behind."""
    launched: list[DriverUnderTest] = []
    yield launched
    for driver in launched:
        driver.end()


def _stranger(strangers: list[DriverUnderTest], home: Path) -> DriverUnderTest:
    """Return a driver of another application: the last one, if a test has put it to rest."""
    if not strangers or not strangers[-1].idle():
        for driver in strangers:
            driver.end()
        strangers.append(DriverUnderTest(home, application="by-hand", epoch=next(EPOCHS)))
        strangers[-1].launch()
    strangers[-1].ready()
    return strangers[-1]


def _running(
    drivers: list[DriverUnderTest], home: Path, redis_url: str, **entry: object
) -> DriverUnderTest:
    """Launch an epoch whose run 10 streams from the one checkpoint."""
    driver = DriverUnderTest(home, epoch=next(EPOCHS))
    drivers.append(driver)
    driver.launch(redis_url=redis_url, code_roots=(str(home / "root"),))
    driver.ready()
    spec = entry.pop("spec", None) or rate_query()
    assert isinstance(spec, dict)
    driver.start(10, spec, epoch=1000 + driver.epoch, **entry)
    assert driver.wait_run(10, RunState.RUNNING, RunState.REFUSED).state is RunState.RUNNING
    return driver


def _report(driver: DriverUnderTest) -> ExitReport:
    report = driver.wait_exit().exit
    assert report is not None
    return report


def _notices(redis_url: str, epoch: int) -> list[WireEvent]:
    with redis.Redis.from_url(redis_url, socket_timeout=5) as client:
        entries = [
            WireEvent.decode(fields[FIELD.encode()]) for _, fields in client.xrange("events")
        ]
    return [
        event for event in entries if (event.kind, event.epoch) == (EventKind.DRIVER_EXIT, epoch)
    ]


@pytest.mark.guarantee("G-EXIT-1")
@pytest.mark.promise
@pytest.mark.redis
def test_a_killed_python_takes_its_jvm_and_its_children_with_it(
    drivers: list[DriverUnderTest], home: Path, redis_url: str
) -> None:
    forks = {"kind": "python", "function": "users_forks:frame", "sink": {"format": "noop"}}
    driver = _running(drivers, home, redis_url, spec=forks)
    ident = driver.ident()
    assert ident.jvm_pid is not None
    below = identities.descendants(ident.shim_pid)
    assert len(below) >= 4  # Python, JVM, the forked child, the sleep
    known = [(pid, identities.start_time(pid)) for pid in below]
    driver.kill_python()
    report = _report(driver)
    assert (report.python, report.killed) == ("SIGKILL", Killer.STRANGER)
    assert report.jvm in ("0", "SIGKILL")  # it left when its standard input ended, or was helped
    assert not [pid for pid, started in known if identities.is_alive(pid, started)]
    wait_for(lambda: not (driver.directory / "own/tmp").exists(), "the end of its temporary files")
    assert holder(f"file://{home}/checkpoints/q1") is None
    notice = wait_for(lambda: _notices(redis_url, driver.epoch), "the shim's notice")
    assert [(event.driver, event.epoch, event.seq) for event in notice] == [
        (driver.epoch, driver.epoch, 0)
    ]
    assert notice[0].body["python"] == "SIGKILL"


def test_a_killed_jvm_makes_its_python_leave_with_a_code_of_its_own(
    drivers: list[DriverUnderTest], home: Path, redis_url: str
) -> None:
    driver = _running(drivers, home, redis_url)
    jvm = driver.ident().jvm_pid
    assert jvm is not None
    os.kill(jvm, signal.SIGKILL)
    report = _report(driver)
    assert (report.python, report.jvm) == ("71", "SIGKILL")
    assert report.killed is Killer.STRANGER
    assert report.last_seq is not None
    # The driver's death is not the query's failure.
    line = driver.run(10)
    assert line is not None
    assert line.state is RunState.RUNNING
    told = [
        WireEvent.decode(data)
        for _, data in spool.read_from(driver.directory / "own" / spool.FOLDER, 1)
    ]
    beats = [HeartbeatBody.read(event.body) for event in told if event.kind is EventKind.HEARTBEAT]
    assert (beats[0].jvm_alive, beats[-1].jvm_alive) == (True, False)


def test_a_python_that_outlives_its_jvm_in_the_middle_of_a_batch_keeps_the_checkpoint(
    drivers: list[DriverUnderTest], strangers: list[DriverUnderTest], home: Path
) -> None:
    """Nobody else may write while a call of foreachBatch does: not another application either."""
    driver = DriverUnderTest(home, epoch=next(EPOCHS))
    drivers.append(driver)
    # Its shim is to leave a Python that does not end alone for as long as this test takes.
    driver.launch(code_roots=(str(home / "root"),), stop_timeout_s=600).ready()
    place, writing = f"file://{home}/checkpoints/q3", home / "writing"
    spec = {"kind": "python", "function": "users_waits:writes", "params": {"writing": str(writing)}}
    driver.start(30, spec, checkpoint=place)
    wait_for(writing.exists, "its batch is being written")
    other = _stranger(strangers, home)
    jvm = driver.ident().jvm_pid
    assert jvm is not None
    assert holder(place) == jvm
    driver.kill_python(signal.SIGSTOP)  # it neither leaves by itself nor lets go
    os.kill(jvm, signal.SIGKILL)
    wait_for(lambda: holder(place) is None, "the end of the JVM and of its lock")

    other.start(40, rate_query(), checkpoint=place, epoch=5000)
    refused = other.wait_run(40, RunState.REFUSED, RunState.RUNNING)
    assert refused.error is not None, refused
    assert refused.error.refused == "held"
    assert "Python" in refused.error.message
    other.drop(40)
    driver.kill_python()
    driver.wait_exit()
    other.start(41, rate_query(), checkpoint=place, epoch=5001)
    assert other.wait_run(41, RunState.RUNNING, RunState.REFUSED).state is RunState.RUNNING
    other.rest()


def test_a_driver_told_to_leave_leaves_with_0_and_a_second_one_was_kept_out(
    drivers: list[DriverUnderTest],
    strangers: list[DriverUnderTest],
    home: Path,
    redis_url: str,
) -> None:
    driver = _running(drivers, home, redis_url)
    before = driver.ident()
    # Launched again, by a worker that does not know: nothing happens.
    driver.launch()
    assert driver.ident() == before
    # Another driver, by hand, on the same checkpoint: refused, and told by whom.
    other = _stranger(strangers, home)
    other.start(20, rate_query(), checkpoint=f"file://{home}/checkpoints/q1", epoch=5000)
    refused = other.wait_run(20, RunState.REFUSED, RunState.RUNNING)
    assert refused.error is not None
    assert refused.error.refused == "held"
    assert refused.error.holder_pid == before.jvm_pid
    assert str(before.jvm_pid) in refused.error.message
    other.drop(20)
    other.assign(end=True)  # nothing runs: it leaves by itself
    assert _report(other).python == "0"
    driver.kill_python(signal.SIGTERM)
    report = _report(driver)
    assert (report.python, report.jvm, report.oom, report.core) == ("0", "0", False, False)
    ended = driver.run(10)
    assert ended is not None
    assert (ended.state, ended.asked_for) == (RunState.ENDED, Want.STOP)
    assert report.last_seq is not None
    assert report.last_seq > 0


def test_an_orphaned_jvm_is_seen_named_and_killed(
    drivers: list[DriverUnderTest], home: Path, redis_url: str
) -> None:
    driver = _running(drivers, home, redis_url)
    ident = driver.ident()
    assert ident.jvm_pid is not None
    location = f"file://{home}/checkpoints/q1"
    os.kill(ident.shim_pid, signal.SIGKILL)
    assert driver.sight().liveness is Liveness.ALIVE  # a dead shim kills no driver
    os.kill(ident.jvm_pid, signal.SIGSTOP)  # it will not see that its driver dies
    driver.kill_python()
    seen = wait_for(
        lambda: s if (s := driver.sight()).liveness is not Liveness.ALIVE else None, "Python's end"
    )
    assert seen.liveness is Liveness.ORPHANED
    assert holder(location) == ident.jvm_pid
    driver.launcher.kill(driver.application, driver.epoch, Reason.GIVEN_UP)
    assert holder(location) is None
    assert driver.sight(locations=(location,)).liveness is Liveness.GONE
    assert not (
        driver.directory / "control" / EXIT
    ).exists()  # nobody saw it: unknown, never a guess


def test_a_jvm_told_to_end_is_the_drivers_end_and_no_failure_of_its_query(
    drivers: list[DriverUnderTest], home: Path, redis_url: str
) -> None:
    driver = _running(drivers, home, redis_url)
    jvm = driver.ident().jvm_pid
    assert jvm is not None
    os.kill(jvm, signal.SIGTERM)
    report = _report(driver)
    assert report.python in ("71", "74")
    assert report.jvm == "143"  # Java's own code after a SIGTERM
    line = driver.run(10)
    assert line is not None
    assert line.state is RunState.RUNNING


def test_a_shim_that_is_told_to_end_lets_its_driver_leave(
    drivers: list[DriverUnderTest], home: Path, redis_url: str
) -> None:
    driver = _running(drivers, home, redis_url)
    os.kill(driver.ident().shim_pid, signal.SIGTERM)
    assert _report(driver).python == "0"


def test_a_session_that_cannot_start_says_why_and_the_driver_leaves(
    drivers: list[DriverUnderTest], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "java/bin").mkdir(parents=True)
    java = home / "java/bin/java"
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home / "java"))
    driver = DriverUnderTest(home, epoch=next(EPOCHS))
    drivers.append(driver)
    driver.launch()
    assert _report(driver).python == "70"
    status = driver.sight().status
    assert status is not None
    assert status.error is not None
    assert "JAVA_GATEWAY_EXITED" in status.error.error_class


def test_a_shim_whose_epoch_is_not_current_starts_nothing(
    drivers: list[DriverUnderTest], home: Path
) -> None:
    driver = DriverUnderTest(home, epoch=next(EPOCHS))
    drivers.append(driver)
    driver.directory.mkdir(parents=True)
    current = current_file(driver.directory.parent)
    current.parent.mkdir(exist_ok=True)
    current.write_text(Current(next(EPOCHS), "later").dumps())
    driver.launch()
    report = _report(driver)
    assert (report.python, report.jvm) == ("FENCED", "FENCED")
    assert not (driver.directory / "control" / IDENT).exists()


def test_a_driver_of_another_boot_is_gone(home: Path) -> None:
    launcher = LocalProcessLauncher(home / "drivers", home / "code")
    directory = launcher.directory("rebooted", 1)
    control = DriverFolder.make(directory).control
    own = identities.start_time(os.getpid())
    assert own is not None
    ident = Ident("another-boot", os.getpid(), own, os.getpid(), own, "2026-01-01T00:00:00+00:00")
    (control / IDENT).write_text(ident.dumps())
    assert launcher.sight("rebooted", 1).liveness is Liveness.GONE
    launcher.terminate("rebooted", 1)  # this very process has that pid: it must not be signalled
    launcher.kill("rebooted", 1, Reason.GIVEN_UP)
    assert json.loads((control / IDENT).read_text())["pid"] == os.getpid()
