"""Check that SQLite takes writes: it can be read even while a frozen process holds its lock."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from django.conf import settings
from django.db import connection

from controlplane.write_lock import WriteLockHolder, write_lock_holder

#: Seconds that the check waits for the lock; a write takes milliseconds.
WAITS_S = 1.0
#: Seconds without a successful write after which it is a problem: as long as a write may wait.
LATE_AFTER_S = 20.0


class Writes:
    """Since when no write could begin. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._since: float | None = None  # monotonic; None: the last one could

    def problem_with_writes(self) -> str:
        """Return why no write can begin, with the process that prevents it; "" if one can."""
        path = Path(str(connection.settings_dict["NAME"]))
        if connection.in_atomic_block or not path.is_file():
            return ""  # a write has begun: this thread's own; or the database is in memory
        began = time.monotonic()
        refused = _refusal(path)
        with self._guard:
            self._since = (self._since or began) if refused else None
            waited_s = time.monotonic() - self._since if self._since is not None else 0.0
        if not refused:
            return ""
        holder = write_lock_holder(path, settings.HOME.run)
        stuck = holder is not None and holder.stopped
        return _sentence(holder, waited_s) if stuck or waited_s >= LATE_AFTER_S else ""


#: This process's checks.
writes = Writes()


def _refusal(path: Path) -> str:
    """Try to begin a write, and take it back; return SQLite's error, or ""."""
    try:
        with closing(
            sqlite3.connect(f"{path.as_uri()}?mode=rw", WAITS_S, isolation_level=None, uri=True)
        ) as tried:
            tried.execute("BEGIN IMMEDIATE")
            tried.execute("ROLLBACK")
    except sqlite3.Error as error:
        return str(error) or type(error).__name__
    return ""


def _sentence(holder: WriteLockHolder | None, waited_s: float) -> str:
    sentence = f"SQLite can be read, but no write has begun for {max(waited_s, WAITS_S):.0f} s"
    if holder is None:
        return f"{sentence}: the database is locked, and this host does not show by which process."
    how = "is stopped and " if holder.stopped else ""
    end = (
        "`make run` ends it after a minute without progress."
        if holder.program
        else f"Let it finish, or end it: kill {holder.pid}."
    )
    return f"{sentence}: {holder.called} {how}holds the write lock. {end}"
