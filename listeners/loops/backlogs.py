"""Report how far behind each kind of bulk work is: pending rows, and the age of the oldest.

Each kind of work records its backlog at the end of a run (`BulkRun.left`); the system's health
reads it here.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from controlplane import hosts
from listeners import models

LEDGER = "ledger"
GAPS = "gaps"
RETENTION = "retention"


@dataclass(frozen=True, slots=True)
class _BacklogKind:
    title: str  # as shown on pages
    unit: str  # name of a pending row, singular
    late_after: timedelta  # a problem if the oldest waits longer
    silent_after: timedelta  # a problem if no run has ended for longer


_TICK = timedelta(minutes=2), timedelta(minutes=5)
_KINDS = {
    LEDGER: _BacklogKind("loss ledger", "batch", *_TICK),
    GAPS: _BacklogKind("gaps", "driver", *_TICK),
    RETENTION: _BacklogKind("retention", "row", timedelta(days=1), timedelta(hours=3)),
}


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlog of one kind of bulk work, on all hosts together."""

    name: str
    rows: int  # as of its last run
    since: datetime | None  # since when the oldest waits; None: nothing is left
    ran_at: datetime | None  # the end of the last run, of the host furthest behind; None: never

    @property
    def title(self) -> str:
        """Return the name shown on pages."""
        return _KINDS[self.name].title

    @property
    def unit(self) -> str:
        """Return the name of a row, singular."""
        return _KINDS[self.name].unit

    @property
    def late_after(self) -> timedelta:
        """Return the age of the oldest row above which the backlog is a problem."""
        return _KINDS[self.name].late_after

    @property
    def silent_after(self) -> timedelta:
        """Return the time since the last run above which the silence is a problem."""
        return _KINDS[self.name].silent_after


def of_host(name: str, host: str) -> str:
    """Return the cursor name of work that each host does separately; "" means no host."""
    return f"{name}:{sha256(host.encode()).hexdigest()[:12]}" if host else name


def backlogs() -> list[Backlog]:
    """Return the backlog of each kind, in the order above.

    For work that each host does separately, only live hosts count: silent hosts are reported
    separately.
    """
    live_hosts = sorted(hosts.heard_of())
    names = {name: [name] for name in _KINDS}
    names[GAPS] += [of_host(GAPS, host) for host in live_hosts]
    rows = models.Cursor.objects.in_bulk(
        [cursor_name for some in names.values() for cursor_name in some]
    )
    return [
        _together(name, [rows[cursor_name] for cursor_name in names[name] if cursor_name in rows])
        for name in _KINDS
    ]


def _together(name: str, rows: list[models.Cursor]) -> Backlog:
    return Backlog(
        name,
        rows=sum(row.left_rows for row in rows),
        since=min((row.left_since for row in rows if row.left_since), default=None),
        ran_at=min((row.ran_at for row in rows if row.ran_at), default=None),
    )


def rows_left(name: str) -> tuple[int, datetime | None]:
    """Return the number of progress rows after a cursor, and when the oldest was received.

    The number is computed from the rows' ids, because counting a hundred thousand rows would read
    all of them.
    """
    position = models.Cursor.objects.filter(name=name).values_list("position", flat=True).first()
    after = models.Progress.objects.filter(pk__gt=position or 0).values_list("pk", "received_at")
    oldest, newest = after.order_by("pk").first(), after.order_by("-pk").first()
    if oldest is None or newest is None:
        return 0, None
    return newest[0] - oldest[0] + 1, oldest[1]
