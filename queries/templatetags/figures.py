"""Quantities in templates: rates, durations, counts, sizes."""

from datetime import datetime
from typing import Any

from django import template

from queries.views import wording

register = template.Library()


@register.filter
def rate(value: float | None) -> str:
    """Return rows a second, "1.25k/s"."""
    return wording.rate_words(value)


@register.filter
def duration(ms: float | None) -> str:
    """Return milliseconds as "84 ms", "1.24 s", "3 min 05 s"."""
    return wording.duration_words(ms)


@register.filter
def seconds(value: float | None) -> str:
    """Return seconds as `duration` does."""
    return wording.duration_words(None if value is None else value * 1000)


@register.filter
def short(value: float | None) -> str:
    """Return a count in three figures: "336k"."""
    return wording.number_words(value)


@register.filter
def grouped(value: Any) -> str:
    """Return a whole number with its thousands apart: "1,204"."""
    return "–" if value is None else f"{int(value):,}"


@register.filter
def lower_words(state: Any) -> str:
    """Return a state within a sentence: "catching up"."""
    return wording.words(str(state)).lower()


@register.filter
def plural(count: int, noun: str) -> str:
    """Return "1 query" or "3 queries" for "query,queries"; "1 run" or "2 runs" for "run"."""
    one, _, many = noun.partition(",")
    return f"{count:,} {one if count == 1 else (many or one + 's')}"


@register.filter
def timesince_ms(until: datetime, since: datetime) -> float:
    """Return the milliseconds between two moments, for `duration`."""
    return (until - since).total_seconds() * 1000


@register.filter
def times(count: int) -> range:
    """Return something to go through `count` times, 200 at most."""
    return range(min(count, 200))
