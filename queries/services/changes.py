"""Write rows: record state changes, write only changed columns, and build rows before a
transaction.

`bulk_create` converts objects to columns, and columns to statements, while the transaction holds
SQLite's only write lock. This conversion takes nine tenths of a large insert's time; here it is
done in advance.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import Field, Model

from queries.domain.reasons import Because
from queries.models.applications import Application
from queries.models.history import Transition


def record(
    subject: str, before: str, after: str, reason: str, *, now: datetime, **about: Any
) -> None:
    """Insert a Transition; `about` contains its other columns: its owner and its actor."""
    Transition.objects.create(
        at=now, subject=subject, before=before, after=after, reason=reason, **about
    )


def record_grant(
    application: str, before: str, after: str, detail: Because, *, actor: str, now: datetime
) -> None:
    """Record that an admin granted something to the named application, or revoked it.

    This is recorded in the application's history. For a channel, or an application that does not
    exist yet, nothing is written here: only the audit log has it.
    """
    row = Application.objects.filter(name=application, archived_at=None).first()
    if row is not None:
        record(
            "grant", before[:40], after, "", now=now, application=row, detail=detail, actor=actor
        )


def update_changed(row: Model, fields: dict[str, Any]) -> bool:
    """Update only the columns whose new values differ from the row's; return whether any did."""
    fresh = {name: value for name, value in fields.items() if getattr(row, name) != value}
    if fresh:
        type(row)._default_manager.filter(pk=row.pk).update(**fresh)
    return bool(fresh)


#: Parameters per statement: below PostgreSQL's limit of 65,535.
MOST_PARAMETERS = 30_000

_Row = TypeVar("_Row", bound=Model)


class Prepared(Generic[_Row]):
    """New rows of one table with all their columns, except ids of related new rows."""

    def __init__(self, rows: Iterable[_Row]) -> None:
        self.rows: list[_Row] = list(rows)
        self._batches: list[_InsertBatch] = []
        if not self.rows:
            return
        meta = self.rows[0]._meta
        computed_fields = meta.db_returning_fields  # the id, and database-computed columns
        fields = [field for field in meta.concrete_fields if field not in computed_fields]
        most = MOST_PARAMETERS // len(fields)
        size = min(connection.ops.bulk_batch_size(fields, self.rows), most)
        for first in range(0, len(self.rows), size):
            self._batches.append(_InsertBatch(self.rows[first : first + size], fields))

    def insert(self) -> None:
        """Insert the rows in the caller's transaction, and set their ids.

        The rows they refer to must already exist.
        """
        with connection.cursor() as cursor:
            for batch in self._batches:
                batch.insert(cursor)


class _InsertBatch:
    """The rows of one statement."""

    def __init__(self, rows: Sequence[Model], fields: "Sequence[Field[Any, Any]]") -> None:
        self._rows = rows
        self._values: list[Any] = []
        self._late: list[tuple[int, Model, Field[Any, Any]]] = []  # position, row, referenced field
        for row in rows:
            for field in fields:
                if _is_new(row, field):
                    self._late.append((len(self._values), row, field))
                    self._values.append(None)
                    continue
                value = field.get_db_prep_save(field.pre_save(row, add=True), connection)
                self._values.append(value)
        name = connection.ops.quote_name
        meta = rows[0]._meta
        columns = ", ".join(name(str(field.column)) for field in fields)
        places = f"({', '.join(['%s'] * len(fields))})"
        self._sql = (
            f"INSERT INTO {name(meta.db_table)} ({columns}) VALUES "
            f"{', '.join([places] * len(rows))} "
            f"RETURNING {', '.join(name(str(field.column)) for field in meta.db_returning_fields)}"
        )

    def insert(self, cursor: Any) -> None:
        for index, row, field in self._late:
            referred = getattr(row, field.name)
            assert referred.pk is not None, f"{field} of {row!r} is to be inserted first"
            setattr(row, field.name, referred)  # also sets the id column
            self._values[index] = referred.pk
        cursor.execute(self._sql, self._values)
        # In the order of the values, as Django's own bulk inserts assume.
        for row, made in zip(self._rows, cursor.fetchall(), strict=True):
            for field, value in zip(row._meta.db_returning_fields, made, strict=True):
                setattr(row, str(field.attname), value)
            row._state.adding, row._state.db = False, connection.alias


def _is_new(row: Model, field: Any) -> bool:
    """Return whether a field refers to a row that has no id yet."""
    if not field.is_relation or not field.is_cached(row):
        return False
    referred = field.get_cached_value(row)
    return referred is not None and referred.pk is None
