"""Read the logs of the tables that queries read, and store how far each query is behind.

Only this module writes the tables' `SourceLag` rows. A table on a local disk is read in every pass.
A table on remote storage is read every `REMOTE_EVERY`, because this needs the application's storage
JVM, and also a moment after somebody opens the page.
"""

import copy
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction

from controlplane.nudge import changed, look_at_tables_soon
from listeners.loops.backlogs import loop_errors
from listeners.models import upsert
from queries.domain.definitions.locations import local_path
from queries.domain.kafka.lag import PartitionLook, after
from queries.domain.kafka.topic_ids import replaced_in
from queries.domain.states import RunOutcome
from queries.domain.tables.lag import TableLag, delta_lag, first_lag, iceberg_lag
from queries.domain.tables.places import DELTA, TablePlace
from queries.domain.tables.replay import DeltaOffset, delta_offset, iceberg_offset
from queries.launchers.base import Launcher
from queries.models.checkpoints import TABLE, SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.hosts import looked_after
from queries.selectors.kafka.lag import look_of, measured, remembered_ids
from queries.selectors.tables import TableReading, columns, is_lost, table_readings
from queries.services.checkpoints.storage_jvms import (
    NoStorage,
    Unknown,
    open_checkpoints,
    storage_of_table,
)
from queries.services.kafka.lag_rows import risk_columns, store_risk
from queries.services.local_roots import allowed_paths
from queries.storage.hadoop import StorageFailed
from queries.storage.table_logs import (
    DeltaLog,
    Files,
    IcebergMetadata,
    NoTable,
    read_delta,
    read_iceberg,
)

logger = logging.getLogger(__name__)
_loop = loop_errors("look at tables", logger)

#: How often a table on a storage is read: its storage JVM ends in between (`STORAGE_IDLE_S`).
REMOTE_EVERY = timedelta(minutes=10)
#: Minimum time between two reads of one table on a storage, unless a page asks for one.
REMOTE_AGAIN = timedelta(minutes=1)
#: Age of a row from which a page that shows it asks for a new read.
READ_EVERY = timedelta(seconds=10)
#: How often rows with unchanged numbers are written.
WRITE_EVERY = timedelta(seconds=30)
_SHOWN = ("committed", "latest", "earliest", "files", "bytes", "deleted_at", "error")
#: Seconds after which a pass reads no further query; the next pass begins with the oldest rows.
PASS_S = 20.0
#: Tables whose logs a process keeps in memory.
CACHE_LIMIT = 500

_NOT_COMMITTED = "No batch has committed yet, so the lag is unknown."
_NO_ID = "its log does not state it."
_UNKNOWN_OFFSET = "The checkpoint has no offset for this table."

#: What each process knows of the tables' logs, by location (Delta: of each query).
_DELTA: dict[str, DeltaLog] = {}
_ICEBERG: dict[str, IcebergMetadata] = {}
_BEGAN: dict[int, float] = {}  # when it last began to read a query's tables
_TRIED: dict[str, datetime] = {}  # when it last began to read a table on a storage
_WAITING: set[str] = set()  # tables whose storage could not be reached yet


def look_at_tables(
    *, launcher: Launcher, now: datetime, query_ids: Sequence[int] | None = None
) -> bool:
    """Read the tables of this host's queries; return whether to try again soon.

    If given, `query_ids` selects some of them, whose tables on remote storage are read now. The
    result is then True if a storage JVM is starting.
    """
    mine = looked_after("application__")
    passed_over: set[int] = set()  # their stored rows stay
    query_readings = table_readings(
        query_ids, where=mine, isolate=_loop.isolate_errors, passed_over=passed_over
    )
    if query_ids is None:
        _forget_others({query_reading.query.pk for query_reading in query_readings} | passed_over)
        for query_id in _BEGAN.keys() - {
            query_reading.query.pk for query_reading in query_readings
        }:
            _BEGAN.pop(query_id, None)
    stored_lags = _stored_lags([query_reading.query.pk for query_reading in query_readings])
    began, again = time.monotonic(), False
    for reading in sorted(
        query_readings, key=lambda query_reading: _oldest(query_reading, stored_lags)
    ):
        if time.monotonic() - began > PASS_S:
            break
        _BEGAN[reading.query.pk] = now.timestamp()
        with _loop.isolate_errors(f"the tables of {reading.query.name}"):
            again |= _look(
                reading,
                stored_lags[reading.query.pk],
                launcher,
                now,
                on_request=query_ids is not None,
            )
    return again


def look_if_old(query: Query, *, now: datetime) -> None:
    """Ask the worker of the query's host to read its tables, unless that has just been done."""
    rows = SourceLag.objects.filter(query=query, partition=TABLE)
    oldest = min((row.seen_at for row in rows), default=None)
    if oldest is not None and now - oldest > READ_EVERY:
        look_at_tables_soon(query.pk, query.application.host)


