"""A data folder's processes by identity: those of one `up`, and the holder of its database's
lock.

Each program writes its identity before it execs, so that after a crash the next start can end the
remaining processes: by (boot, pid, start time), never by a pid or a name alone.

A program that is frozen inside a write (SIGSTOP, a debugger, a suspended container) stops every
other writer: no sweep, no heartbeat, no form. It cannot finish on its own, so it is killed, and
supervisord starts it again; SQLite undoes what it had not committed.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from controlplane.home import Home, StartProblem, read_line
from controlplane.write_lock import WriteLockHolder, write_lock_holder
from headgate_ground import identities
from headgate_ground.identities import Process, read_identity


def claim(home: Home, *, address: str) -> IO[str]:
    """Lock the data folder until this process exits; the caller must keep the returned file open.

    Raises `StartProblem`, with the holder's pid, if another `up` has the lock.
    """
    file = home.lock.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = read_line(home.lock) or "unknown"
        file.close()
        raise StartProblem(
            f"Headgate is already running from {home.root} (pid {holder}) at {address}",
            "Stop it there with Ctrl-C or `make stop`, or start this one with another "
            "HEADGATE_HOME and HEADGATE_PORT.",
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def end_holder(home: Home, *, limit_s: float) -> None:
    """End the `up` that holds the data folder, or wait for it if it is already ending."""
    pid = home.holder()
    started = identities.start_time(pid) if pid else None
    if pid is not None and started is not None:
        end([Process("up", pid, started)], limit_s=limit_s)


def own_processes(home: Home) -> list[Process]:
    """Return the running processes that the current or an earlier `up` has started."""
    identities = map(read_identity, sorted(home.run.glob("*.process")))
    return [process for process in identities if process is not None and process.alive()]


def end(left: list[Process], *, limit_s: float) -> None:
    """Send SIGTERM to each process, wait for all of them within the limit, then kill the others."""
    for process in left:
        identities.send(process.pid, process.start_time, signal.SIGTERM)
    deadline = time.monotonic() + limit_s
    for process in left:
        if not process.wait_for_end(max(0.0, deadline - time.monotonic())):
            identities.kill_and_wait(process.pid, process.start_time, 5)


def record(home: Home, name: str, pid: int) -> None:
    """Write the identity of a process started by `up` itself; skip this on a full disk."""
    who = {"boot_id": identities.boot_id(), "pid": pid, "start_time": identities.start_time(pid)}
    file = home.run / f"{name}.process"
    with suppress(OSError), file.open("r+" if file.exists() else "w") as target:
        target.write(json.dumps(who).ljust(os.fstat(target.fileno()).st_size))


#: How often to look: a write takes milliseconds, so whoever holds the lock each time is stuck.
LOOK_EVERY_S = 5.0
#: Seconds that a stopped program may hold the lock.
STOPPED_FOR_S = 60.0
#: Seconds that another one may hold it without writing and without using the processor: it may
#: wait for a slow disk, or for its turn on a busy host.
IDLE_FOR_S = 180.0
#: Seconds of processor time that count as progress.
_PROGRESS_S = 0.5
_ENDS_WITHIN_S = 10.0


class LockWatch:
    """The state of the write lock's holder since it last made progress."""

    def __init__(self, database: Path, programs: Path, report: Callable[[str], None]) -> None:
        self._database = database
        self._programs = programs
        self._report = report
        self._first: WriteLockHolder | None = None
        self._since = 0.0  # monotonic

    def look(self, now: float | None = None) -> None:
        """Look at the lock, and end its holder if it is a program of ours and is stuck."""
        now = time.monotonic() if now is None else now
        holder = write_lock_holder(self._database, self._programs)
        if holder is None or self._first is None or not _is_stuck(self._first, holder):
            self._first, self._since = holder, now
            return
        locked_s = now - self._since
        if not holder.program or locked_s <= (STOPPED_FOR_S if holder.stopped else IDLE_FOR_S):
            return
        why = "it is stopped" if holder.stopped else "it neither writes nor uses the processor"
        self._report(
            f"{holder.called[0].upper()}{holder.called[1:]} has held the database's write lock for "
            f"{locked_s:.0f} s, and {why}; ending it. It starts again by itself."
        )
        identities.kill_and_wait(holder.pid, holder.start_time, _ENDS_WITHIN_S)
        self._first = None


def _is_stuck(first: WriteLockHolder, now: WriteLockHolder) -> bool:
    """Return whether a holder is the same as before, and has done nothing since."""
    same = (first.pid, first.start_time) == (now.pid, now.start_time)
    return (
        same
        and first.stopped == now.stopped
        and first.written == now.written
        and now.cpu_s - first.cpu_s < _PROGRESS_S
    )
