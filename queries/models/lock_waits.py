"""Distinguish a busy database from a broken one: another transaction holds the lock."""

from collections.abc import Callable
from typing import TypeVar

from django.db import OperationalError, connection

T = TypeVar("T")

#: PostgreSQL's SQLSTATEs: lock_not_available (its `lock_timeout`), and the two that ask to repeat
#: the transaction.
_STATES = frozenset({"55P03", "40001", "40P01"})
#: SQLite's result codes, extended ones by their lowest byte: SQLITE_BUSY, SQLITE_LOCKED.
_CODES = frozenset({5, 6})


def is_busy(error: BaseException) -> bool:
    """Return whether a write timed out waiting for a lock; repeating it may succeed."""
    if not isinstance(error, OperationalError):
        return False
    cause = error.__cause__
    code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    return (isinstance(code, int) and code & 0xFF in _CODES) or state in _STATES


def again_if_busy(act: Callable[[], T]) -> T:
    """Return what `act` returns; repeat it once if it timed out waiting for a lock.

    SQLite does not serve its waiters in turn, so on a busy host a writer may wait in vain while
    others write. `act` must be safe to repeat. Inside a transaction, only that can be repeated.
    """
    try:
        return act()
    except OperationalError as error:
        if connection.in_atomic_block or not is_busy(error):
            raise
    return act()
