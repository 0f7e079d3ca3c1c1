"""Bulk work in slices: the database's one writer must not keep anybody waiting.

Whatever works through a backlog (loss ledger, roll-ups, gaps, retention) reads outside of any
transaction and writes in slices: short transactions, after each of which the lock is left alone
for long enough that whoever waits for it gets it. SQLite wakes nobody: a writer that finds the
lock taken sleeps and tries again, in the end every 100 ms (its `busy_timeout`), so a shorter
pause would be slept through. All bulk work of a process takes turns, so that together it holds
the lock no more than one of them would.

One worker at a time does each kind of work, by a lease in its cursor's row that every slice
renews in its own transaction: a worker that was frozen beyond it writes nothing.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    connection,
    transaction,
)
from django.db.models import Q

from listeners import models

T = TypeVar("T")

#: What a slice is cut for, in seconds: one that takes three times as long, on a machine that is
#: slower by then, still keeps nobody waiting for more than 0.05 s.
AIM_S = 0.015
#: A slice that takes its rows one after the other stops here.
_STOP_S = 0.020
#: SQLite's longest sleep between two tries for the lock is 0.1 s. PostgreSQL wakes its waiters.
_PAUSE_S = {"sqlite": 0.12}
_SHORT_PAUSE_S = 0.005
FIRST_ROWS, MOST_ROWS = 50, 2_000  # of a slice
#: A dead worker's work is taken over after this long.
LEASE = timedelta(seconds=60)


class LeaseLost(Exception):
    """Another worker has taken this work over: write nothing."""


def lies_in_the_row(error: Exception) -> bool:
    """Tell a row that no repetition makes storable from a database that does not take it now."""
    if isinstance(error, DataError | IntegrityError):
        return True
    return not isinstance(error, DatabaseError | InterfaceError | LeaseLost)


@dataclass(slots=True)
class Slice:
    """One short transaction."""

    began: float  # monotonic, once the lock was had

    @property
    def over(self) -> bool:
        """Whether to commit now and go on with the next slice."""
        return time.monotonic() - self.began >= _STOP_S


class _Turns:
    """The bulk work of this process, one slice at a time, with pauses between."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = float("-inf")  # monotonic, of the last slice

    @contextmanager
    def take(self) -> Iterator[None]:
        with self._lock:
            pause = _PAUSE_S.get(connection.vendor, _SHORT_PAUSE_S)
            # There is no event to wait for: whoever else wants the lock is another process.
            time.sleep(max(0.0, self._ended + pause - time.monotonic()))
            try:
                yield
            finally:
                self._ended = time.monotonic()


_turns = _Turns()
_sizes: dict[str, int] = {}  # of this process's slices by kind of work, as the last ones took
_at_work = threading.BoundedSemaphore(max(1, settings.WORKER_THREADS // 2))


class BulkRun:
    """A run of one kind of bulk work: it has the lease, and a limit of time."""

    def __init__(self, name: str, until: datetime, limit_s: float) -> None:
        self.name = name
        self._leased_until = until
        self._end = time.monotonic() + limit_s
        self.longest_s = 0.0  # that a slice has held the lock

    @property
    def has_time(self) -> bool:
        """Whether to begin another slice; what is left goes with the next run."""
        return time.monotonic() < self._end

    def size(self, kind: str = "") -> int:
        """Return how many rows of a kind the next slice should have, as the last ones took."""
        return _sizes.get(self.name + kind, FIRST_ROWS)

    @contextmanager
    def slice(self, rows: int | None = None, kind: str = "") -> Iterator[Slice]:
        """Do the block in a short transaction of its own, in turn; it must not read much.

        `rows`: how many of a kind it writes, for the size of the next. Raises `LeaseLost` where
        another worker has taken over.
        """
        with _turns.take():
            committed: list[float] = []
            with transaction.atomic():
                one = Slice(time.monotonic())
                # The first callback: the others run when the lock is free again.
                transaction.on_commit(lambda: committed.append(time.monotonic()))
                until = self._renew()
                yield one
            self._leased_until = until
            held = (committed[0] if committed else time.monotonic()) - one.began
        self.longest_s = max(self.longest_s, held)
        if rows:
            factor = min(2.0, max(0.25, AIM_S / max(held, 1e-6)))
            if rows >= self.size(kind) or factor < 1:
                _sizes[self.name + kind] = min(MOST_ROWS, max(1, int(rows * factor)))

    def write(
        self,
        rows: Sequence[T],
        write: Callable[[Sequence[T]], Any],
        refused: Callable[[T, Exception], None],
        kind: str = "",
        *,
        whole: bool = False,
    ) -> bool:
        """Write rows in as many slices as they need; return whether there was time for all.

        `whole`: whatever time it takes.

        Where a slice cannot be stored its rows go one by one, and `refused(row, error)` is
        called, in the transaction, for each that cannot be stored by itself either.
        """
        done = 0
        while done < len(rows):
            if not (whole or self.has_time):
                return False
            some = rows[done : done + self.size(kind)]
            try:
                with self.slice(len(some), kind):
                    write(some)
            except Exception as error:
                if not lies_in_the_row(error):
                    raise
                self._write_singly(some, write, refused)
            done += len(some)
        return True

    def _write_singly(
        self,
        rows: Sequence[T],
        write: Callable[[Sequence[T]], Any],
        refused: Callable[[T, Exception], None],
    ) -> None:
        for row in rows:
            with self.slice():
                try:
                    with transaction.atomic():
                        write([row])
                except Exception as error:
                    if not lies_in_the_row(error):
                        raise
                    refused(row, error)

    def left(self, rows: int, since: datetime | None) -> None:
        """Record what this run has not done: how many rows, and the age of the oldest."""
        models.Cursor.objects.filter(name=self.name, leased_until=self._leased_until).update(
            left_rows=rows, left_since=since if rows else None, ran_at=datetime.now(UTC)
        )

    def _renew(self) -> datetime:
        """Return until when the lease is renewed, once the slice has committed."""
        until = datetime.now(UTC) + LEASE
        rows = models.Cursor.objects.filter(name=self.name, leased_until=self._leased_until)
        if not rows.update(leased_until=until):
            raise LeaseLost(self.name)
        return until

    def end(self) -> None:
        """Give the lease back; where the database does not let us, it runs out."""
        rows = models.Cursor.objects.filter(name=self.name, leased_until=self._leased_until)
        with suppress(DatabaseError):
            rows.update(leased_until=None)


@contextmanager
def bulk_work(name: str, *, limit_s: float) -> Iterator[BulkRun | None]:
    """Begin a run of one kind of bulk work, `limit_s` long at most.

    None where another worker does it now, or where half of this process's threads do bulk work:
    the others are for reconcile and operations. The next tick tries again.
    """
    if not _at_work.acquire(blocking=False):
        yield None
        return
    work: BulkRun | None = None
    try:
        work = _leased(name, limit_s)
        yield work
    except LeaseLost:
        work = None
    finally:
        _at_work.release()
        if work is not None:
            work.end()


def _leased(name: str, limit_s: float) -> BulkRun | None:
    models.Cursor.objects.get_or_create(name=name)
    now = datetime.now(UTC)
    free = Q(leased_until=None) | Q(leased_until__lt=now) | Q(leased_until__gt=now + 2 * LEASE)
    taken = models.Cursor.objects.filter(free, name=name).update(leased_until=now + LEASE)
    return BulkRun(name, now + LEASE, limit_s) if taken else None
