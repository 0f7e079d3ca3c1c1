"""What driver and probe processes share: log, lock, messages to the shim, wake-ups.

A driver's logs are kept small, and they are the first to be deleted when the disk is full.
"""

import contextlib
import json
import logging
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from headgate_ground.files import KEEP_FREE, KEEP_LOG, free_bytes, take_lock, use_forgiving_output
from queries.domain.protocol import DRIVER_LOCK, DRIVER_LOG

#: Seconds to wait for an end that first appeared as an error: the kernel closes a process's
#: connections a moment before it reports the end.
_ENDING_S = 0.2


class Wake:
    """A pipe that signals and threads write to, and on which the main loop waits."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._others: dict[int, str] = {}
        self.leave = False  # a SIGTERM was received

    def catch_signals(self) -> None:
        """Install the signal handlers; they only set a flag and write the wake-up byte (trap 4)."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGUSR1, self._nudged)
        signal.signal(signal.SIGTERM, self._leave_on_sigterm)
        # SparkContext's own handler cancels jobs and raises in the main thread (trap 22).
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch(self, descriptor: int, name: str) -> None:
        """Also wake when a descriptor becomes readable; `wait` then returns its name."""
        self._others[descriptor] = name

    def notify(self) -> None:
        """Wake the main loop; from any thread."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._write, b"\0")

    def wait(self, timeout_s: float) -> set[str]:
        """Sleep until something happens; return the names of readable watched descriptors."""
        ready, _, _ = select.select([self._read, *self._others], [], [], timeout_s)
        if self._read in ready:
            with contextlib.suppress(BlockingIOError):
                while signals := os.read(self._read, 4096):
                    # Its handler runs in the main thread, which may be executing users' code: it
                    # may run late, or never.
                    self.leave = self.leave or signal.SIGTERM in signals
        return {self._others[descriptor] for descriptor in ready if descriptor in self._others}

    def has_ended(self, name: str) -> bool:
        """Return whether the process watched under this name has ended, or is about to end."""
        watched = [descriptor for descriptor, called in self._others.items() if called == name]
        return bool(watched and select.select(watched, [], [], _ENDING_S)[0])

    def _nudged(self, *_: object) -> None:
        pass

    def _leave_on_sigterm(self, *_: object) -> None:
        self.leave = True


LOG_LIMIT = 64 * 1024 * 1024  # bytes of driver.log; beyond that it is copied and emptied
SECOND = 73  # exit code: another process is already acting as this driver or probe


def begin(directory: Path) -> int | None:
    """Set up the log and lock the directory; None if another process holds it."""
    use_forgiving_output()  # a full disk must not end a query whose code prints
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a dead JVM floods it
    for handler in logging.getLogger().handlers:  # py4j also uses the root logger
        handler.addFilter(lambda record: "/py4j/" not in record.pathname)
    lock = take_lock(directory / DRIVER_LOCK)
    if lock is None:
        logging.getLogger("headgate").error("another process is working in %s", directory)
        return None
    claim()  # otherwise a child of users' code would inherit it
    os.ftruncate(lock, 0)
    os.write(lock, json.dumps({"pid": os.getpid(), "start_time": _started()}).encode())
    return lock


def _started() -> int:
    """Return when this process began, in clock ticks since boot."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


def keep_small(directory: Path) -> None:
    """Empty a driver.log that is too long, after copying it if there is room.

    The file is open for appending, so it is emptied in place. Raises OSError if that fails.
    """
    short = free_bytes(directory) < KEEP_FREE
    if short:
        for rotated in directory.glob("*.log.*"):  # including Spark's own
            rotated.unlink(missing_ok=True)
    log = directory / DRIVER_LOG
    try:
        if log.stat().st_size <= (KEEP_LOG if short else LOG_LIMIT):
            return
        try:
            if not short:
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        finally:
            os.truncate(log, 0)
    except FileNotFoundError:
        return


@cache
def claim() -> int | None:
    """Return the descriptor that claims the epoch; it stays open until this process ends.

    None if the shim did not provide one (`queries.launchers.process.epoch_claims`).
    """
    text = os.environ.pop("HEADGATE_CLAIM_FD", "")
    if not text:
        return None
    os.set_inheritable(int(text), False)
    return int(text)


def stat_cpu_s(file: Path) -> float:
    """Return the processor time in a process's or thread's `stat` in /proc; 0 if it has ended."""
    try:
        text = file.read_text()
    except OSError:
        return 0.0
    # The name is in parentheses and may contain spaces and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def end_jvm(process: Any, timeout_s: float, shim: "ShimPipe") -> None:
    """Wait for the JVM to exit, kill it if it takes too long, and report its code to the shim."""
    try:
        code = process.wait(timeout_s)
    except Exception:  # it did not exit: the shim must not have to wait for it
        process.kill()
        shim.send_line("jvm-killed 1")
        code = process.wait(5)
    shim.send_line(f"jvm-exit {code}")


class Steps:
    """How long each step of a driver's start took, from the start of its process."""

    def __init__(self, first: str = "") -> None:
        """`first` names the step that ends now."""
        self.newest = ""
        self.report: Callable[[str], None] | None = None  # called with each step that ends
        ticks = os.sysconf("SC_CLK_TCK")
        self._at = _started() / ticks - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()
        self._took: list[tuple[str, float]] = []
        if first:
            self.done(first)

    def done(self, step: str) -> None:
        """Note the end of a step that began with the end of the one before."""
        now = time.monotonic()
        self._took.append((step, now - self._at))
        self._at = now
        self.newest = step
        if self.report is not None:
            self.report(step)

    def __str__(self) -> str:
        """Return the steps in seconds, such as "interpreter 0.10, imports 0.42"."""
        return ", ".join(f"{step} {took:.2f}" for step, took in self._took)


class ShimPipe:
    """The pipe to the shim, which is not inherited by any child."""

    def __init__(self) -> None:
        self.descriptor = int(os.environ.pop("HEADGATE_SHIM_FD", "") or -1)  # -1: no shim
        if self.descriptor >= 0:
            os.set_inheritable(self.descriptor, False)

    def send_line(self, line: str) -> None:
        """Send a line; without a shim, or if the shim has died, the process continues."""
        try:
            os.write(self.descriptor, f"{line}\n".encode())
        except OSError:
            return
