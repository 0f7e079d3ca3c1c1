"""Read queries' lag behind tables, for pages, lists and REST."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from queries.domain.kafka.lag import catch_up_s
from queries.domain.tables.lag import TableLag, clock_words
from queries.models.checkpoints import TABLE, SourceLag
from queries.selectors.tables.rows import table_lag


@dataclass(frozen=True, slots=True)
class TableLine:
    """How far a query is behind one table; values are None if unknown."""

    row: SourceLag
    lag: TableLag
    seconds: float | None  # age of the first unread version; 0.0 if there is none
    catch_up_s: float | None
    expires: str  # what is removed next, when and how, as a sentence; "" if nothing is known


@dataclass(frozen=True, slots=True)
class TableTotals:
    """How far a query is behind all its tables; a value is None if it is unknown for one."""

    versions: int | None
    files: int | None
    bytes: int | None


def table_line(row: SourceLag, *, now: datetime) -> TableLine:
    """Return a table's row with what follows from it."""
    lag = table_lag(row)
    return TableLine(
        row=row,
        lag=lag,
        seconds=seconds_behind(row, now=now),
        catch_up_s=catch_up_s(lag.versions, row.arrival_rate, row.processing_rate),
        expires=clock_words(lag.clock, now=now) if lag.clock else "",
    )


def seconds_behind(row: SourceLag, *, now: datetime) -> float | None:
    """Return the age of a table's first unread version; 0.0 if there is none, None if unknown."""
    lag = table_lag(row)
    if lag.versions == 0:
        return 0.0
    if lag.versions is None or lag.unread_at is None:
        return None
    return max(0.0, (now - lag.unread_at).total_seconds())


def table_totals(rows: Iterable[SourceLag]) -> TableTotals | None:
    """Return the totals of a query's rows; None if it reads no table."""
    lags = [table_lag(row) for row in rows if row.partition == TABLE]
    if not lags:
        return None
    return TableTotals(
        versions=_total([lag.versions for lag in lags]),
        files=_total([lag.files for lag in lags]),
        bytes=_total([lag.bytes for lag in lags]),
    )


def _total(values: Sequence[int | None]) -> int | None:
    counted = [value for value in values if value is not None]
    return sum(counted) if len(counted) == len(values) else None
