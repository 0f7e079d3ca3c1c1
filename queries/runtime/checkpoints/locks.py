"""One live driver per checkpoint: a lock held by its processes, and a file that records its owner.

A checkpoint that is not local has neither, but numbered owner objects and a watch (`owners`,
`fence`); the rest of this docstring is about local ones.

The lock must be held exactly as long as the processes that execute batches exist: the JVM, and this
Python process, in which `foreachBatch` runs and may still write after the JVM is gone. So each
process locks one byte of the lock file, and a process that wants the checkpoint must lock both
bytes.

The JVM's lock is a POSIX record lock. Such a lock vanishes silently when *any* channel on its file
is closed in the same JVM, or when the garbage collector reclaims the channel. So there is one
registry per driver, keyed by the file itself and checked before anything is opened, and every
handle is pinned in the JVM. Whether a lock still exists is checked with the kernel, never with
Java. Python's lock belongs to its open file, so other accesses to the file cannot release it;
forked children close their copies.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from py4j.protocol import Py4JJavaError

from headgate_ground.files import (
    JVM_BYTE,
    PYTHON_BYTE,
    give_lock_back,
    lock_holder,
    open_plain,
    read_file,
    replace_file,
    take_lock,
)
from queries.domain.checkpoints.ownership import lock_file, owner_file
from queries.domain.protocol import WarningCode
from queries.domain.sparks import command
from queries.runtime.build import CONFIGURATION
from queries.runtime.checkpoints.logs import remote
from queries.runtime.checkpoints.owners import CheckpointRefused, Fence, Find, Owner, Owners
from queries.runtime.failures.error_capture import StepFailed

logger = logging.getLogger(__name__)

_PIN = "headgate.locks"  # key in System.getProperties(), which is never collected

_JVMS = (JVM_BYTE, 1, False)  # Java's tryLock: position, size, shared

#: Classes that came with Hadoop 3.4.2, the first to create an object on S3 only if it is new: one
#: of Spark's jars, and one of the connector's, whose file system is the third.
_CONDITIONAL = "org.apache.hadoop.fs.Options$CreateFileOptionKeys"
_S3A_CONDITIONAL = "org.apache.hadoop.fs.s3a.impl.write.WriteObjectFlags"
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"

TICK_S = 0.2  # between looks whether a start that waits is still wanted

Key = tuple[int, int]  # (st_dev, st_ino) of the lock file


def _remote(location: str) -> tuple[Any, Any]:
    from pyspark import SparkContext

    return remote(SparkContext._active_spark_context, location)


@dataclass(slots=True)
class CheckpointLock:
    """A checkpoint that a run of this driver may write to."""

    location: str
    run: int
    epoch: int  # epoch of the run: the number that pages show
    warning: str = ""  # why it is not fenced, "" if it is
    key: Key | None = None
    path: PurePosixPath | None = None
    handles: tuple[Any, ...] = ()  # Java's file, channel and lock
    descriptor: int = -1  # of Python's lock
    watch: Any = None  # Java's, if it is not local
    number: int = 0  # of its owner object, if it is not local
    free_at: float = 0.0  # monotonic: not before, a former owner elsewhere has halted; 0: now


class Locks:
    """The checkpoints held by this driver."""

    def __init__(
        self,
        jvm: Any,
        jvm_pid: int,
        *,
        installation: str,
        driver: int,
        host: str,
        ended_hosts: tuple[str, ...] = (),
        in_pod: bool = False,
        sees: Callable[[str], bool] = lambda _: True,
        find: Find = _remote,
        fence: Fence | None = None,
    ) -> None:
        """`sees` returns whether a location is visible in the driver's sandbox.

        `find` returns Hadoop's file system for a location that is not local, which `fence` watches.
        In a pod, only checkpoints that can be fenced are taken: a pod that no longer exists may
        still run on its node.
        """
        self._in_pod = in_pod
        self._jvm = jvm
        self._jvm_pid = jvm_pid
        self._owner = Owner(installation, driver, host, ended=ended_hosts)
        watch_s = fence.watch_s if fence is not None else 0.0
        self._owners = Owners(replace(self._owner, watch_s=watch_s), find)
        self._fence = fence
        self._sees = sees
        self._guard = threading.Lock()
        self._locks: dict[Key, CheckpointLock] = {}
        self._unlocked: dict[str, CheckpointLock] = {}  # by location: not on a local file system
        self._pins = jvm.java.util.concurrent.ConcurrentHashMap()
        jvm.java.lang.System.getProperties().put(_PIN, self._pins)
        os.register_at_fork(after_in_child=self._close_in_child)

    def take(
        self, location: str, *, run: int, epoch: int, takeover: bool = False
    ) -> CheckpointLock:
        """Lock a checkpoint and write its owner file; raise `CheckpointRefused` if not allowed."""
        path = lock_file(location)
        if self._in_pod and path is not None:
            raise _not_in_pod(location, "its files would go with the pod")
        if not self._sees(location):
            # Treated like a lock that only a new driver can get: supervision replaces an idle one.
            text = (
                f"The checkpoint {location} is outside the folders with which this driver was "
                "started. Restart the application; its next driver can use the checkpoint."
            )
            raise CheckpointRefused("own", text, self._jvm_pid)
        if path is None:
            _require_fence(self._jvm, location)
        if path is None and (missing := self._missing()):
            text = (
                f"The checkpoint {location} is not on a local disk, and this driver was started "
                "without Headgate's Java classes, which keep a second driver out of it: "
                f"{missing}. Restart the application; its next driver starts with them."
            )
            raise CheckpointRefused("own", text, self._jvm_pid)  # as above
        lock = (
            self._note(location, run, epoch)
            if path is None
            else self._lock(location, path, run, epoch)
        )
        try:
            self._own(lock, epoch, takeover)
        except BaseException:
            self.release(lock)
            raise
        return lock

    def wait_for_former_owner(
        self,
        lock: CheckpointLock,
        *,
        wanted: Callable[[], bool],
        report_wait: Callable[[str | None], object],
    ) -> None:
        """Wait until a former owner elsewhere must have halted, or the start is not wanted.

        `report_wait` gets the time at which the wait ends (ISO 8601 UTC), and then None. Raises
        `CheckpointRefused` if another start owns the checkpoint afterwards.
        """
        if not lock.free_at:
            return
        left = timedelta(seconds=lock.free_at - time.monotonic())
        report_wait((datetime.now(UTC) + left).isoformat())
        while (left_s := lock.free_at - time.monotonic()) > 0 and wanted():
            time.sleep(min(left_s, TICK_S))
        if wanted():
            self._owners.confirm(lock.location, lock.number)
        lock.free_at = 0.0
        report_wait(None)

    def release(self, lock: CheckpointLock) -> None:
        """Release a checkpoint; call this only once no part of the run can still write to it."""
        with self._guard:
            if lock.key is None:
                if self._unlocked.get(lock.location) is lock:
                    del self._unlocked[lock.location]
                    if lock.watch is not None:  # before the next start creates the next number
                        lock.watch.end()
                return
            if self._locks.get(lock.key) is not lock:
                return
            try:
                # Closing the file closes its channel, which releases the lock.
                lock.handles[0].close()
                self._pins.remove(_pin(lock.key))
            finally:
                del self._locks[lock.key]
                with suppress(OSError):  # users' code may have closed it
                    give_lock_back(lock.descriptor)

    def still_active(self, spark_message: str) -> CheckpointRefused:
        """Return the error for a start whose query is already active without one of our runs."""
        text = (
            "An earlier run of the query has not ended in this driver. Spark reports: "
            f"{spark_message}"
        )
        return CheckpointRefused("own", text, self._jvm_pid)

    def lost(
        self, isolate_errors: Callable[[str], AbstractContextManager[object]] = nullcontext
    ) -> list[tuple[CheckpointLock, int | None]]:
        """Return the locks that the kernel no longer reports as ours, with their current holders.

        If nobody holds a lock, it is first taken again on the same channel (never by opening the
        file), and is returned only if that fails. `isolate_errors` guards the check of each lock.
        """
        lost = []
        with self._guard:
            for lock in self._locks.values():
                with isolate_errors(f"the lock of {lock.location}"):
                    if not self._has(lock):
                        assert lock.path is not None
                        lost.append((lock, lock_holder(Path(lock.path))))
        return lost

    def _has(self, lock: CheckpointLock) -> bool:
        """Return whether a lock is ours, taking it again if nobody holds it."""
        assert lock.path is not None
        holder = lock_holder(Path(lock.path))
        if holder == self._jvm_pid:
            return True
        if holder is None and self._take_again(lock):
            logger.warning("the lock on %s had disappeared and was taken again", lock.location)
            return True
        return False

    # --- the lock ---------------------------------------------------------------------

    def _note(self, location: str, run: int, epoch: int) -> CheckpointLock:
        """Separate this driver's runs if locking is impossible: owner objects keep out others."""
        with self._guard:
            if location in self._unlocked:
                raise self._own_run(self._unlocked[location])
            lock = self._unlocked[location] = CheckpointLock(location, run, epoch)
            return lock

    def _own_run(self, lock: CheckpointLock) -> CheckpointRefused:
        text = f"The checkpoint {lock.location} is held by run {lock.run} of the same driver"
        return CheckpointRefused(
            "own", f"{text}, which has not ended.", self._jvm_pid, run=lock.run
        )

    def _lock(self, location: str, path: PurePosixPath, run: int, epoch: int) -> CheckpointLock:
        file = Path(path)
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Created here, so that the key is known before the JVM opens anything.
        os.close(open_plain(file, os.O_RDWR | os.O_CREAT))
        stat = file.stat()
        key = (stat.st_dev, stat.st_ino)
        with self._guard:
            if key in self._locks:
                raise self._own_run(self._locks[key])
            self._refuse_locked(location, lock_holder(file))
            descriptor = take_lock(file, PYTHON_BYTE)
            if descriptor is None:
                raise _python_lock_refusal(location)
            try:
                handles = self._open(location, file)
            except BaseException:
                give_lock_back(descriptor)
                raise
            lock = CheckpointLock(location, run, epoch, "", key, path, handles, descriptor)
            self._locks[key] = lock
            return lock

    def _open(self, location: str, file: Path) -> tuple[Any, ...]:
        opened = self._jvm.java.io.RandomAccessFile(str(file), "rw")
        channel = opened.getChannel()
        lock = channel.tryLock(*_JVMS)
        if lock is None:  # another process was faster; closing cannot release any of our locks
            opened.close()
            self._refuse_locked(location, lock_holder(file))
            raise CheckpointRefused(
                "held", f"The checkpoint {location} is held by another process."
            )
        handles = (opened, channel, lock)
        stat = file.stat()
        pinned = self._jvm.java.util.ArrayList()
        for handle in handles:
            pinned.add(handle)
        self._pins.put(_pin((stat.st_dev, stat.st_ino)), pinned)
        return handles

    def _take_again(self, lock: CheckpointLock) -> bool:
        _, channel, java_lock = lock.handles
        try:
            java_lock.release()  # Java still believes that it holds the lock
            again = channel.tryLock(*_JVMS)
        except Exception as error:  # a closed channel cannot be locked again
            logger.warning("could not reacquire the lock on %s: %s", lock.location, error)
            return False
        if again is None:
            return False
        assert lock.key is not None
        lock.handles = (lock.handles[0], channel, again)
        self._pins.get(_pin(lock.key)).add(again)
        return True

    def _refuse_locked(self, location: str, holder: int | None) -> None:
        if holder == 0:  # outside our sandbox: its PID is not visible here
            raise CheckpointRefused("held", f"The checkpoint {location} is held by another driver.")
        if holder is not None:
            raise CheckpointRefused(
                "held", f"The checkpoint {location} is held by the process {holder}.", holder
            )

    def _close_in_child(self) -> None:
        """Keep users' child processes from holding a checkpoint longer than the driver does."""
        for lock in list(self._locks.values()):
            with suppress(OSError):
                os.close(lock.descriptor)

    # --- the owner --------------------------------------------------------------------

    def _own(self, lock: CheckpointLock, epoch: int, takeover: bool) -> None:
        location = lock.location
        if lock.path is None:
            self._own_remote(lock, epoch, takeover)
            return
        file = Path(owner_file(location))
        text = read_file(file)
        if text is not None:
            self._owner.compare(location, str(file), text, epoch, takeover=takeover)
        replace_file(file, self._owner.text(epoch))

    def _own_remote(self, lock: CheckpointLock, epoch: int, takeover: bool) -> None:
        owned = self._owners.own(lock.location, epoch, takeover=takeover)
        lock.number = owned.number
        if owned.wait_s:
            lock.free_at = time.monotonic() + owned.wait_s
        assert self._fence is not None, "`take` refuses the checkpoint without it"
        lock.watch = self._fence.watch(lock.location, owned.number)
        if because := owned.not_fenced:
            if self._in_pod:
                raise _not_in_pod(lock.location, f"a second driver is not kept out: {because}")
            lock.warning = WarningCode.NOT_FENCED.text(
                f"a second driver is not kept out of {lock.location}, because {because}"
            )

    def _missing(self) -> str:
        """Return why this driver cannot watch a checkpoint that is not local; "" if it can."""
        return "nothing watches it" if self._fence is None else self._fence.missing


