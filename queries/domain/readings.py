"""Say how old a sentence is that rests on an earlier reading.

What is read from outside (brokers, tables, storages, reports of drivers) is stored, and shown until
the next reading. A sentence that is older than its limit is shown with its age, because what it
states may be over. `tests/api/test_times_of_sentences.py` holds every REST body and selector to it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

#: From this age on, the day is named too.
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Dated:
    """A sentence from outside, and when what it states was read."""

    text: str
    read_at: datetime

    def at(self, now: datetime, *, fresh_for: timedelta) -> str:
        """Return the sentence as it may be shown now: with its age if it is not fresh any more."""
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
