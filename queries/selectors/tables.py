"""Queries that read Delta and Iceberg tables: how far each has committed, and how far it is
behind.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from listeners import selectors as heard
from listeners.selectors import LatestLine
from queries.checkpoints.logs import NotLocal, unknown_because
from queries.domain.catalogs import marked
from queries.domain.checkpoints.logs import UnreadableLog
from queries.domain.kafka.lag import catch_up_s
from queries.domain.states import Phase, RunOutcome
from queries.domain.tables.lag import Removal, RemovalDeadline, TableLag, clock_words
from queries.domain.tables.places import (
    DELTA,
    Changes,
    DeltaStart,
    TablePlace,
    described_table,
    source_tables,
    table_at,
)
from queries.models.applications import Application
from queries.models.checkpoints import TABLE, SourceLag
from queries.models.definitions import Query, QueryRevision
from queries.models.drivers import Run
from queries.selectors.checkpoint_logs import available_logs
from queries.selectors.rows import current_checkpoints, newest_revisions, newest_runs

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
    """Return whether the table no longer has the version that the query needs next."""
    return row.removal == _LOST


def columns(lag: TableLag) -> dict[str, Any]:
    """Return the lag columns, without the rates."""
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
    """Return a table's row with the figures derived from it."""
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
    known_values = [value for value in values if value is not None]
    return sum(known_values) if len(known_values) == len(values) else None


#: Isolates one element of several, named for the log (`listeners.loops.each.LoopErrors.by_itself`).
ByItself = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class TableReading:
    """A query that reads tables: the tables, and the end offsets of its newest batch."""

    query: Query
    run: Run | None  # the open one
    tables: tuple[TablePlace, ...]
    offsets: tuple[Any, ...]  # one per source, in Spark's order; () if no batch has committed
    unknown: str = ""  # why the offsets are unknown, as a sentence; "" also if there are none

    @property
    def running(self) -> bool:
        """Return whether the query is processing now."""
        return self.run is not None and self.query.phase == Phase.RUNNING


def table_readings(
    query_ids: Iterable[int] | None = None,
    *,
    where: Q | None = None,
    isolate: ByItself = nullcontext,
    passed_over: set[int] | None = None,
) -> list[TableReading]:
    """Return the existing queries whose definitions read tables: all, or those with these ids.

    The arguments are those of `queries.selectors.kafka.sources.readings`.
    """
    rows = Query.objects.filter(where or Q(), archived_at__isnull=True)
    rows = rows.select_related("application")
    if query_ids is not None:
        rows = rows.filter(pk__in=list(query_ids))
    naming = QueryRevision.objects.filter(names_table=True).order_by().values("query")
    coded = _running_code(rows)
    delta_lags = SourceLag.objects.filter(partition=TABLE, table_format=DELTA).order_by()
    delta_names: dict[int, list[str]] = defaultdict(list)  # of code that has stopped since, too
    for pk, name in delta_lags.values_list("query", "source"):
        delta_names[pk].append(name)
    queries = {
        query.pk: query
        for query in rows.filter(Q(pk__in=naming) | Q(pk__in=[*coded, *delta_names]))
    }
    if not queries:
        return []
    runs = newest_runs(list(queries))
    open_runs = {pk: run for pk, run in runs.items() if run.outcome == RunOutcome.OPEN}
    specs = {pk: row.spec for pk, row in newest_revisions(list(queries)).items()}
    specs |= {pk: run.revision.spec for pk, run in open_runs.items()}
    latest, checkpoints = heard.latest(list(specs)), current_checkpoints(list(specs))
    readings = []
    for pk, spec in specs.items():
        read = False
        with isolate(f"the tables of {queries[pk].name}"):
            conf = conf_of(queries[pk].application)
            named = [table for table in source_tables(spec, conf) if table]
            if spec.get("kind") == "python":  # code, whose tables only its progress names
                line = latest.get(pk)
                named = _described(line)
                if line is None or not (line.progress or {}).get("sources"):
                    named = [table_at(DELTA, name) for name in delta_names.get(pk, ())]
            tables = tuple(_apart(named).values())
            read = True
            if tables:
                location = checkpoints[pk].location if pk in checkpoints else ""
                run = open_runs.get(pk)
                offsets, unknown = _offsets(location, latest.get(pk), run)
                readings.append(TableReading(queries[pk], run, tables, tuple(offsets), unknown))
        if not read and passed_over is not None:
            passed_over.add(pk)
    return readings


def _apart(places: Iterable[TablePlace]) -> dict[str, TablePlace]:
    """Return the tables by name; if one is read with different options, its options are unknown."""
    by_name: dict[str, TablePlace] = {}
    for table in places:
        if by_name.setdefault(table.name, table) != table:
            by_name[table.name] = replace(
                table, changes=Changes.UNKNOWN, start=DeltaStart(unknown=True)
            )
    return by_name


def _running_code(rows: QuerySet[Query]) -> set[int]:
    """Return the running queries whose progress may name tables that their code reads."""
    running = rows.filter(phase=Phase.RUNNING).exclude(revisions__kind="sql")
    lines = heard.latest(list(running.values_list("pk", flat=True)))
    return {pk for pk, line in lines.items() if _described(line)}


def _described(line: LatestLine | None) -> list[TablePlace]:
    sources = (line.progress or {}).get("sources") or () if line is not None else ()
    tables = (described_table(source.get("description")) for source in sources)
    return [table for table in tables if table is not None]


def conf_of(application: Application) -> Mapping[str, str]:
    """Return the Spark configuration of an application's newest revision, with its catalogs."""
    newest = application.revisions.order_by("-number").first()
    spec = newest.spec if newest is not None else {}
    return marked(spec.get("conf") or {}, spec.get("catalogs") or ())


def _offsets(location: str, latest: LatestLine | None, run: Run | None) -> tuple[list[Any], str]:
    """Return the end offsets of the newest batch, and why they are unknown ("" if they are not).

    They are those of the log, or of the open run's progress.
    """
    batch, offsets, unknown = -1, None, ""
    try:
        logs = available_logs(location) if location else None
        if logs is not None and (newest := logs.last_commit()) is not None:
            batch, offsets = newest, logs.readable_offsets(newest)
            unknown = "" if offsets else f"The offsets of batch {newest:,} cannot be read."
    except (NotLocal, UnreadableLog, OSError) as error:
        unknown = unknown_because(error)
    progress = (latest.progress or {}) if latest is not None else {}
    if run is not None and latest is not None and latest.run == run.pk:
        number = progress.get("batchId")
        if progress.get("runId") == run.spark_run_id and isinstance(number, int) and number > batch:
            return [source.get("endOffset") for source in progress.get("sources") or ()], ""
    return list(offsets.sources.values()) if offsets is not None else [], unknown
