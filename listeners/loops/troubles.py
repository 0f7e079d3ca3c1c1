"""Store the troubles of the server's loops as rows, for the system's health.

A row is deleted once its element is processed again. The row of an element that was set aside stays
until its retention is over, because that element is not tried again.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import DatabaseError, transaction
from django.db.models import F

from listeners import models
from listeners.loops.each import LoopErrors, SkippedElement
from listeners.loops.leases import LeaseLost

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
    skipped = LoopErrors(loop, log).record_error(about, error)
    _write(skipped, 1, for_good=True)


def _record(trouble: SkippedElement) -> None:
    times = _written.due((trouble.loop, trouble.about))
    if times:
        _write_if_possible(lambda: _write(trouble, times, for_good=False))


def _over(trouble: SkippedElement) -> None:
    _written.forget((trouble.loop, trouble.about))
    rows = models.Trouble.objects.filter(
        loop=trouble.loop, about=trouble.about[:120], set_aside=False
    )
    _write_if_possible(rows.delete)


def _write_if_possible(write: Callable[[], object]) -> None:
    """Write, if the database accepts it; the database itself may be the trouble."""
    try:
        write()
    except DatabaseError as error:
        logger.debug("a skipped element was not recorded: %s", error)


def _write(trouble: SkippedElement, times: int, *, for_good: bool) -> None:
    now = datetime.now(UTC)
    key = {"loop": trouble.loop[:40], "about": trouble.about[:120]}
    with transaction.atomic():
        row, _ = models.Trouble.objects.get_or_create(
            **key, defaults={"cause": trouble.cause, "first_at": now, "last_at": now}
        )
        models.Trouble.objects.filter(pk=row.pk).update(
            cause=trouble.cause,
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
