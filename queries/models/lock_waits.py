"""Tell a database that is busy from one that is broken: somebody else holds what is waited for."""

from django.db import OperationalError

#: SQLSTATE of PostgreSQL: lock_not_available (its `lock_timeout`), and the
#: two that ask for the transaction to be repeated.
_STATES = frozenset({"55P03", "40001", "40P01"})
#: SQLite's result codes, the extended ones by their lowest byte: SQLITE_BUSY, SQLITE_LOCKED.
_CODES = frozenset({5, 6})


def is_busy(error: BaseException) -> bool:
    """Return whether a write waited in vain for a lock; the same one may succeed in a moment."""
    if not isinstance(error, OperationalError):
        return False
    cause = error.__cause__
    code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    return (isinstance(code, int) and code & 0xFF in _CODES) or state in _STATES
