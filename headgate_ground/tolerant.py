"""Parse numbers, times and progress written by other programs; impossible values become unknown.

All code that converts external text or milliseconds into a number or a time uses this module, so
that an odd value becomes a single unknown value and never causes its whole context to fail. The
module is pure; driver and server use it.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

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
    """Return an integer of ASCII digits that fits into a database; None for any other string.

    `str.isdigit` also accepts digits that `int` does not ("²"), and `int` must not get an
    arbitrarily long string.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if number < _BEYOND else None


def is_number(value: object) -> bool:
    """Return whether a value is an integer that fits into a database column."""
    return type(value) is int and 0 <= value < _BEYOND


def count(value: object) -> int | None:
    """Return a count; None for any other value, and for a negative one, Spark's "unknown"."""
    return value if type(value) is int and 0 <= value < _BEYOND else None


def rate(value: object) -> float | None:
    """Return a finite rate of at least 0; Spark writes NaN and infinities as strings."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if isfinite(value) and value >= 0 else None


def duration_ms(value: object) -> int | None:
    """Return a duration; None for any other value, and for a negative one."""
    milliseconds = count(value)
    return milliseconds if milliseconds is None or milliseconds <= _LONGEST_MS else None


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
    """Return the start of the `width_s`-second interval, counted from 1970, around a time."""
    return at - (at - _EPOCH) % timedelta(seconds=width_s)


def time_of(text: object) -> datetime | None:
    """Parse an ISO 8601 time as UTC (the default zone); None if it is not one."""
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if at is None:
        return None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return at.astimezone(UTC) if _FIRST <= at < _LAST else None


def is_after_9999(at: object) -> bool:
    """Return whether milliseconds since 1970, or an ISO 8601 time, are after the year 9999."""
    if isinstance(at, str):
        return _LATE_YEAR.match(at) is not None or at.startswith("9999-12-31")
    return type(at) is int and at_ms(at) is None and at > 0


def sound_progress(body: dict[str, Any], *, at: str, batch: int) -> dict[str, Any]:
    """Return Spark's progress JSON without impossible values, which readers treat as unknown.

    Negative counts, non-numeric rates and durations, and parts of the wrong type are removed, in
    the same way as Spark itself omits unknown values; a state operator or source keeps its
    position. The event's own `at` and `batch` replace an invalid start time and batch number.
    Everything else remains as Spark wrote it, including a watermark after the year 9999. A body
    without any of this is returned itself, because almost every body is.
    """
    sound = _sound_part(body)
    changes: dict[str, Any] = {}
    if "batchId" not in sound:
        changes["batchId"] = batch
    if time_of(sound.get("timestamp")) is None:
        changes["timestamp"] = at
    for name in ("stateOperators", "sources"):
        parts = sound.get(name, ())
        better = [_sound_part(part) for part in parts]
        if any(part is not other for part, other in zip(better, parts, strict=True)):
            changes[name] = better
    if "sink" in sound and (sink := _sound_part(sound["sink"])) is not sound["sink"]:
        changes["sink"] = sink
    spent = sound.get("durationMs", {})
    if any(duration_ms(ms) is None for ms in spent.values()):
        changes["durationMs"] = {
            name: ms for name, ms in spent.items() if duration_ms(ms) is not None
        }
    return {**sound, **changes} if changes else sound


#: The counts of Spark 4.3: its StreamingQueryProgress, SourceProgress, SinkProgress and
#: StateOperatorProgress.
_COUNTS = frozenset(
    {"batchId", "numInputRows", "numOutputRows", "numRowsTotal", "numRowsUpdated"}
    | {"numRowsRemoved", "memoryUsedBytes", "numRowsDroppedByWatermark"}
    | {"numShufflePartitions", "numStateStoreInstances"}
)
_DURATIONS = frozenset({"batchDuration", "allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs"})
_RATES = frozenset({"inputRowsPerSecond", "processedRowsPerSecond"})
_LISTS = frozenset({"stateOperators", "sources"})
_OBJECTS = frozenset({"durationMs", "eventTime", "sink", "observedMetrics", "customMetrics"})


def _list(value: object) -> object:
    return value if isinstance(value, list) else None


def _object(value: object) -> object:
    return value if isinstance(value, dict) else None


#: What returns None for an impossible value, by the value's name.
_READ: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(_COUNTS, count),
    **dict.fromkeys(_DURATIONS, duration_ms),
    **dict.fromkeys(_RATES, rate),
    **dict.fromkeys(_LISTS, _list),
    **dict.fromkeys(_OBJECTS, _object),
}


def _sound_part(part: object) -> dict[str, Any]:
    """Return a part without impossible values: the part itself if there are none."""
    if not isinstance(part, dict):
        return {}
    bad = [
        name
        for name, value in part.items()
        if (read := _READ.get(name)) is not None and read(value) is None
    ]
    return {name: part[name] for name in part if name not in bad} if bad else part


def total(parts: object, name: str) -> int | None:
    """Return a count's sum over state operators; None without any, or if one lacks the count."""
    operators = parts if isinstance(parts, list) else []
    counts = [
        count(operator.get(name)) if isinstance(operator, dict) else None for operator in operators
    ]
    valid_counts = [operator for operator in counts if operator is not None]
    return count(sum(valid_counts)) if valid_counts and len(valid_counts) == len(counts) else None
