"""Store events: the numbers that have arrived as ranges, and the holes between them.

Rows are inserted as plain SQL. Building a model object and its statement for every event would take
several times as long as the database needs to store it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import orjson
from django.db import connection, transaction

from headgate_ground.tolerant import count, duration_ms, rate, sound_progress, time_of, total
from headgate_ground.wire import EventKind, WireEvent
from listeners import latest, models, rollups
from listeners.latest import moment
from listeners.rollups import insert

Range = tuple[int, int]  # first and last, both inclusive


def merge(ranges: Iterable[Range], numbers: Iterable[int]) -> list[Range]:
    """Return the fewest ranges that cover the given ranges and numbers, ascending."""
    merged: list[Range] = []
    for first, last in sorted([*ranges, *_runs(sorted(set(numbers)))]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _runs(ascending: list[int]) -> list[Range]:
    """Return the ranges of distinct ascending numbers; usually a single one."""
    if not ascending:
        return []
    if ascending[-1] - ascending[0] + 1 == len(ascending):
        return [(ascending[0], ascending[-1])]
    return [(number, number) for number in ascending]


def holes(
    ranges: Iterable[Range], *, first: int | None = None, last: int | None = None
) -> list[Range]:
    """Return the holes between ascending ranges, from `first` on, and up to `last` if given."""
    missing: list[Range] = []
    following = first
    for start, end in ranges:
        if following is not None and start > following:
            missing.append((following, start - 1))
        following = end + 1 if following is None else max(following, end + 1)
    if last is not None and following is not None and last >= following:
        missing.append((following, last))
    return missing


def overlap(span: Range, others: Iterable[Range]) -> int:
    """Return how many numbers of `span` are in any of `others`, which do not overlap."""
    return sum(max(0, min(span[1], last) - max(span[0], first) + 1) for first, last in others)


#: Kinds that are sent for a run but say nothing of its life.
_NO_SIGNS = frozenset({EventKind.SLOW_BATCH, EventKind.THREAD_DUMP})
_SERIAL = 7_231_001  # PostgreSQL's advisory lock: one batch is stored at a time


Stamp = Callable[[datetime], Any]  # a time in the form for the database's driver


@dataclass(frozen=True, slots=True)
class Letter:
    """A stream entry that could not be read."""

    entry: str  # the stream's entry id
    reason: str
    data: bytes


@dataclass(slots=True)
class EventBatch:
    """Events ready to be stored, by table."""

    received_at: datetime  # UTC
    stamp: Stamp = field(default_factory=lambda: _stamp_of_database())
    received: Any = None
    progress: list[tuple[Any, ...]] = field(default_factory=list)
    parts: list[rollups.Part] = field(default_factory=list)  # of the rows of `progress`
    events: list[tuple[Any, ...]] = field(default_factory=list)
    slow: list[models.SlowBatch] = field(default_factory=list)
    heartbeats: list[WireEvent] = field(default_factory=list)
    about_queries: list[WireEvent] = field(default_factory=list)
    numbers: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    batches: dict[tuple[int, int, str, int, int], list[int]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        self.received = self.stamp(self.received_at)

    def add(self, event: WireEvent) -> None:
        """Add an event; raise ValueError if it has no time, or its body is not valid."""
        if event.kind is EventKind.HEARTBEAT:
            latest.read_heartbeat(event)
            self.heartbeats.append(event)
        elif event.kind is EventKind.PROGRESS and None not in (event.query, event.run, event.batch):
            assert event.batch is not None
            body = sound_progress(event.body, at=event.at, batch=event.batch)
            if body is not event.body:
                event = _with_body(event, body)
            row, part = _progress_row(event, self.received, self.stamp)
            self.progress.append(row)
            self.parts.append(part)
            key = (event.driver, event.epoch, str(event.spark_run_id), event.query, event.run)
            self.batches[key].append(event.batch)  # type: ignore[index, arg-type]
        elif event.kind is EventKind.SLOW_BATCH:
            self.slow.append(_slow_row(event))
        else:
            self.events.append(_event_row(event, self.received, self.stamp))
        about = event.query is not None and event.run is not None and event.seq > 0
        if about and event.kind not in _NO_SIGNS:
            self.about_queries.append(event)
        self.number(event)

    def number(self, event: WireEvent) -> None:
        """Record that an event's number has arrived."""
        if event.seq > 0:  # the driver's own; events found by others have no number
            self.numbers[event.driver, event.epoch].append(event.seq)


