"""Quantities in templates: rates, durations, counts, sizes."""

from datetime import datetime
from typing import Any

from django import template

from queries.domain import labels, reasons
from queries.domain.readings import counted
from queries.models.history import Transition
from queries.views.console import wording

register = template.Library()


def _figure(value: Any) -> float | None:
    """Return a number, or None for a variable that a template did not find (passed as "")."""
    return value if isinstance(value, int | float) else None


@register.filter
def rate(value: Any) -> str:
    """Format rows per second, such as "1.25k/s"."""
    return wording.rate_words(_figure(value))


@register.filter
def duration(ms: Any) -> str:
    """Format milliseconds as "84 ms", "1.24 s", "3 min 05 s"."""
    return wording.duration_words(_figure(ms))


@register.filter
def seconds(value: Any) -> str:
    """Format seconds in the same form as `duration`."""
    figure = _figure(value)
    return wording.duration_words(None if figure is None else figure * 1000)


@register.filter
def size(value: Any) -> str:
    """Format bytes as "812 B", "4.2 kB", "10.3 MB"."""
    return wording.size_words(_figure(value))


@register.filter
def percent(share: Any) -> str:
    """Return a fraction as "45 %" or "4.5 %"; a dash if there is none."""
    figure = _figure(share)
    if figure is None:
        return "–"
    return f"{figure * 100:.1f} %" if figure < 0.0995 else f"{figure * 100:.0f} %"


@register.filter
def short(value: Any) -> str:
    """Return a count with at most three figures: "336k"."""
    return wording.number_words(_figure(value))


@register.filter
def grouped(value: Any) -> str:
    """Return a whole number with thousands separators: "1,204"."""
    figure = _figure(value)
    return "–" if figure is None else f"{int(figure):,}"


@register.filter
def lower_words(state: Any) -> str:
    """Return a state as written inside a sentence: "catching up"."""
    return labels.state_label(str(state)).lower()


@register.filter
def verdict_label(verdict: Any) -> str:
    """Return a verdict's label: "Waiting for source"."""
    return labels.verdict_label(str(verdict))


@register.filter
def verb_label(verb: Any) -> str:
    """Return an operation's label: "State inspection"."""
    return labels.verb_label(str(verb))


@register.filter
def phrase(code: str) -> str:
    """Return a reason's words: "waiting for its driver"."""
    return reasons.phrase(code)


@register.filter
def act(transition: Transition) -> str:
    """Return an action, worded to follow the user's name."""
    return wording.act_words(
        transition.reason,
        subject=transition.subject,
        first=not transition.before,
        after=transition.after,
    )


register.filter("plural", counted)


@register.filter
def timesince_ms(until: datetime, since: datetime) -> float:
    """Return the milliseconds between two moments, for `duration`."""
    return (until - since).total_seconds() * 1000


@register.filter
def times(count: int) -> range:
    """Return an iterable with `count` items, at most 200."""
    return range(min(count, 200))