# --- one query ------------------------------------------------------------------------------


def _look(
    reading: TableReading,
    stored_lags: Mapping[str, SourceLag],
    launcher: Launcher,
    now: datetime,
    *,
    on_request: bool,
) -> bool:
    """Read a query's tables and store the results; return whether a storage JVM is starting."""
    fresh: dict[str, SourceLag] = {}
    starting = False
    roots = allowed_paths(reading.query.application.name)
    for table in reading.tables:
        row = stored_lags.get(table.name[:255])
        remote = bool(table.location) and local_path(table.location) is None
        if remote and not on_request and not _is_due(table.location, row, now):
            if row is not None:
                fresh[row.source] = row
            continue
        _TRIED[table.location] = now
        _WAITING.discard(table.location)
        try:
            files = storage_of_table(
                table, reading.query.application, launcher=launcher, now=now, roots=roots
            )
            fresh[table.name[:255]] = _row(reading, table, _lag(reading, table, files), row, now)
        except NoStorage as error:
            starting = True
            _TRIED.pop(table.location, None)  # another thread may have
            _WAITING.add(table.location)
            fresh[table.name[:255]] = _old(reading, table, row, f"{error}…", now)
        except (Unknown, NoTable, StorageFailed) as error:
            fresh[table.name[:255]] = _old(reading, table, row, str(error)[:500], now)
    if not _is_stored(fresh, stored_lags, now):
        _write(reading, fresh, stored_lags, now)
    return starting


def _is_stored(
    fresh: Mapping[str, SourceLag], stored_lags: Mapping[str, SourceLag], now: datetime
) -> bool:
    """Return whether the stored rows have the same values and were written a moment ago."""
    return fresh.keys() == stored_lags.keys() and all(
        now - stored_lags[name].seen_at < WRITE_EVERY
        and all(getattr(row, column) == getattr(stored_lags[name], column) for column in _SHOWN)
        for name, row in fresh.items()
    )


def _is_due(location: str, row: SourceLag | None, now: datetime) -> bool:
    """Return whether a table on remote storage should be read again."""
    tried = _TRIED.get(location)
    if tried is not None and now - tried < REMOTE_AGAIN:
        return False
    return row is None or location in _WAITING or now - row.seen_at >= REMOTE_EVERY


def _lag(reading: TableReading, table: TablePlace, files: Files) -> TableLag:
    if not reading.offsets and reading.unknown:
        raise Unknown(reading.unknown)
    if not reading.offsets and (table.format != DELTA or table.start.unknown):
        raise Unknown(_NOT_COMMITTED)
    alone = sum(other.format == table.format for other in reading.tables) == 1
    lags = (
        _delta_lags(reading, table, files, alone)
        if table.format == DELTA
        else _iceberg_lags(reading, table, files, alone)
    )
    if not lags:
        raise Unknown(_UNKNOWN_OFFSET)
    # If a query reads a table twice, the source that is further behind counts.
    return max(
        lags,
        key=lambda table_lag: (
            bool(table_lag.problem),
            table_lag.versions is None,
            table_lag.versions or 0,
        ),
    )


def _delta_lags(
    reading: TableReading, table: TablePlace, files: Files, alone: bool
) -> list[TableLag]:
    offsets = [offset for value in reading.offsets if (offset := delta_offset(value))]
    if not reading.offsets and table.start.version is not None:
        offsets = [DeltaOffset("", table.start.version, -1)]
    # Not by the table alone: the query that is ahead would drop the commits that others still need.
    name = f"{reading.query.pk} {table.location}"
    _make_room(_DELTA)
    log = read_delta(
        files,
        table.location,
        needed={offset.version for offset in offsets},
        snapshots={offset.version for offset in offsets if offset.initial},
        whole=not reading.offsets,
        earlier_log=_DELTA.pop(name, None),  # removed, so that it is forgotten if the read fails
        unpack=open_checkpoints,
    )
    _DELTA[name] = log
    if not log.state.table:
        raise Unknown(f"The table's ID is unknown, so the lag is, too: {log.unknown or _NO_ID}")
    if not offsets and not reading.offsets:
        return [first_lag(log.state)]
    table_ids = {offset.table for offset in offsets}
    own = [offset for offset in offsets if offset.table in ("", log.state.table)]
    if alone or (
        not own and len(table_ids) == sum(other.format == DELTA for other in reading.tables)
    ):
        own = offsets
    return [
        delta_lag(
            offset if offset.table else replace(offset, table=log.state.table),
            latest=log.newest,
            commits=log.commits,
            state=log.state,
            initial=log.states.get(offset.version),
            written=log.written,
            earliest=log.earliest,
            changes=table.changes,
        )
        for offset in own
    ]


