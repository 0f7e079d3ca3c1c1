"""The processes of a data folder: one `up`, and every process it started, by identity.

Each program writes its identity before it replaces itself by exec, so that after a crash the
next start can end what is left: by (boot, pid, start time), never by a bare pid or a name.
"""

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from controlplane.machine.home import Home, read_line
from controlplane.machine.trouble import Trouble
from queries.launchers.process import identities


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this data folder."""

    name: str
    pid: int
    start_time: int

    def alive(self) -> bool:
        """Tell whether that very process still runs."""
        return identities.is_alive(self.pid, self.start_time)

    def wait_for_end(self, limit_s: float) -> bool:
        """Wait for the process's end; False where it outlives the limit."""
        return identities.wait_end(self.pid, self.start_time, limit_s)


def claim(home: Home, *, address: str) -> IO[str]:
    """Lock the data folder until this process ends; keep the returned file open.

    Raises `Trouble` naming the holder's pid where another `up` has it.
    """
    file = home.lock.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = read_line(home.lock) or "unknown"
        file.close()
        raise Trouble(
            f"Headgate is already running from {home.root} (pid {holder}) at {address}",
            "Stop it there with Ctrl-C or `make stop`, or start this one with another "
            "HEADGATE_HOME and HEADGATE_PORT.",
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def holder(home: Home) -> int | None:
    """Return the pid of the `up` that holds the data folder, or None."""
    try:
        file = home.lock.open()
    except OSError:
        return None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = file.read().strip()
            return int(text) if text.isdigit() else None
    return None


def wait_until_free(home: Home, *, limit_s: float) -> bool:
    """Wait for the holder's end; False where it outlives the limit."""
    pid = holder(home)
    started = identities.start_time(pid) if pid else None
    if pid is None or started is None:
        return True
    return identities.wait_end(pid, started, limit_s)


def started_here(home: Home) -> list[Process]:
    """Return the processes of an earlier or present `up` that still run."""
    found = map(read_identity, sorted(home.run.glob("*.process")))
    return [process for process in found if process is not None and process.alive()]


def end(left: list[Process], *, limit_s: float) -> None:
    """Send each SIGTERM, wait for all within the limit, then kill the rest."""
    for process in left:
        identities.send(process.pid, process.start_time, signal.SIGTERM)
    deadline = time.monotonic() + limit_s
    for process in left:
        if not process.wait_for_end(max(0.0, deadline - time.monotonic())):
            identities.kill_and_wait(process.pid, process.start_time, 5)


def record(home: Home, name: str, pid: int) -> None:
    """Write the identity of a process that `up` itself started; on a full disk do without."""
    who = {"boot_id": identities.boot_id(), "pid": pid, "start_time": identities.start_time(pid)}
    file = home.run / f"{name}.process"
    with suppress(OSError), file.open("r+" if file.exists() else "w") as target:
        target.write(json.dumps(who).ljust(os.fstat(target.fileno()).st_size))


def read_identity(file: Path) -> Process | None:
    """Return the process whose identity a file holds; None where there is none of this boot."""
    try:
        raw = json.loads(file.read_text())
        if raw["boot_id"] != identities.boot_id():
            return None
        return Process(file.stem, int(raw["pid"]), int(raw["start_time"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
