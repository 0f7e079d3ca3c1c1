"""Of two drivers on one checkpoint one has it: real JVMs that hold real locks, without Spark."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from headgate_ground.files import lock_holder
from queries.runtime.checkpoints.locks import CheckpointLock, Locks
from queries.runtime.checkpoints.owners import CheckpointRefused
from queries.runtime.failures.error_capture import StepFailed

ENDS_WITHIN_S = 30
[PY4J] = Path(pyspark.__file__).parent.joinpath("jars").glob("py4j-*.jar")
SPARK_JARS = f"{PY4J.parent}/*"


class OneDriver:
    """A JVM as a driver has one, and the checkpoints that it holds; this Python is its Python."""

    def __init__(self, java_home: str, installation: str = "here", jars: str = "") -> None:
        port, self.process = self._begin(java_home, jars)
        # Without memory management no finalizer asks a JVM that was killed.
        asked = GatewayParameters(port=port, enable_memory_management=False)
        self.gateway = JavaGateway(gateway_parameters=asked)
        self.locks = Locks(
            self.gateway.jvm, self.process.pid, installation=installation, driver=1, host="one"
        )
        self._locks: list[CheckpointLock] = []

    @staticmethod
    def _begin(java_home: str, jars: str) -> "tuple[int, subprocess.Popen[bytes]]":
        port, process = launch_gateway(
            jarpath=str(PY4J),
            classpath=jars,
            java_path=f"{java_home}/bin/java",
            javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx64m"],
            die_on_exit=True,
            return_proc=True,
        )
        return port, process

    def take(self, place: str, **asked: Any) -> CheckpointLock:
        """Take a checkpoint, as `Locks.take` does."""
        held = self.locks.take(place, **asked)
        self._locks.append(held)
        return held

    def kill(self) -> None:
        """End the driver: its JVM, and with its Python what that has open."""
        self.kill_jvm()
        for held in self._locks:
            os.close(held.descriptor)
        self._locks.clear()

    def release(self, held: CheckpointLock) -> None:
        """Release a checkpoint, as `Locks.release` does."""
        self.locks.release(held)
        self._locks.remove(held)

    def kill_jvm(self) -> None:
        """End the JVM with SIGKILL, as the kernel does where memory runs out."""
        if self.process.poll() is None:
            self.gateway.close()
            self.process.kill()
            self.process.wait(ENDS_WITHIN_S)
            assert self.process.stdin is not None
            self.process.stdin.close()  # its output is py4j's to close


class Drivers:
    """Drivers that end with the test."""

    def __init__(self, java_home: str, stack: ExitStack) -> None:
        self._java_home, self._stack = java_home, stack

    def one(self, installation: str = "here", jars: str = "") -> OneDriver:
        """Start another driver's JVM, with a class path of `jars`."""
        made = OneDriver(self._java_home, installation, jars)
        self._stack.callback(made.kill)
        return made


@pytest.fixture
def drivers(java_home: str) -> Iterator[Drivers]:
    with ExitStack() as stack:
        yield Drivers(java_home, stack)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return (tmp_path / "delays").as_uri()


def _refused(driver: OneDriver, place: str, **asked: Any) -> dict[str, Any]:
    with pytest.raises(CheckpointRefused) as refused:
        driver.take(place, **asked)
    error = refused.value.error
    return {"why": error.refused, "holder": error.holder_pid, "text": error.message}


@pytest.mark.guarantee("G-FENCE-1")
def test_of_two_drivers_on_one_checkpoint_the_second_is_refused_and_told_by_whom(
    drivers: Drivers, place: str, tmp_path: Path
) -> None:
    first, second = drivers.one(), drivers.one()
    held = first.take(place, run=1, epoch=1)
    told = _refused(second, place, run=2, epoch=2)
    assert (told["why"], told["holder"]) == ("held", first.process.pid)
    assert f"is held by the process {first.process.pid}" in told["text"]
    assert lock_holder(tmp_path / ".headgate/delays.held/lock") == first.process.pid
    first.release(held)
    assert second.take(place, run=2, epoch=2).run == 2
    assert lock_holder(tmp_path / ".headgate/delays.held/lock") == second.process.pid


def test_a_driver_that_is_killed_leaves_its_checkpoint_to_the_next_epoch(
    drivers: Drivers, place: str
) -> None:
    first, second = drivers.one(), drivers.one()
    first.take(place, run=1, epoch=1)
    first.kill()
    assert second.take(place, run=2, epoch=2).run == 2


