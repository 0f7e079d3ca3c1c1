"""Checks for the values of Kafka source and sink options, one per kind of value."""

import re
from collections.abc import Callable

from queries.domain.errors import Problem

#: (path of the field, value) -> what is wrong with it, or None
Check = Callable[[str, str], Problem | None]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DURATION = re.compile(r"\d+\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_LONGEST = 2**63 - 1
_ENDS = "Remove it: a stream has no end. The availableNow trigger reads up to the current end."


def whole(least: int) -> Check:
    """Return a check for integers of at least `least`."""

    def check(field: str, value: str) -> Problem | None:
        if re.fullmatch(r"\d{1,19}", value) and least <= int(value) <= _LONGEST:
            return None
        return Problem(field, value[:200], "is not a whole number.", f"Use {least} or more.")

    return check


def flag(field: str, value: str) -> Problem | None:
    """Return what is wrong with a boolean, or None."""
    if value.lower() in ("true", "false"):
        return None
    return Problem(field, value[:200], "is neither true nor false.", 'Use "true" or "false".')


def topics(field: str, value: str) -> Problem | None:
    """Return what is wrong with a comma-separated list of topic names, or None."""
    wrong = [topic for topic in value.split(",") if not _TOPIC.fullmatch(topic.strip())]
    if not wrong:
        return None
    way_out = (
        "Use letters, digits and . _ -; separate several with commas. For a pattern, use "
        "subscribePattern."
    )
    return Problem(field, wrong[0][:200], "is not a valid topic name.", way_out)


def topic(field: str, value: str) -> Problem | None:
    """Return what is wrong with a topic's name, or None."""
    if _TOPIC.fullmatch(value):
        return None
    way_out = (
        "Use letters, digits and . _ -; to choose a topic per row, select a topic column instead."
    )
    return Problem(field, value[:200], "is not a valid topic name.", way_out)


def pattern(field: str, value: str) -> Problem | None:
    """Return what is wrong with a regular expression, or None; only Java can parse it fully."""
    if value.strip():
        return None
    return Problem(field, value, "is empty.", 'Write a regular expression: "flights-.*".')


def duration(field: str, value: str) -> Problem | None:
    """Return what is wrong with a duration in Spark's format, or None."""
    if _DURATION.fullmatch(value.strip()):
        return None
    return Problem(field, value[:200], "is not a valid duration.", 'Write "30s", "15m" or "1h".')


def time_strategy(field: str, value: str) -> Problem | None:
    """Return what is wrong with the strategy for a partition that has no record that late."""
    if value.lower() in ("error", "latest"):
        return None
    way_out = 'Use "error" or "latest": what to do when a partition has no record that late.'
    return Problem(field, value[:200], "is not a Spark strategy.", way_out)


def never(field: str, value: str) -> Problem | None:
    """Return the problem with an option that is only valid for batch reads."""
    return Problem(field, value[:200], "cannot be used by a stream.", _ENDS)
