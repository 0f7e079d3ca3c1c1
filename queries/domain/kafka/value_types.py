"""The values that options of Kafka sources and sinks may have, one check a kind of value."""

import re
from collections.abc import Callable

from queries.domain.errors import Problem

#: (path of the field, value) -> what is wrong with it, or None
Check = Callable[[str, str], Problem | None]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DURATION = re.compile(r"\d+\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_LONGEST = 2**63 - 1
_ENDS = "A stream has no end: remove it. The trigger availableNow reads up to the current end."


def whole(least: int) -> Check:
    """Return a check for whole numbers of `least` or more."""

    def check(field: str, value: str) -> Problem | None:
        if re.fullmatch(r"\d{1,19}", value) and least <= int(value) <= _LONGEST:
            return None
        return Problem(field, value[:200], "is not a whole number.", f"Give {least} or more.")

    return check


def flag(field: str, value: str) -> Problem | None:
    """Return what is wrong with a switch, or None."""
    if value.lower() in ("true", "false"):
        return None
    return Problem(field, value[:200], "is neither true nor false.", 'Give "true" or "false".')


def topics(field: str, value: str) -> Problem | None:
    """Return what is wrong with names of topics between commas, or None."""
    wrong = [one for one in value.split(",") if not _TOPIC.fullmatch(one.strip())]
    if not wrong:
        return None
    way_out = "Use letters, digits and . _ -, several with commas; for a pattern subscribePattern."
    return Problem(field, wrong[0][:200], "is not a topic name.", way_out)


def topic(field: str, value: str) -> Problem | None:
    """Return what is wrong with a topic's name, or None."""
    if _TOPIC.fullmatch(value):
        return None
    way_out = "Use letters, digits and . _ -; to choose by row, select a column topic instead."
    return Problem(field, value[:200], "is not a topic name.", way_out)


def pattern(field: str, value: str) -> Problem | None:
    """Return what is wrong with a regular expression, or None; Java alone can read it."""
    if value.strip():
        return None
    return Problem(field, value, "is empty.", 'Write a regular expression: "flights-.*".')


def duration(field: str, value: str) -> Problem | None:
    """Return what is wrong with a length of time as Spark writes it, or None."""
    if _DURATION.fullmatch(value.strip()):
        return None
    return Problem(field, value[:200], "is not a duration.", 'Write "30s", "15m" or "1h".')


def time_strategy(field: str, value: str) -> Problem | None:
    """Return what is wrong with the way to treat a partition without so late a record."""
    if value.lower() in ("error", "latest"):
        return None
    way_out = 'Give "error" (refuse to start) or "latest", for partitions without so late a record.'
    return Problem(field, value[:200], "is not a strategy of Spark's.", way_out)


def never(field: str, value: str) -> Problem | None:
    """Return the problem of an option that only batch reads may have."""
    return Problem(field, value[:200], "cannot be used by a stream.", _ENDS)
