"""Parse numbers and times written by other programs; return None if they are impossible.

All code that converts external text or milliseconds into a number or a time uses this module, so
that an odd value becomes a single unknown value and never causes its whole context to fail. The
module is pure; driver and server use it.
"""

import re
from datetime import UTC, datetime, timedelta
from math import isfinite

_BEYOND = 2**63  # exceeds a database integer
_MOST_DIGITS = 40  # including leading zeros; bounds the text given to `int`
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: `datetime` covers the years 1 to 9999; one day less at both ends, so that every time zone fits.
_FIRST = datetime(1, 1, 2, tzinfo=UTC)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)
#: Longer than any batch; adding such a duration to a time would leave the calendar.
_LONGEST_MS = 10 * 365 * 86_400_000
#: A year after 9999, as Java's formatters write it: "56971-10-25T…", "+56971-10-25T…".
_LATE_YEAR = re.compile(r"\+?[0-9]{5,}-")


def whole(text: str | bytes) -> int | None:
    """Return an integer of ASCII digits that fits into a database; None for any other text.

    `str.isdigit` also accepts digits that `int` does not ("²"), and `int` must not get an endless
    text.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if number < _BEYOND else None


def is_number(value: object) -> bool:
    """Return whether a value is an integer that a database column can hold."""
    return type(value) is int and 0 <= value < _BEYOND


def count(value: object) -> int | None:
    """Return a count; None for any other value, and for a negative one, Spark's "unknown"."""
    return value if type(value) is int and 0 <= value < _BEYOND else None


def rate(value: object) -> float | None:
    """Return a finite rate of at least 0; Spark writes NaN and infinities as text."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if isfinite(value) and value >= 0 else None


def duration_ms(value: object) -> int | None:
    """Return a duration; None for any other value, and for a negative one."""
    number = count(value)
    return number if number is None or number <= _LONGEST_MS else None


def at_ms(milliseconds: object) -> datetime | None:
    """Return the UTC time for milliseconds since 1970; None outside the years 1 to 9999."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    try:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
    except (OverflowError, ValueError):  # too large, or NaN
        return None
    return at if _FIRST <= at < _LAST else None


def at_s(seconds: float) -> datetime | None:
    """Return the UTC time for seconds since 1970; None outside the years 1 to 9999."""
    return at_ms(seconds * 1000)


def start_of(at: datetime, width_s: int) -> datetime:
    """Return the start of the interval of `width_s` seconds, counted from 1970, around a time."""
    return at - (at - _EPOCH) % timedelta(seconds=width_s)


def time_of(text: object) -> datetime | None:
    """Return the UTC time in an ISO 8601 text (UTC is the default zone); None for other text."""
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if at is None:
        return None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return at.astimezone(UTC) if _FIRST <= at < _LAST else None


def is_after_9999(at: object) -> bool:
    """Return whether milliseconds since 1970, or an ISO 8601 text, are after the year 9999."""
    if isinstance(at, str):
        return _LATE_YEAR.match(at) is not None or at.startswith("9999-12-31")
    return type(at) is int and at_ms(at) is None and at > 0
