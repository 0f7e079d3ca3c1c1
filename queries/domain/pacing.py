"""When a live page is drawn and sent again: at once after a pause, then four times a second.

Times are seconds of any clock that only moves forward. A change is shown together with all that
came after it, so the newest state is always shown, and shown last.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

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
        """Return when it is to be shown again; inf if nothing has changed."""
        return max(self.changed_at, self.shown_at + EVERY_S)


def page_due_at(page: RefreshPace, topics: Iterable[RefreshPace]) -> float:
    """Return when a page is to be sent again; inf if nothing on it has changed.

    `page` changes when one of its topics has been drawn, `topics` when their rows have.
    """
    first = min((topic.due_at for topic in topics), default=inf)
    return max(min(first, page.changed_at), page.shown_at + EVERY_S)
