"""What the web needs to answer while the disk is full, and how it words what cannot be done."""

import errno
import os
import sqlite3
from functools import cache

from django.conf import settings

from queries.domain.errors import Unavailable

#: How SQLite, PostgreSQL and Redis word it.
_SIGNS = ("database or disk is full", "No space left on device", "Disk quota exceeded")
#: What SQLite says of much else, too: of a full disk where hardly anything is free.
_MAYBE = ("disk I/O error", "unable to open database file", "Errors writing to the AOF file")
_HARDLY_ANYTHING = 1_000_000  # bytes


@cache
def keep_readable() -> sqlite3.Connection | None:
    """Hold a connection to SQLite for this process's life; None: another database, or none yet.

    The last connection that is closed removes the log and its index, and the next one needs room
    to make them again, even to read: on a full disk no page could be shown.
    """
    database = settings.DATABASES["default"]
    if database["ENGINE"] != "django.db.backends.sqlite3" or not os.path.exists(database["NAME"]):
        return None
    connection = sqlite3.connect(database["NAME"], isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return connection


def full_disk(error: BaseException | None) -> Unavailable | None:
    """Return the error to show in place of one that a full disk has caused, else None."""
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
        way_out="Free space where the database and HEADGATE_HOME are, then try again; nothing has "
        "to be restarted. Queries run on as long as their checkpoints can be written.",
    )


def _free() -> int:
    try:
        found = os.statvfs(settings.HEADGATE_HOME)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
