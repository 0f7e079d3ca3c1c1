"""Rollups of batches by minute and hour, and inserts of many rows by SQL that each database
executes fast.

`listeners.store` adds each batch in the transaction that stores it, and only if it was not stored
before. Therefore a batch counts once, however often, late or repaired it arrives, also if the raw
rows of its buckets have already been deleted.

SQLite compiles a statement once and executes it for each row. PostgreSQL gets many rows in each
statement, because a statement is a round trip there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain
from typing import Any

from django.db import connection

from headgate_ground.tolerant import count
from listeners import models

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


WIDTHS_S = (10, 60, 3600)
_TABLE = models.Rollup._meta.db_table
_KEY = ("query", "width_s", "start")
#: Entries of Spark's durationMs that have a column of their own.
PHASES = {
    "addBatch": "add_batch_ms",
    "getBatch": "get_batch_ms",
    "latestOffset": "latest_offset_ms",
    "queryPlanning": "query_planning_ms",
    "walCommit": "wal_commit_ms",
    "commitOffsets": "commit_offsets_ms",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A database integer's maximum: a sum stays there, because its batch must still be stored.
_MOST = 2**63 - 1


def _sum(first: int, other: int) -> int:
    both = first + other
    return both if both < _MOST else _MOST  # twice as fast as min()


#: How two values of a column become one; if one is unknown, the other one counts.
_COLUMNS: dict[str, Callable[[Any, Any], Any]] = {
    "batches": _sum,
    "rows": _sum,
    "duration_ms_min": min,
    "duration_ms_max": max,
    "duration_ms_sum": _sum,
    "input_rate_max": max,
    "processed_rate_max": max,
    "state_rows_max": max,
    "watermark_delay_s_max": max,
    **dict.fromkeys(PHASES.values(), _sum),
}
_MERGES = tuple(_COLUMNS.values())

#: Values by `_COLUMNS`: of one batch, or of a bucket.
Figures = tuple[Any, ...]
#: A batch's query, its start in whole seconds since 1970, and its figures.
Part = tuple[int, int, Figures]


def part_of(
    query: int,
    at: datetime,
    *,
    rows: int,
    took_ms: int,
    input_rate: float | None,
    processed_rate: float | None,
    state_rows: int | None,
    watermark: datetime | None,
    phases: Mapping[str, Any] | None,
) -> Part:
    """Return one batch in the form in which its buckets add it."""
    durations = phases or {}
    delay = watermark_delay_s(at, watermark)
    figures = (1, rows, took_ms, took_ms, took_ms, input_rate, processed_rate, state_rows, delay)
    spent = [count(durations[name]) if name in durations else None for name in PHASES]
    return query, int(at.timestamp() // 1), (*figures, *spent)


def watermark_delay_s(at: datetime, watermark: datetime | None) -> float | None:
    """Return the watermark's delay behind the trigger's start; None if there is no watermark yet.

    Spark reports 1970 until the first batch with data sets the watermark.
    """
    if watermark is None or watermark.timestamp() <= 0:
        return None
    return (at - watermark).total_seconds()


def add(parts: Iterable[Part]) -> None:
    """Add batches to their buckets; call this in the transaction that stores their rows."""
    rows = [
        (query, width_s, _start(second), *figures)
        for width_s, buckets in summed(parts).items()
        for (query, second), figures in sorted(buckets.items(), key=lambda one: one[0])
    ]
    insert(_TABLE, (*_KEY, *_COLUMNS), rows, _merging(connection.vendor))


def summed(parts: Iterable[Part]) -> dict[int, dict[tuple[int, int], Figures]]:
    """Return, by width, the figures of each bucket (query, start) that contains these batches."""
    by_width: dict[int, dict[tuple[int, int], Figures]] = {}
    for width_s in WIDTHS_S:
        buckets: dict[tuple[int, int], Figures] = {}
        for query, second, figures in parts:
            key = query, second - second % width_s
            before = buckets.get(key)
            buckets[key] = figures if before is None else _merged(before, figures)
        by_width[width_s] = buckets
        parts = [(query, second, figures) for (query, second), figures in buckets.items()]
    return by_width


def _merged(first: Figures, other: Figures) -> Figures:
    return tuple(
        [
            a if b is None else b if a is None else merge(a, b)
            for merge, a, b in zip(_MERGES, first, other, strict=True)
        ]
    )


def _start(second: int) -> Any:
    return connection.ops.adapt_datetimefield_value(_EPOCH + timedelta(seconds=second))


@cache
def _merging(vendor: str) -> str:
    """Return the ON CONFLICT that merges a bucket's values with those that are stored."""
    table = f'"{_TABLE}"'
    least, most = ("MIN", "MAX") if vendor == "sqlite" else ("LEAST", "GREATEST")
    # SQLite turns a sum beyond its integers into a float, which compares correctly.
    number = "{}" if vendor == "sqlite" else "CAST({} AS numeric)"
    changes = []
    for name, merge in _COLUMNS.items():
        old, new = f'{table}."{name}"', f'excluded."{name}"'
        if merge is _sum:
            both = f"{least}({number.format(old)} + {new}, {_MOST})"
        else:
            both = f"{least if merge is min else most}({old}, {new})"
        # Not by COALESCE: with NULL, LEAST returns the other value, and MIN returns NULL.
        either = f"WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL THEN {old}"
        changes.append(f'"{name}" = CASE {either} ELSE {both} END')
    key = ", ".join(f'"{name}"' for name in _KEY)
    return f"ON CONFLICT ({key}) DO UPDATE SET {', '.join(changes)}"
