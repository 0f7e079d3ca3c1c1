"""Distinguish a busy database from a broken one: another transaction holds the lock."""

from django.db import OperationalError

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
