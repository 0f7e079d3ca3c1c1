"""Insert many rows by SQL that each database executes fast.

SQLite compiles a statement once and executes it for each row. PostgreSQL gets many rows in each
statement, because a statement is a round trip there.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from django.db import connection

#: Rows of one statement on PostgreSQL.
_AT_ONCE = 500


def insert(table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]], rest: str) -> None:
    """Insert rows into a table's columns; `rest` is the ON CONFLICT of the statement."""
    names = ", ".join(f'"{name}"' for name in columns)
    places = f"({', '.join(['%s'] * len(columns))})"
    head = f'INSERT INTO "{table}" ({names}) VALUES '
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.executemany(f"{head}{places} {rest}", rows)
            return
        for first in range(0, len(rows), _AT_ONCE):
            some = rows[first : first + _AT_ONCE]
            statement = f"{head}{', '.join([places] * len(some))} {rest}"
            cursor.execute(statement, list(chain.from_iterable(some)))