def _iceberg_lags(
    reading: TableReading, table: TablePlace, files: Files, alone: bool
) -> list[TableLag]:
    offsets = [offset for value in reading.offsets if (offset := iceberg_offset(value))]
    _make_room(_ICEBERG)
    metadata = read_iceberg(files, table.location, _ICEBERG.pop(table.location, None))
    _ICEBERG[table.location] = metadata
    ids = {snapshot.id for snapshot in metadata.table.lineage}
    if not metadata.table.whole and any(offset.snapshot not in (None, *ids) for offset in offsets):
        raise Unknown("A snapshot in the table's metadata cannot be read, so the lag is unknown.")
    return [
        iceberg_lag(offset, metadata.table) for offset in offsets if alone or offset.snapshot in ids
    ]


def _make_room(cache: dict[str, DeltaLog] | dict[str, IcebergMetadata]) -> None:
    while len(cache) >= CACHE_LIMIT:
        del cache[next(iter(cache))]


# --- stored rows ----------------------------------------------------------------------------


def _row(
    reading: TableReading, table: TablePlace, lag: TableLag, row: SourceLag | None, now: datetime
) -> SourceLag:
    look = PartitionLook(
        topic=table.name[:255],
        partition=TABLE,
        at=now,
        committed=lag.next if lag.versions is not None else None,
        earliest=lag.earliest,
        latest=lag.latest,
        record_at=lag.unread_at,
    )
    look = after(look, look_of(row) if row is not None else None, running=reading.running)
    return SourceLag(
        query=reading.query,
        source=look.topic,
        partition=TABLE,
        table_format=table.format,
        seen_at=now,
        **measured(look),
        **columns(lag),
    )


def _old(
    reading: TableReading, table: TablePlace, row: SourceLag | None, why: str, now: datetime
) -> SourceLag:
    """Return the row of a table that could not be read: its last numbers, with the reason."""
    if row is None:
        row = SourceLag(
            query=reading.query,
            source=table.name[:255],
            partition=TABLE,
            table_format=table.format,
            seen_at=now,
        )
    row = copy.copy(row)
    if not is_lost(row):  # what is lost remains lost
        row.error = why
    return row


def _write(
    reading: TableReading,
    fresh: Mapping[str, SourceLag],
    stored_lags: Mapping[str, SourceLag],
    now: datetime,
) -> None:
    query = reading.query
    before = {name: (row.committed, row.latest, row.error) for name, row in stored_lags.items()}
    with transaction.atomic():
        own = SourceLag.objects.filter(query=query)
        own.filter(partition=TABLE).exclude(source__in=list(fresh)).delete()
        upsert(SourceLag, fresh.values(), "query", "source", "partition")
        rows = list(own)
        topics = any(row.partition != TABLE for row in rows)
        wanted = risk_columns(
            query,
            rows,
            replaced_in(remembered_ids(query.pk)) if topics else (),
            running=reading.running,
            may_have_read=Run.objects.filter(query=query, outcome=RunOutcome.OPEN).exists(),
            now=now,
        )
        news = store_risk(query, wanted)
    changed(f"lag:{query.pk}")
    if news or before != {n: (row.committed, row.latest, row.error) for n, row in fresh.items()}:
        changed(f"query:{query.pk}")


def _stored_lags(query_ids: Collection[int]) -> dict[int, dict[str, SourceLag]]:
    lags_by_query: dict[int, dict[str, SourceLag]] = {pk: {} for pk in query_ids}
    for row in SourceLag.objects.filter(query__in=list(query_ids), partition=TABLE):
        lags_by_query[row.query_id][row.source] = row
    return lags_by_query


def _oldest(reading: TableReading, stored_lags: Mapping[int, Mapping[str, SourceLag]]) -> float:
    times = [row.seen_at.timestamp() for row in stored_lags[reading.query.pk].values()]
    return max(min(times, default=0.0), _BEGAN.get(reading.query.pk, 0.0))


def _forget_others(reading: set[int]) -> None:
    """Delete the stored rows of this host's queries that were deleted or no longer read tables."""
    tables = SourceLag.objects.filter(partition=TABLE)
    others = tables.filter(looked_after("query__application__")).exclude(query__in=reading)
    for pk in list(others.order_by().values_list("query_id", flat=True).distinct()):
        with _loop.isolate_errors(f"the former tables of query number {pk}"):
            tables.filter(query=pk).delete()
            if not SourceLag.objects.filter(query=pk).exists():
                Query.objects.filter(pk=pk).update(risk="", risk_at=None)
            changed(f"query:{pk}", f"lag:{pk}")
