"""End a program of ours that holds the database's write lock and does nothing.

A program that is frozen inside a write (SIGSTOP, a debugger, a suspended container) stops every
other writer: no sweep, no heartbeat, no form. It cannot finish by itself, so it is killed, and
supervisord starts it again; SQLite undoes what it had not committed.
"""

import time
from collections.abc import Callable
from pathlib import Path

from controlplane.write_lock import WriteLockHolder, write_lock_holder
from headgate_ground import identities

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
    """What is known of the write lock's holder since it last made progress."""

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