@pytest.mark.guarantee("G-FENCE-1")
def test_a_checkpoint_is_held_until_the_python_of_its_driver_is_gone_too(
    drivers: Drivers, place: str
) -> None:
    first, second = drivers.one(), drivers.one()
    first.take(place, run=1, epoch=1)
    first.kill_jvm()  # what foreachBatch runs in Python may still write
    told = _refused(second, place, run=2, epoch=2)
    assert (told["why"], told["holder"]) == ("held", None)
    assert "is held by the Python process of another driver" in told["text"]
    first.kill()
    assert second.take(place, run=2, epoch=2).run == 2


@pytest.mark.guarantee("G-FENCE-2")
def test_a_start_below_the_epoch_that_has_taken_over_is_fenced_and_a_later_one_is_not(
    drivers: Drivers, place: str, tmp_path: Path
) -> None:
    driver = drivers.one()
    driver.release(driver.take(place, run=2, epoch=7))
    told = _refused(driver, place, run=1, epoch=6)
    assert told["why"] == "fenced"
    assert "A later start (epoch 7) has taken over" in told["text"]
    assert lock_holder(tmp_path / ".headgate/delays.held/lock") is None
    assert driver.take(place, run=3, epoch=8).run == 3


def test_a_checkpoint_of_another_installation_is_refused_until_a_person_takes_it_over(
    drivers: Drivers, place: str
) -> None:
    driver, other = drivers.one(), drivers.one("there")
    driver.release(driver.take(place, run=1, epoch=9))
    assert _refused(other, place, run=2, epoch=1)["why"] == "foreign"
    assert other.take(place, run=2, epoch=1, takeover=True).run == 2


def test_a_lock_that_vanished_is_taken_again_and_one_that_another_took_is_told(
    drivers: Drivers, place: str, tmp_path: Path
) -> None:
    first, second = drivers.one(), drivers.one()
    first.take(place, run=1, epoch=1)
    file = str(tmp_path / ".headgate/delays.held/lock")
    # Closing any channel on its file drops a lock of the same process.
    first.gateway.jvm.java.io.RandomAccessFile(file, "rw").close()
    assert lock_holder(Path(file)) is None
    assert first.locks.lost() == []
    assert lock_holder(Path(file)) == first.process.pid
    first.gateway.jvm.java.io.RandomAccessFile(file, "rw").close()
    assert _refused(second, place, run=2, epoch=2)["why"] == "held"  # this Python's part is there
    taken = second.gateway.jvm.java.io.RandomAccessFile(file, "rw").getChannel()
    assert taken.tryLock(0, 1, False) is not None  # as a driver that locks the JVM's part alone
    [(lost, holder)] = first.locks.lost()
    assert (lost.run, holder) == (1, second.process.pid)


def test_a_start_that_waits_for_a_former_owner_ends_its_wait_once_it_is_not_wanted(
    drivers: Drivers,
) -> None:
    held = CheckpointLock("s3a://flights/delays", 1, 1, free_at=time.monotonic() + 1000)
    wanted, told = iter((True, True, False, False)), list[str | None]()
    drivers.one().locks.wait_for_former_owner(
        held, wanted=lambda: next(wanted), report_wait=told.append
    )
    assert told[0] is not None
    assert told[1:] == [None]


def test_a_hadoop_that_cannot_fence_s3_takes_no_checkpoint_there(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 3.5 and 4.0 bring one, and folders of an older release still have it."""
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    with pytest.raises((StepFailed, CheckpointRefused)) as rejected:
        drivers.one().locks.take("s3a://flights/delays", run=1, epoch=1)
    assert "cannot exclude a second writer" in str(rejected.value)
    assert "`make spark ARGS=4.0`" in str(rejected.value)
    with pytest.raises(CheckpointRefused, match="without Headgate's Java classes"):
        drivers.one(jars=SPARK_JARS).locks.take("s3a://flights/delays", run=1, epoch=1)


def test_a_connector_that_cannot_fence_s3_takes_no_checkpoint_there(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release before installed Hadoop 3.4.1's for Spark 4.0, and such a folder stays."""
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    driver = drivers.one(jars=SPARK_JARS)
    jvm = driver.gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook("package org.apache.hadoop.fs.s3a; public class S3AFileSystem {}")
    jvm.java.lang.Thread.currentThread().setContextClassLoader(compiler.getClassLoader())
    with pytest.raises((StepFailed, CheckpointRefused)) as rejected:
        driver.locks.take("s3a://flights/delays", run=1, epoch=1)
    assert "the connector s3 cannot exclude a second writer" in str(rejected.value)
    assert 'make connector ARGS="s3 --spark 4.0"' in str(rejected.value)
