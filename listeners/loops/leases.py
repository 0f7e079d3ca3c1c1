"""Leases: one worker at a time does the work that a row stands for.

The row's `leased_until` column is the whole state, and each change of it is one conditional update,
so that exactly one of two workers succeeds:

| `leased_until`            | state   | who may change it                                     |
|---------------------------|---------|-------------------------------------------------------|
| null                      | free    | any worker takes it                                   |
| now or earlier            | expired | any worker takes it: its holder is dead or frozen     |
| at most two lengths ahead | held    | the worker that wrote this value renews or releases it|
| further ahead             | absurd  | any worker takes it: a clock was ahead, then set back |

A worker that was frozen past its lease can neither renew nor release the lease of its successor.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

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
        """Renew the lease in the background while the block runs, then release it."""
        over = threading.Event()

        def renew() -> None:
            try:
                while not over.wait(self.length.total_seconds() / 3):
                    self.until = self.renew(timezone.now())
            except LeaseLost:
                pass  # what the block still does must be repeatable
            finally:
                connection.close()

        thread = threading.Thread(target=renew, name=f"lease-{self.pk}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.release()
