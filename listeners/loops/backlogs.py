"""How far behind each kind of bulk work is: rows that wait, and the age of the oldest.

Each kind tells it at the end of a run (`Work.left`); the system's health reads it here.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from listeners import models

LEDGER = "ledger"
ROLLUPS = "rollups"
GAPS = "gaps"
RETENTION = "retention"


@dataclass(frozen=True, slots=True)
class _Kind:
    title: str  # as pages show it
    unit: str  # of what waits, singular
    late_after: timedelta  # it is a problem where the oldest waits longer
    silent_after: timedelta  # and where no run has ended for so long


_TICK = timedelta(minutes=2), timedelta(minutes=5)
_KINDS = {
    LEDGER: _Kind("loss ledger", "batch", *_TICK),
    ROLLUPS: _Kind("roll-ups", "batch", *_TICK),
    GAPS: _Kind("gaps", "driver", *_TICK),
    RETENTION: _Kind("retention", "row", timedelta(days=1), timedelta(hours=3)),
}


@dataclass(frozen=True, slots=True)
class Backlog:
    """What one kind of bulk work has left to do."""

    name: str
    rows: int  # as of its last run
    since: datetime | None  # the age of the oldest of them; None: nothing is left
    ran_at: datetime | None  # the end of its last run; None: it has never run

    @property
    def title(self) -> str:
        """Return the name that pages show."""
        return _KINDS[self.name].title

    @property
    def unit(self) -> str:
        """Return what a row of it is, singular."""
        return _KINDS[self.name].unit

    @property
    def late_after(self) -> timedelta:
        """Return how old the oldest may be before that is a problem."""
        return _KINDS[self.name].late_after

    @property
    def silent_after(self) -> timedelta:
        """Return how long ago the last run may be before that is a problem."""
        return _KINDS[self.name].silent_after


def backlogs() -> list[Backlog]:
    """Return how far behind each kind is, in the order above."""
    rows = models.Cursor.objects.in_bulk(list(_KINDS))
    found = []
    for name in _KINDS:
        row = rows.get(name) or models.Cursor(name=name)
        found.append(Backlog(name, row.left_rows, row.left_since, row.ran_at))
    return found


def rows_left(name: str) -> tuple[int, datetime | None]:
    """Return how many progress rows come after a cursor, and when the oldest was received.

    Told by their ids: counting a hundred thousand rows would read all of them.
    """
    position = models.Cursor.objects.filter(name=name).values_list("position", flat=True).first()
    after = models.Progress.objects.filter(pk__gt=position or 0).values_list("pk", "received_at")
    oldest, newest = after.order_by("pk").first(), after.order_by("-pk").first()
    if oldest is None or newest is None:
        return 0, None
    return newest[0] - oldest[0] + 1, oldest[1]
