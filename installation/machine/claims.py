"""Track a data folder's processes by identity: one `up`, and every process that it started.

Each program writes its identity before it execs, so that after a crash the next start can end the
remaining processes: by (boot, pid, start time), never by a pid or a name alone.
"""

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from typing import IO

from controlplane.home import Home, StartProblem, read_line
from headgate_ground import identities
from headgate_ground.identities import Process, read_identity


def claim(home: Home, *, address: str) -> IO[str]:
    """Lock the data folder until this process exits; the caller must keep the returned file open.

    Raises `Trouble`, with the holder's pid, if another `up` has the lock.
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
