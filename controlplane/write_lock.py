"""Find the process that holds the write lock of our SQLite database, without opening any of it.

In WAL mode, a writer locks byte 120 of the database's `-shm` file (sqlite.org/walformat.html,
WAL_WRITE_LOCK). The kernel lists it in /proc/locks. Opening that file to check would be wrong: a
process that closes it drops all locks that its own connections hold on it.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from headgate_ground import identities

_WRITE_LOCK = 120
#: "1: POSIX  ADVISORY  WRITE 22682 fe:00:9978345 120 120"; a waiting process has "->" in its line.
_LINE = re.compile(
    r"^\d+: POSIX\s+ADVISORY\s+WRITE (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) (\d+) (\d+|EOF)$"
)


@dataclass(frozen=True, slots=True)
class WriteLockHolder:
    """The process that held the write lock at some moment."""

    pid: int
    start_time: int | None
    program: str  # ours, such as "ingester"; "" if it is not one that `make run` has started
    command: str
    stopped: bool  # by a signal or a debugger: it cannot finish what it has begun
    cpu_s: float
    written: int  # when the WAL file was last written to, in nanoseconds

    @property
    def called(self) -> str:
        """Return its name for people: "the ingester (PID 12)"."""
        name = f"the {self.program}" if self.program else f"`{self.command[:80] or 'a process'}`"
        return f"{name} (PID {self.pid})"


def write_lock_holder(database: Path, programs: Path) -> WriteLockHolder | None:
    """Return who holds the write lock; None if nobody does, or if it is in another PID namespace.

    `programs` is the folder with the identities of `make run`'s programs.
    """
    try:
        stat = Path(f"{database}-shm").stat()
        lines = Path("/proc/locks").read_text().splitlines()
        written = Path(f"{database}-wal").stat().st_mtime_ns
    except OSError:
        return None
    for match in filter(None, map(_LINE.match, lines)):
        device = os.makedev(int(match[2], 16), int(match[3], 16))
        first, last = int(match[5]), match[6]
        if (device, int(match[4])) != (stat.st_dev, stat.st_ino):
            continue
        if first <= _WRITE_LOCK and (last == "EOF" or int(last) >= _WRITE_LOCK):
            return _holder(int(match[1]), programs, written)
    return None


def _holder(pid: int, programs: Path, written: int) -> WriteLockHolder | None:
    started = identities.start_time(pid)
    if started is None:
        return None
    ours = map(identities.read_identity, sorted(programs.glob("*.process")))
    names = [
        identity.name
        for identity in ours
        if identity and (identity.pid, identity.start_time) == (pid, started)
    ]
    return WriteLockHolder(
        pid,
        started,
        next(iter(names), ""),
        identities.command_line(pid).strip(),
        identities.state(pid) in ("T", "t"),
        identities.cpu_s(pid),
        written,
    )
