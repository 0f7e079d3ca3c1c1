"""Do bulk work in slices, in one worker at a time, so that other writers never wait long.

The row's `leased_until` column is the whole state, and each change of it is one conditional update,
so that exactly one of two workers succeeds:

| `leased_until`            | state   | who may change it                                     |
|---------------------------|---------|-------------------------------------------------------|
| null                      | free    | any worker takes it                                   |
| now or earlier            | expired | any worker takes it: its holder is dead or frozen     |
| at most two lengths ahead | held    | the worker that wrote this value renews or releases it|
| further ahead             | absurd  | any worker takes it: a clock was ahead, then set back |

A worker that was frozen past its lease can neither renew nor release the lease of its successor.

Work on a backlog (loss ledger, gaps, retention) reads outside any transaction and writes
in slices: short transactions, each followed by a pause that is long enough for a waiting writer to
get the lock. SQLite does not wake waiters: a writer that finds the lock taken sleeps and retries,
eventually every 100 ms (its `busy_timeout`), so it would sleep through a shorter pause. All bulk
jobs in a process take turns, so that together they hold the lock no longer than a single job would.

Each kind of work is done by one worker at a time, under a lease in the row of its cursor. Every
slice renews the lease in its own transaction, so a worker that was frozen for longer than its lease
does not write anything.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    connection,
    transaction,
)
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from listeners import models

logger = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Model)


class LeaseLost(Exception):
    """Another worker has taken this work over: do not write anything."""


@dataclass(frozen=True, slots=True)
class Leases:
    """Leases of a given length: a dead worker's work is taken over after that time."""

    length: timedelta

    def free(self, now: datetime) -> Q:
        """Return the condition under which any worker can take a row."""
        absurd = Q(leased_until__gt=now + 2 * self.length)
        return Q(leased_until=None) | Q(leased_until__lte=now) | absurd

    def take(self, rows: QuerySet[Row], pk: Any, *, now: datetime, **also: Any) -> "Lease | None":
        """Lease one of these rows and write columns with it; None if no such row is free.

        `rows` selects the rows that have work to do, using only the table's own columns: a join
        would become a subquery, which PostgreSQL does not re-evaluate when two workers take a row
        at the same time.
        """
        until = now + self.length
        if not rows.filter(self.free(now), pk=pk).update(leased_until=until, **also):
            return None
        return Lease(rows.model, pk, until, self.length)


@dataclass(slots=True)
class Lease:
    """A lease that this worker took."""

    model: type[Model]
    pk: Any
    until: datetime  # as this worker last wrote it
    length: timedelta

    @property
    def row(self) -> QuerySet[Model]:
        """Return a queryset with the row, which is empty once another worker has taken it over."""
        return self.model._default_manager.filter(pk=self.pk, leased_until=self.until)

    def renew(self, now: datetime) -> datetime:
        """Write and return a new end; set `until` to this value once the transaction has committed.

        Raises `LeaseLost` if another worker has taken over.
        """
        until = now + self.length
        if not self.row.update(leased_until=until):
            raise LeaseLost(f"{self.model.__name__} {self.pk}")
        return until

    def release(self, **also: Any) -> bool:
        """Free the row and write columns with it; return False if another worker has it."""
        return bool(self.row.update(leased_until=None, **also))

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the lease in the background while the block runs, then release it.

        While the database is busy or unavailable, it retries: nobody else can take the row then.
        """
        over = threading.Event()

        def renew() -> None:
            while not over.wait(self.length.total_seconds() / 3):
                try:
                    self.until = self.renew(timezone.now())
                except LeaseLost:
                    break  # what the block still does must be repeatable
                except (DatabaseError, InterfaceError) as error:
                    logger.warning("a lease was not renewed yet: %s", type(error).__name__)
                    connection.close()
            connection.close()

        thread = threading.Thread(target=renew, name=f"lease-{self.pk}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.release()


T = TypeVar("T")

#: Target duration of a slice, in seconds: even if a slower machine takes three times as long,
#: nobody waits for more than 0.05 s.
AIM_S = 0.015
#: A slice that processes rows one by one stops here.
_STOP_S = 0.020
#: SQLite's longest sleep between two lock attempts is 0.1 s. PostgreSQL wakes its waiters.
_PAUSE_S = {"sqlite": 0.12}
_SHORT_PAUSE_S = 0.005
FIRST_ROWS, MOST_ROWS = 50, 2_000  # per slice
#: A dead worker's work is taken over after this long.
LEASE = timedelta(seconds=60)


def lies_in_the_row(error: Exception) -> bool:
    """Return whether an error is due to a row that can never be stored, not to the database."""
    if isinstance(error, DataError | IntegrityError):
        return True
    return not isinstance(error, DatabaseError | InterfaceError | LeaseLost)


@dataclass(slots=True)
class Slice:
    """One short transaction."""

    began: float  # monotonic, when the lock was acquired

    @property
    def over(self) -> bool:
        """Return whether to commit now and continue with the next slice."""
        return time.monotonic() - self.began >= _STOP_S


class _Turns:
    """The bulk work of this process, one slice at a time, with pauses in between."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = float("-inf")  # monotonic, of the last slice

    @contextmanager
    def take(self) -> Iterator[None]:
        with self._lock:
            pause = _PAUSE_S.get(connection.vendor, _SHORT_PAUSE_S)
            # There is no event to wait for: the other waiters are in other processes.
            time.sleep(max(0.0, self._ended + pause - time.monotonic()))
            try:
                yield
            finally:
                self._ended = time.monotonic()


