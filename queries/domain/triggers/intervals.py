"""Parse Spark's intervals, without SQL: selectors of processes that read no query use this."""

import re

_UNITS_MS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}
_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s+([a-z]+)", re.IGNORECASE)
_INTERVAL = re.compile(rf"\s*(?:interval\s+)?(?:{_PART.pattern}\s*)+", re.IGNORECASE)


def interval_ms(text: str) -> int | None:
    """Return a Spark interval ("10 seconds", "1 minute 30 seconds") in ms, or None.

    Like Spark, it rejects months and years, which have no fixed length, fractions of any unit
    except seconds, and negative lengths.
    """
    if not _INTERVAL.fullmatch(text):
        return None
    total = 0.0
    for number, unit in _PART.findall(re.sub(r"(?i)^\s*interval\s", "", text)):
        name = unit.lower().removesuffix("s")
        if name not in _UNITS_MS or ("." in number and name != "second"):
            return None  # Spark allows fractions of seconds only
        total += float(number) * _UNITS_MS[name]
    return int(total) if total >= 0 else None