def _not_in_pod(location: str, why: str) -> StepFailed:
    """Return the error that a driver in a pod cannot use a checkpoint."""
    cause = ValueError(
        f"{location} cannot be the checkpoint of a driver in a pod, because {why}. Specify a "
        "location on S3 or HDFS, or run the driver as a process"
    )
    return StepFailed("checkpoint", cause, error_class=CONFIGURATION)


def _require_fence(jvm: Any, location: str) -> None:
    """Raise `StepFailed` if this driver's Hadoop cannot fence a checkpoint at a location.

    Spark 3.5 and 4.0 come with such a Hadoop; Headgate replaces it (decision 0048). A connector of
    an older release stays until it is installed again.
    """
    if not location.startswith("s3a:"):
        return
    import pyspark  # the driver's own version, which is loaded by now

    version = ".".join(pyspark.__version__.split(".")[:2])
    if not _has_class(jvm, _CONDITIONAL):
        what, way_out = f"Hadoop of this Spark {version}", f"`{command(version)}`"
    elif _has_class(jvm, _S3A) and not _has_class(jvm, _S3A_CONDITIONAL):
        what, way_out = "connector s3", f'`make connector ARGS="s3 --spark {version}"`'
    else:
        return
    cause = ValueError(
        f"{location} is on S3, where the {what} cannot exclude a second writer. Install it again "
        f"with {way_out} on the driver's host, then restart the application"
    )
    raise StepFailed("checkpoint", cause, error_class=CONFIGURATION)


def _has_class(jvm: Any, name: str) -> bool:
    """Return whether Spark's class loader, which also sees the connectors' jars, finds a class."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(name, False, loader)
    except Py4JJavaError:
        return False
    return True


def _python_lock_refusal(location: str) -> CheckpointRefused:
    return CheckpointRefused(
        "held", f"The checkpoint {location} is held by the Python process of another driver."
    )


def _pin(key: Key) -> str:
    return f"{key[0]}:{key[1]}"