def store(batch: EventBatch, letters: Sequence[Letter] = ()) -> None:
    """Store a batch completely or not at all; existing rows remain unchanged.

    `listeners.loops.slices.lies_in_the_row` distinguishes errors caused by a row that can never be
    stored from errors worth a retry.
    """
    with transaction.atomic():
        _serialize_ingesters()
        if batch.progress:
            rollups.add(_insert_progress(batch))
        insert(models.Event._meta.db_table, _EVENT_COLUMNS, batch.events, "ON CONFLICT DO NOTHING")
        models.SlowBatch.objects.bulk_create(batch.slow, ignore_conflicts=True)
        latest.advance_latest(batch.about_queries)
        latest.keep_heartbeats(batch.heartbeats, batch.received_at)
        _note_received(batch)
        _keep_letters(letters, batch.received_at)


def _serialize_ingesters() -> None:
    """Serialize ingesters on databases that need it; SQLite's write lock already does so."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_SERIAL])


def _insert_progress(batch: EventBatch) -> list[rollups.Part]:
    """Insert a batch's progress; return the parts of the rows that were not stored before."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_MAKE_INCOMING)
            with cursor.copy(_COPY_INCOMING) as copy:
                for position, row in enumerate(batch.progress):
                    copy.write_row((position, *row))
            cursor.execute(_INSERT_INCOMING)
            new = set(cursor.fetchall())
        else:
            cursor.execute(_NEWEST)
            [(newest,)] = cursor.fetchall()
            cursor.executemany(_INSERT_PROGRESS, batch.progress)
            if cursor.rowcount == len(batch.progress):
                return batch.parts
            cursor.execute(_NEW, [newest or 0])
            new = set(cursor.fetchall())
    new_parts = []
    for row, part in zip(batch.progress, batch.parts, strict=True):
        if (key := tuple(row[position] for position in _KEY_PLACES)) in new:
            new.remove(key)  # of equal keys, the first row is the one that was stored
            new_parts.append(part)
    return new_parts


# --- rows ---------------------------------------------------------------------------------
_PROGRESS = (
    "driver epoch seq query run spark_run_id batch at received_at repaired num_input_rows"
    " input_rows_per_second processed_rows_per_second batch_duration_ms state_rows watermark body"
)
_EVENT = "driver epoch seq at received_at kind query run spark_run_id body"
_PROGRESS_COLUMNS, _EVENT_COLUMNS = tuple(_PROGRESS.split()), tuple(_EVENT.split())
# What makes a row unique, by either constraint: only all of it names the row that was stored.
_KEY = "driver, seq, spark_run_id, batch"
_KEY_PLACES = tuple(_PROGRESS_COLUMNS.index(name) for name in _KEY.split(", "))
# SQLite: `executemany` returns no rows, but ids only grow, and one transaction writes at a time.
_TABLE = f'"{models.Progress._meta.db_table}"'
_NAMES = ", ".join(f'"{name}"' for name in _PROGRESS_COLUMNS)
_INSERT_PROGRESS = (
    f"INSERT INTO {_TABLE} ({_NAMES}) VALUES ({', '.join(['%s'] * len(_PROGRESS_COLUMNS))}) "
    "ON CONFLICT DO NOTHING"
)
_NEWEST = f"SELECT MAX(id) FROM {_TABLE}"
_NEW = f"SELECT {_KEY} FROM {_TABLE} WHERE id > %s"
# PostgreSQL: COPY is its fastest way in, but has no ON CONFLICT.
_MAKE_INCOMING = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS incoming_progress ON COMMIT DELETE ROWS "
    f"AS SELECT 0 AS place, {_NAMES} FROM {_TABLE} WITH NO DATA; "
    "DELETE FROM incoming_progress"  # of a store in the same transaction
)
_COPY_INCOMING = f"COPY incoming_progress (place, {_NAMES}) FROM STDIN"
_INSERT_INCOMING = (
    f"INSERT INTO {_TABLE} ({_NAMES}) SELECT {_NAMES} FROM incoming_progress "
    f"ORDER BY place ON CONFLICT DO NOTHING RETURNING {_KEY}"
)


def _with_body(event: WireEvent, body: dict[str, Any]) -> WireEvent:
    """Return the event with this body; `dataclasses.replace` would take ten times as long."""
    return WireEvent(
        event.driver,
        event.epoch,
        event.seq,
        event.at,
        event.kind,
        event.query,
        event.run,
        event.spark_run_id,
        event.batch,
        event.repaired,
        body,
    )


