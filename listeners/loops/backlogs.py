"""The state of the loops for health: their errors as rows, and how far bulk work is behind.

A row is deleted once its element is processed again. The row of a quarantined element is kept until
its retention expires, because that element is not retried.

Each kind of work records its backlog at the end of a run (`BulkRun.left`); the system's health
reads it here.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from django.db import DatabaseError, transaction
from django.db.models import F

from controlplane import hosts
from listeners import models
from listeners.loops.each import LoopErrors, SkippedElement
from listeners.loops.slices import LeaseLost

logger = logging.getLogger(__name__)

#: A loop returns to its elements within a minute; a trouble that has not recurred for this long is
#: over.
OVER_AFTER = timedelta(minutes=10)
#: A driver that has been silent for longer is another part's problem.
HEARTBEAT_FRESH = timedelta(seconds=30)
_SHOWN = 1_000
#: How long elements that were set aside are shown.
SET_ASIDE_SHOWN_FOR = timedelta(days=1)
#: Minimum interval between writes of the same trouble, in seconds; in between, it is counted in
#: memory.
WRITTEN_EVERY_S = 10.0


class _Written:
    """The counts that this process has not written yet, by element."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[tuple[str, str], int] = {}
        self._at: dict[tuple[str, str], float] = {}  # monotonic

    def due(self, key: tuple[str, str]) -> int:
        """Count one more error; return how many to write now, or 0."""
        with self._guard:
            self._waiting[key] = self._waiting.get(key, 0) + 1
            now = time.monotonic()
            if now - self._at.get(key, -WRITTEN_EVERY_S) < WRITTEN_EVERY_S:
                return 0
            self._at[key] = now
            return self._waiting.pop(key)

    def forget(self, key: tuple[str, str]) -> None:
        with self._guard:
            self._waiting.pop(key, None)
            self._at.pop(key, None)


_written = _Written()


def loop_errors(loop: str, log: logging.Logger) -> LoopErrors:
    """Return the guard for elements of one of the server's loops; processes share its counts."""
    return LoopErrors(loop, log, through=(LeaseLost,), on_error=_record, over=_over)


def quarantine(loop: str, about: str, error: Exception, *, log: logging.Logger) -> None:
    """Record an element that is skipped for good; within a transaction, as part of it."""
    skipped_element = LoopErrors(loop, log).record_error(about, error)
    _write(skipped_element, 1, for_good=True)


def _record(skipped_element: SkippedElement) -> None:
    times = _written.due((skipped_element.loop, skipped_element.about))
    if times:
        _write_if_possible(lambda: _write(skipped_element, times, for_good=False))


def _over(skipped_element: SkippedElement) -> None:
    _written.forget((skipped_element.loop, skipped_element.about))
    rows = models.Trouble.objects.filter(
        loop=skipped_element.loop, about=skipped_element.about[:120], set_aside=False
    )
    _write_if_possible(rows.delete)


def _write_if_possible(write: Callable[[], object]) -> None:
    """Write, if the database accepts it; the database itself may be the trouble."""
    try:
        write()
    except DatabaseError as error:
        logger.debug("a skipped element was not recorded: %s", error)


def _write(skipped_element: SkippedElement, times: int, *, for_good: bool) -> None:
    now = datetime.now(UTC)
    key = {"loop": skipped_element.loop[:40], "about": skipped_element.about[:120]}
    with transaction.atomic():
        row, _ = models.Trouble.objects.get_or_create(
            **key, defaults={"cause": skipped_element.cause, "first_at": now, "last_at": now}
        )
        models.Trouble.objects.filter(pk=row.pk).update(
            cause=skipped_element.cause,
            times=F("times") + times,
            last_at=now,
            set_aside=for_good or row.set_aside,
        )


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A skipped element as shown by the system's health."""

    loop: str
    about: str
    cause: str
    times: int
    since: datetime
    set_aside: bool = False


def current(now: datetime) -> list[SkippedRow]:
    """Return the elements that the server's loops skip now or have recently set aside."""
    rows = models.Trouble.objects.filter(last_at__gt=now - SET_ASIDE_SHOWN_FOR)
    return [
        SkippedRow(row.loop, row.about, row.cause, row.times, row.first_at, row.set_aside)
        for row in rows.order_by("first_at", "pk")[:_SHOWN]
        if row.set_aside or row.last_at > now - OVER_AFTER
    ]


def of_drivers(now: datetime) -> list[SkippedRow]:
    """Return the elements that drivers skip, according to their newest heartbeats."""
    rows = models.Heartbeat.objects.filter(received_at__gt=now - HEARTBEAT_FRESH)
    return [
        SkippedRow(
            f"driver {row.driver}", trouble["about"], trouble["cause"], trouble["times"], row.at
        )
        for row in rows[:_SHOWN]
        for trouble in row.body.get("troubles") or ()  # validated when it arrived
    ]


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
