"""Read the logs of the tables that queries read, and store how far each query is behind.

Only this module writes the tables' rows of `SourceLag`. A table on a local disk is read in every
pass. A table on a storage is read every `REMOTE_EVERY`, because this needs a storage JVM of the
application, and also a moment after somebody opens the page.
"""

import copy
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction

from controlplane.nudge import changed, look_at_tables_soon
from listeners.loops.troubles import each
from listeners.models import upsert
from queries.domain.definitions.locations import local_path
from queries.domain.kafka.lag import PartitionLook, after
from queries.domain.kafka.topic_ids import replaced_in
from queries.domain.states import RunOutcome
from queries.domain.tables.lag import TableLag, delta_lag, first_lag, iceberg_lag
from queries.domain.tables.offsets import DeltaOffset, delta_offset, iceberg_offset
from queries.domain.tables.places import DELTA, TablePlace
from queries.launchers.base import Launcher
from queries.models.checkpoints import TABLE, SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.hosts import looked_after
from queries.selectors.kafka.lag import look_of, measured
from queries.selectors.kafka.topic_ids import remembered_ids
from queries.selectors.tables.rows import columns, is_lost
from queries.selectors.tables.sources import TableReading, table_readings
from queries.services.checkpoints.storage_jvms import NoStorage
from queries.services.checkpoints.table_storage import Unknown, open_checkpoints, storage_of_table
from queries.services.kafka.lag_rows import risk_columns, store_risk
from queries.services.local_roots import data_roots
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
_each = each("look at tables", logger)

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
MOST_KEPT = 500

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

    If given, `query_ids` selects some of them, whose tables on storages are read now. The result
    is then True if a storage JVM is starting.
    """
    mine = looked_after("application__")
    passed_over: set[int] = set()  # their stored rows stay
    found = table_readings(query_ids, where=mine, each=_each.by_itself, passed_over=passed_over)
    if query_ids is None:
        _forget_others({one.query.pk for one in found} | passed_over)
        for gone in _BEGAN.keys() - {one.query.pk for one in found}:
            _BEGAN.pop(gone, None)
    known = _known([one.query.pk for one in found])
    began, again = time.monotonic(), False
    for reading in sorted(found, key=lambda one: _oldest(one, known)):
        if time.monotonic() - began > PASS_S:
            break
        _BEGAN[reading.query.pk] = now.timestamp()
        with _each.by_itself(f"the tables of {reading.query.name}"):
            again |= _look(
                reading, known[reading.query.pk], launcher, now, asked=query_ids is not None
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
    known: Mapping[str, SourceLag],
    launcher: Launcher,
    now: datetime,
    *,
    asked: bool,
) -> bool:
    """Read a query's tables and store what was found; return whether a storage JVM is starting."""
    fresh: dict[str, SourceLag] = {}
    starting = False
    roots = data_roots(reading.query.application.name)
    for place in reading.tables:
        row = known.get(place.name[:255])
        remote = bool(place.location) and local_path(place.location) is None
        if remote and not asked and not _is_due(place.location, row, now):
            if row is not None:
                fresh[row.source] = row
            continue
        _TRIED[place.location] = now
        _WAITING.discard(place.location)
        try:
            files = storage_of_table(
                place, reading.query.application, launcher=launcher, now=now, roots=roots
            )
            fresh[place.name[:255]] = _row(reading, place, _lag(reading, place, files), row, now)
        except NoStorage as error:
            starting = True
            _TRIED.pop(place.location, None)  # another thread may have
            _WAITING.add(place.location)
            fresh[place.name[:255]] = _old(reading, place, row, f"{error}…", now)
        except (Unknown, NoTable, StorageFailed) as error:
            fresh[place.name[:255]] = _old(reading, place, row, str(error)[:500], now)
    if not _is_known(fresh, known, now):
        _write(reading, fresh, known, now)
    return starting


def _is_known(
    fresh: Mapping[str, SourceLag], known: Mapping[str, SourceLag], now: datetime
) -> bool:
    """Return whether the stored rows have the same values and were written a moment ago."""
    return fresh.keys() == known.keys() and all(
        now - known[name].seen_at < WRITE_EVERY
        and all(getattr(row, each) == getattr(known[name], each) for each in _SHOWN)
        for name, row in fresh.items()
    )


def _is_due(location: str, row: SourceLag | None, now: datetime) -> bool:
    """Return whether a table on a storage should be read again."""
    tried = _TRIED.get(location)
    if tried is not None and now - tried < REMOTE_AGAIN:
        return False
    return row is None or location in _WAITING or now - row.seen_at >= REMOTE_EVERY


def _lag(reading: TableReading, place: TablePlace, files: Files) -> TableLag:
    if not reading.offsets and reading.unknown:
        raise Unknown(reading.unknown)
    if not reading.offsets and (place.format != DELTA or place.start.unknown):
        raise Unknown(_NOT_COMMITTED)
    alone = sum(one.format == place.format for one in reading.tables) == 1
    lags = (
        _delta_lags(reading, place, files, alone)
        if place.format == DELTA
        else _iceberg_lags(reading, place, files, alone)
    )
    if not lags:
        raise Unknown(_UNKNOWN_OFFSET)
    # If a query reads a table twice, the source that is further behind counts.
    return max(lags, key=lambda one: (bool(one.problem), one.versions is None, one.versions or 0))