def _progress_row(
    event: WireEvent, received: Any, stamp: Stamp
) -> tuple[tuple[Any, ...], rollups.Part]:
    """Return a batch's row, and its part of the roll-ups."""
    body = event.body
    at, watermark = moment(body["timestamp"]), _watermark(body)
    rows = count(body.get("numInputRows")) or 0  # for sums; the body says what is unknown
    input_rate = rate(body.get("inputRowsPerSecond"))
    processed_rate = rate(body.get("processedRowsPerSecond"))
    took_ms = duration_ms(body.get("batchDuration")) or 0
    state_rows = total(body.get("stateOperators"), "numRowsTotal")
    row = (
        event.driver,
        event.epoch,
        event.seq,
        event.query,
        event.run,
        event.spark_run_id or "",
        event.batch,
        stamp(at),
        received,
        event.repaired,
        rows,
        input_rate,
        processed_rate,
        took_ms,
        state_rows,
        None if watermark is None else stamp(watermark),
        orjson.dumps(body).decode(),
    )
    assert event.query is not None
    return row, rollups.part_of(
        event.query,
        at,
        rows=rows,
        took_ms=took_ms,
        input_rate=input_rate,
        processed_rate=processed_rate,
        state_rows=state_rows,
        watermark=watermark,
        phases=body.get("durationMs"),
    )


def _event_row(event: WireEvent, received: Any, stamp: Stamp) -> tuple[Any, ...]:
    return (
        event.driver,
        event.epoch,
        event.seq,
        stamp(moment(event.at)),
        received,
        event.kind.value,
        event.query,
        event.run,
        event.spark_run_id or "",
        orjson.dumps(event.body).decode(),
    )


def _slow_row(event: WireEvent) -> models.SlowBatch:
    number = count(event.body.get("batch"))
    if number is None or event.query is None or event.run is None:
        raise ValueError("a slow batch has no number, or no query")
    return models.SlowBatch(
        driver=event.driver,
        seq=event.seq,
        query=event.query,
        run=event.run,
        batch=number,
        took_ms=duration_ms(event.body.get("took_ms")) or 0,
        at=moment(event.at),
        body=event.body,
    )


def _for_sqlite(at: datetime) -> str:
    """Return a UTC time as Django writes it to SQLite: as a string without a time zone."""
    return str(at)[: -len("+00:00")]


def _stamp_of_database() -> Stamp:
    return _for_sqlite if connection.vendor == "sqlite" else lambda at: at


def _watermark(body: dict[str, Any]) -> datetime | None:
    """Return the watermark; None before the first one (Spark reports 1970), and after year 9999."""
    at = time_of((body.get("eventTime") or {}).get("watermark"))
    return at if at is not None and at.timestamp() >= 1 else None


# --- received ranges ----------------------------------------------------------------------
def _note_received(batch: EventBatch) -> None:
    wanted: dict[tuple[int, str, str], tuple[list[int], dict[str, Any]]] = {}
    for (driver, epoch), numbers in batch.numbers.items():
        wanted[driver, "seq", ""] = (numbers, {"epoch": epoch})
    for (driver, epoch, spark_run_id, query, run), ids in batch.batches.items():
        columns = {"epoch": epoch, "query": query, "run": run}
        wanted[driver, "batch", spark_run_id] = (ids, columns)
    if not wanted:
        return
    stored: dict[tuple[int, str, str], list[models.Received]] = defaultdict(list)
    rows = models.Received.objects.filter(
        driver__in={key[0] for key in wanted}, spark_run_id__in={key[2] for key in wanted}
    )
    for row in rows.order_by("first"):
        stored[row.driver, row.kind, row.spark_run_id].append(row)
    for key, (numbers, columns) in wanted.items():
        _grow(key, stored[key], numbers, columns, batch.received_at)


def _grow(
    key: tuple[int, str, str],
    rows: list[models.Received],
    numbers: Iterable[int],
    columns: dict[str, Any],
    now: datetime,
) -> None:
    before = [(row.first, row.last) for row in rows]
    after = merge(before, numbers)
    if after == before:
        return
    if len(before) == len(after) == 1:  # usually: one range that has grown
        models.Received.objects.filter(pk=rows[0].pk).update(
            first=after[0][0], last=after[0][1], at=now
        )
        return
    driver, kind, spark_run_id = key
    models.Received.objects.filter(pk__in=[row.pk for row in rows]).delete()
    models.Received.objects.bulk_create(
        models.Received(
            driver=driver,
            kind=kind,
            spark_run_id=spark_run_id,
            first=first,
            last=last,
            at=now,
            **columns,
        )
        for first, last in after
    )


def _keep_letters(letters: Sequence[Letter], now: datetime) -> None:
    if letters:
        models.DeadLetter.objects.bulk_create(
            [models.DeadLetter(**asdict(letter), received_at=now) for letter in letters],
            ignore_conflicts=True,
        )
