"""Check that the database takes writes, and keep pages readable while the disk is full."""

import errno
import os
import sqlite3
import threading
import time
from contextlib import closing
from functools import cache
from pathlib import Path

from django.conf import settings
from django.db import connection

from controlplane.write_lock import WriteLockHolder, write_lock_holder
from queries.domain.errors import Unavailable
from queries.domain.system import FULL_DISK

#: The messages of SQLite, PostgreSQL and Redis.
_SIGNS = ("database or disk is full", *FULL_DISK)
#: SQLite messages with many causes: it is a full disk if hardly anything is free.
_MAYBE = ("disk I/O error", "unable to open database file", "Errors writing to the AOF file")
_HARDLY_ANYTHING = 1_000_000  # bytes


@cache
def keep_readable() -> sqlite3.Connection | None:
    """Open a connection to SQLite for the life of this process; None without SQLite or its file.

    Closing the last connection removes the write-ahead log and its index. The next connection needs
    disk space to create them again, even for reading, so no page could be shown on a full disk.
    """
    database = settings.DATABASES["default"]
    if database["ENGINE"] != "django.db.backends.sqlite3" or not os.path.exists(database["NAME"]):
        return None
    connection = sqlite3.connect(database["NAME"], isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return connection


def full_disk(error: BaseException | None) -> Unavailable | None:
    """Return the error to show for one that a full disk caused; None for any other error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _sentence()
        text = str(error)
        if any(sign in text for sign in _SIGNS):
            return _sentence()
        if any(sign in text for sign in _MAYBE) and _free() < _HARDLY_ANYTHING:
            return _sentence()
        error = error.__cause__ or error.__context__
    return None


def _sentence() -> Unavailable:
    return Unavailable(
        "The disk is full: this could not be saved.",
        way_out=(
            "Free up space where the database and HEADGATE_HOME are, then try again; nothing "
            "needs to be restarted. Queries continue as long as their checkpoints can be "
            "written."
        ),
    )


def _free() -> int:
    try:
        file_system = os.statvfs(settings.HEADGATE_HOME)
    except OSError:
        return 0
    return file_system.f_bavail * file_system.f_frsize


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
        return _sqlite_sentence(holder, waited_s) if stuck or waited_s >= LATE_AFTER_S else ""


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


def _sqlite_sentence(holder: WriteLockHolder | None, waited_s: float) -> str:
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
