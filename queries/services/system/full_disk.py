"""Keep pages readable while the disk is full, and explain the resulting errors."""

import errno
import os
import sqlite3
from functools import cache

from django.conf import settings

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
