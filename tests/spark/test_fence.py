"""A driver whose checkpoint was taken over ends, whatever it is doing: real drivers on S3."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queries.domain.checkpoints.lock_files import owners_folder
from queries.domain.protocol import RunState
from queries.jvm.compiled import our_jar
from queries.runtime.checkpoints.owners import Owners
from queries.runtime.checkpoints.ownership import Owner
from queries.services.supervision import assignments
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, rate_query, wait_for
from tests.storage.stores import HadoopJvm, S3Store

pytestmark = [pytest.mark.spark, pytest.mark.s3]


def launched(home: Path, store: S3Store, **changes: Any) -> DriverUnderTest:
    """Start a driver that can use the store, on a host whose worker is silent."""
    driver = DriverUnderTest(home)
    jars = (*sorted(pieces.s3_connector().glob("*.jar")), our_jar(home / "classes"))
    conf = {**store.conf, **assignments._CHECKPOINT_FILES}
    asked: dict[str, Any] = {"stop_timeout_s": 2, "fence_watch_s": 0.5, "conf": conf}
    return driver.launch(jars=tuple(str(jar) for jar in jars), **asked | changes)


@pytest.fixture
def driver(tmp_path: Path, s3: S3Store) -> Iterator[DriverUnderTest]:
    made = launched(tmp_path, s3)
    try:
        made.ready()
        yield made
    finally:
        made.end()


def take_over(s3: S3Store, jvm: HadoopJvm, location: str, *, epoch: int) -> None:
    """Own the checkpoint, as a later start elsewhere does."""
    files = jvm.files(s3)
    Owners(Owner("here", 2, "two"), lambda path: (files, jvm.path(path))).own(
        location, epoch, takeover=False
    )
    files.close()


def running(driver: DriverUnderTest, s3: S3Store) -> str:
    """Start a query on a new checkpoint; return its location once it has committed."""
    location = s3.place("fence")
    driver.start(11, rate_query(), checkpoint=location)
    driver.wait_run(11, RunState.RUNNING)
    return location


def exits(driver: DriverUnderTest) -> tuple[str, str]:
    """Return how the Python and the JVM of a driver ended, once they have."""
    report = driver.wait_exit().exit
    assert report is not None
    return report.python, report.jvm


def test_a_driver_halts_its_jvm_once_a_later_start_owns_the_checkpoint(
    driver: DriverUnderTest, s3: S3Store, hadoop_jvm: HadoopJvm
) -> None:
    location = running(driver, s3)
    status = driver.run(11)
    assert status is not None
    assert status.warnings == ()
    take_over(s3, hadoop_jvm, location, epoch=500)
    assert exits(driver) == ("71", "76")
    log = driver.launcher.log_tail(driver.application, driver.epoch)
    assert f"a later start has taken over the checkpoint: {owners_folder(location)}" in log
    status = driver.run(11)
    assert status is not None
    assert status.error is None  # the query's code has not failed


def test_a_python_process_that_is_stopped_does_not_save_its_jvm(
    driver: DriverUnderTest, s3: S3Store, hadoop_jvm: HadoopJvm
) -> None:
    location = running(driver, s3)
    driver.kill_python(signal.SIGSTOP)
    take_over(s3, hadoop_jvm, location, epoch=500)
    assert exits(driver) == ("SIGKILL", "76")


def test_a_machine_that_wakes_after_a_takeover_commits_nothing(
    driver: DriverUnderTest, s3: S3Store, hadoop_jvm: HadoopJvm, tmp_path: Path
) -> None:
    location = running(driver, s3)
    ident, files = driver.ident(), hadoop_jvm.files(s3)
    assert ident.jvm_pid is not None
    for pid in (ident.pid, ident.jvm_pid):
        os.kill(pid, signal.SIGSTOP)
    second = launched(tmp_path / "second", s3)
    try:
        second.ready()
        second.start(21, rate_query(), checkpoint=location)
        second.wait_run(21, RunState.RUNNING)
        taken = _writers(files, hadoop_jvm, location)
        for pid in (ident.jvm_pid, ident.pid):
            os.kill(pid, signal.SIGCONT)
        assert exits(driver)[1] == "76"
        wait_for(lambda: len(_writers(files, hadoop_jvm, location)) > len(taken) + 2, "it goes on")
        # One writer until the takeover, the other one from then on.
        found = _writers(files, hadoop_jvm, location)
        first, last = found[0], found[-1]
        assert first != last
        assert found == sorted(found, key=lambda one: one == last)
        status = second.run(21)
        assert status is not None
        assert (status.state, status.error) == (RunState.RUNNING, None)
    finally:
        second.end()
        files.close()


def _writers(files: Any, jvm: HadoopJvm, location: str) -> list[str]:
    """Return which JVM has written each commit of a checkpoint, oldest first."""
    listed = files.listStatus(jvm.path(f"{location}/commits"))
    numbers = sorted(int(str(one.getPath().getName())) for one in listed)
    return [
        bytes(files.getXAttr(jvm.path(f"{location}/commits/{each}"), "header.headgate-writer"))
        .decode()
        .rpartition("-")[0]
        for each in numbers
    ]
