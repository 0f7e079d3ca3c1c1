"""Convert between a table's row in `SourceLag` and its lag."""

from datetime import timedelta
from typing import Any

from queries.domain.tables.lag import Removal, RemovalDeadline, TableLag
from queries.models.checkpoints import SourceLag

#: `removal` of a row whose `error` says what is lost already.
_LOST = "lost"


def table_lag(row: SourceLag) -> TableLag:
    """Return the lag that is stored in a table's row."""
    unknown = row.committed is None or row.latest is None
    return TableLag(
        next=row.committed,
        latest=row.latest,
        earliest=row.earliest,
        versions=None if unknown else row.latest - row.committed,  # type: ignore[operator]
        files=row.files,
        bytes=row.bytes,
        unread_at=row.record_at,
        clock=_clock(row),
        problem=row.error if is_lost(row) else "",
    )


def is_lost(row: SourceLag) -> bool:
    """Return whether the table no longer has what the query needs next."""
    return row.removal == _LOST


def columns(lag: TableLag) -> dict[str, Any]:
    """Return the columns that hold a lag, without its rates."""
    clock = lag.clock
    return {
        "files": lag.files,
        "bytes": lag.bytes,
        "deleted_at": clock.at if clock else None,
        "retention_ms": (clock.at - clock.since) // timedelta(milliseconds=1) if clock else None,
        "removed_version": clock.version if clock else None,
        "removal": _LOST if lag.problem else clock.removal if clock else "",
        "error": lag.problem or lag.note,
    }


def _clock(row: SourceLag) -> RemovalDeadline | None:
    if row.deleted_at is None or row.removed_version is None or row.removal not in set(Removal):
        return None
    since = row.deleted_at - timedelta(milliseconds=row.retention_ms or 0)
    return RemovalDeadline(row.deleted_at, since, Removal(row.removal), row.removed_version)