def _delta_lags(
    reading: TableReading, place: TablePlace, files: Files, alone: bool
) -> list[TableLag]:
    offsets = [one for value in reading.offsets if (one := delta_offset(value))]
    if not reading.offsets and place.start.version is not None:
        offsets = [DeltaOffset("", place.start.version, -1)]
    # Not by the table alone: the query that is ahead would drop the commits that others still need.
    name = f"{reading.query.pk} {place.location}"
    _make_room(_DELTA)
    log = read_delta(
        files,
        place.location,
        needed={one.version for one in offsets},
        snapshots={one.version for one in offsets if one.initial},
        whole=not reading.offsets,
        known=_DELTA.pop(name, None),  # removed, so that it is forgotten if the read fails
        unpack=open_checkpoints,
    )
    _DELTA[name] = log
    if not log.state.table:
        raise Unknown(f"The table's ID is unknown, so the lag is, too: {log.unknown or _NO_ID}")
    if not offsets and not reading.offsets:
        return [first_lag(log.state)]
    tables = {one.table for one in offsets}
    own = [one for one in offsets if one.table in ("", log.state.table)]
    if alone or (not own and len(tables) == sum(one.format == DELTA for one in reading.tables)):
        own = offsets
    return [
        delta_lag(
            one if one.table else replace(one, table=log.state.table),
            latest=log.newest,
            commits=log.commits,
            state=log.state,
            initial=log.states.get(one.version),
            written=log.written,
            earliest=log.earliest,
            changes=place.changes,
        )
        for one in own
    ]


def _iceberg_lags(
    reading: TableReading, place: TablePlace, files: Files, alone: bool
) -> list[TableLag]:
    offsets = [one for value in reading.offsets if (one := iceberg_offset(value))]
    _make_room(_ICEBERG)
    found = read_iceberg(files, place.location, _ICEBERG.pop(place.location, None))
    _ICEBERG[place.location] = found
    ids = {one.id for one in found.table.lineage}
    if not found.table.whole and any(one.snapshot not in (None, *ids) for one in offsets):
        raise Unknown("A snapshot in the table's metadata cannot be read, so the lag is unknown.")
    return [iceberg_lag(one, found.table) for one in offsets if alone or one.snapshot in ids]


def _make_room(kept: dict[str, DeltaLog] | dict[str, IcebergMetadata]) -> None:
    while len(kept) >= MOST_KEPT:
        del kept[next(iter(kept))]


# --- stored rows ----------------------------------------------------------------------------


def _row(
    reading: TableReading, place: TablePlace, lag: TableLag, row: SourceLag | None, now: datetime
) -> SourceLag:
    look = PartitionLook(
        topic=place.name[:255],
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
        table_format=place.format,
        seen_at=now,
        **measured(look),
        **columns(lag),
    )


def _old(
    reading: TableReading, place: TablePlace, row: SourceLag | None, why: str, now: datetime
) -> SourceLag:
    """Return the row of a table that could not be read: its last numbers, with the reason."""
    if row is None:
        row = SourceLag(
            query=reading.query,
            source=place.name[:255],
            partition=TABLE,
            table_format=place.format,
            seen_at=now,
        )
    row = copy.copy(row)
    if not is_lost(row):  # what is lost remains lost
        row.error = why
    return row


def _write(
    reading: TableReading,
    fresh: Mapping[str, SourceLag],
    known: Mapping[str, SourceLag],
    now: datetime,
) -> None:
    query = reading.query
    before = {name: (row.committed, row.latest, row.error) for name, row in known.items()}
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


def _known(query_ids: Collection[int]) -> dict[int, dict[str, SourceLag]]:
    found: dict[int, dict[str, SourceLag]] = {pk: {} for pk in query_ids}
    for row in SourceLag.objects.filter(query__in=list(query_ids), partition=TABLE):
        found[row.query_id][row.source] = row
    return found


def _oldest(reading: TableReading, known: Mapping[int, Mapping[str, SourceLag]]) -> float:
    times = [row.seen_at.timestamp() for row in known[reading.query.pk].values()]
    return max(min(times, default=0.0), _BEGAN.get(reading.query.pk, 0.0))


def _forget_others(reading: set[int]) -> None:
    """Delete the stored rows of this host's queries that were deleted or no longer read tables."""
    tables = SourceLag.objects.filter(partition=TABLE)
    others = tables.filter(looked_after("query__application__")).exclude(query__in=reading)
    for pk in list(others.order_by().values_list("query_id", flat=True).distinct()):
        with _each.by_itself(f"the former tables of query number {pk}"):
            tables.filter(query=pk).delete()
            if not SourceLag.objects.filter(query=pk).exists():
                Query.objects.filter(pk=pk).update(risk="", risk_at=None)
            changed(f"query:{pk}", f"lag:{pk}")
