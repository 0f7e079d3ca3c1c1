"""Format figures: a number with its noun, a reading's age, the refresh rate of a live page.

Times are seconds of any clock that only moves forward. A change is shown together with all that
came after it, so the newest state is always shown, and shown last.

What is read from outside (brokers, tables, storages, reports of drivers) is stored, and shown until
the next reading. A sentence that is older than its limit is shown with its age, because its
statement may be outdated. `tests/api/test_times_of_sentences.py` checks this for every REST body
and selector.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf


def counted(count: int, noun: str) -> str:
    """Return "1 query" or "3 queries" for "query,queries"; "1 run" or "2 runs" for "run"."""
    singular, _, plural = noun.partition(",")
    return f"{count:,} {singular if count == 1 else (plural or singular + 's')}"


#: Seconds between two updates of a page: a viewer gets at most four a second.
EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class RefreshPace:
    """The oldest change of something that is not shown yet, and when it was last shown."""

    changed_at: float = inf  # inf: everything is shown
    shown_at: float = -inf  # -inf: never

    def changed(self, now: float) -> "RefreshPace":
        """Return the pace after a change; an earlier one that is not shown yet counts."""
        return replace(self, changed_at=min(self.changed_at, now))

    def shown(self, now: float) -> "RefreshPace":
        """Return the pace once everything up to now is shown, or begins to be drawn."""
        return RefreshPace(shown_at=now)

    @property
    def due_at(self) -> float:
        """Return when it is due to be shown again; inf if nothing has changed."""
        return max(self.changed_at, self.shown_at + EVERY_S)


def page_due_at(page: RefreshPace, topics: Iterable[RefreshPace]) -> float:
    """Return when a page is due to be sent again; inf if nothing on it has changed.

    `page` changes when one of its topics has been drawn, `topics` when their rows have.
    """
    first = min((topic.due_at for topic in topics), default=inf)
    return max(min(first, page.changed_at), page.shown_at + EVERY_S)


#: From this age on, the day is named too.
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Dated:
    """A sentence from outside, and when its facts were read."""

    text: str
    read_at: datetime

    def at(self, now: datetime, *, fresh_for: timedelta) -> str:
        """Return the sentence as it may be shown now: with its age if it is no longer fresh."""
        age = now - self.read_at
        if not self.text or age <= fresh_for:
            return self.text
        form = "%H:%M:%S" if age < _DAY else "%Y-%m-%d %H:%M"
        return f"As of {self.read_at:{form}} UTC, {span(age)} ago: {self.text}"


def span(length: timedelta) -> str:
    """Return a length of time in one unit, from seconds to hours; a negative one is 0 s."""
    seconds = max(0, round(length.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h"