_turns = _Turns()
_sizes: dict[str, int] = {}  # of this process's slices by kind of work, adapted to their durations


class BulkRun:
    """A run of one kind of bulk work, which holds the lease and has a time limit."""

    def __init__(self, name: str, lease: Lease, limit_s: float) -> None:
        self.name = name
        self._lease = lease
        self._end = time.monotonic() + limit_s
        self.longest_s = 0.0  # the longest lock time of a slice

    @property
    def has_time(self) -> bool:
        """Return whether there is time for another slice; the next run does the remaining work."""
        return time.monotonic() < self._end

    def size(self, kind: str = "") -> int:
        """Return the number of rows of a kind for the next slice, from the last durations."""
        return _sizes.get(self.name + kind, FIRST_ROWS)

    @contextmanager
    def slice(self, rows: int | None = None, kind: str = "") -> Iterator[Slice]:
        """Run the block in its own short transaction, in turn; the block must not read much.

        `rows` is the number of rows of this kind that the block writes, which determines the next
        size. Raises `LeaseLost` if another worker has taken over.
        """
        with _turns.take():
            committed: list[float] = []
            with transaction.atomic():
                work_slice = Slice(time.monotonic())
                # The first callback: the others run when the lock is free again.
                transaction.on_commit(lambda: committed.append(time.monotonic()))
                until = self._lease.renew(datetime.now(UTC))
                yield work_slice
            self._lease.until = until
            lock_s = (committed[0] if committed else time.monotonic()) - work_slice.began
        self.longest_s = max(self.longest_s, lock_s)
        if rows:
            factor = min(2.0, max(0.25, AIM_S / max(lock_s, 1e-6)))
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

        With `whole`, the time limit is ignored.

        If a slice cannot be stored, its rows are written one by one, and `refused(row, error)` is
        called, in the transaction, for each row that still cannot be stored.
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
        """Record the remaining work: the number of rows, and the age of the oldest row."""
        self._lease.row.update(
            left_rows=rows, left_since=since if rows else None, ran_at=datetime.now(UTC)
        )

    def end(self) -> None:
        """Release the lease; if the database does not accept that, the lease expires later."""
        with suppress(DatabaseError):
            self._lease.release()


@contextmanager
def bulk_work(name: str, *, limit_s: float) -> Iterator[BulkRun | None]:
    """Start a run of a kind of bulk work, at most `limit_s` long.

    Yields None if another worker is doing this work; the next tick tries again.
    """
    work: BulkRun | None = None
    try:
        work = _leased(name, limit_s)
        yield work
    except LeaseLost:
        work = None
    finally:
        if work is not None:
            work.end()


def _leased(name: str, limit_s: float) -> BulkRun | None:
    models.Cursor.objects.get_or_create(name=name)
    lease = Leases(LEASE).take(models.Cursor.objects.all(), name, now=datetime.now(UTC))
    return BulkRun(name, lease, limit_s) if lease else None
