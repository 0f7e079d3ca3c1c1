"""Compare processing a backlog in slices and in one transaction per call, during reconciles.

A database has a backlog of progress rows that the loss ledger has not processed, and 60
applications. Two arms process the backlog:

- ours: `keep_ledger`, called in the same way as by the worker's ticks;
- one_transaction: the former implementation, with the same checks, but each call in one transaction
  from its first read to its last write, for 2,000 rows at a time.

Meanwhile, another process writes as a reconcile does: every 100 ms, in a transaction that increases
an application's version, until the backlog has been processed. Its longest wait is the delay that
an operator would notice. The longest hold of the write lock is measured on the connection itself,
from the end of BEGIN to the end of COMMIT, which includes the disk's time, and to the beginning of
COMMIT, which does not.

Figures are reported only if both arms leave the same ledger. The arms take turns, and the order
changes with each round. The last line is JSON.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks._measuring import ratios, report, spread, workplace

TAKES = "8 minutes"

QUERIES = 60
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
#: A backlog that is not gone by then is a defect. Seconds.
LIMIT_S = 1_800.0
LATE_EVERY = 50  # one batch in so many has dropped late rows


def main() -> None:
    """Fill a database once, run the rounds on copies of it, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--beside", help=argparse.SUPPRESS)  # the other process, on this database
    chosen = options.parse_args()
    if chosen.beside:
        _configure(Path(chosen.beside))
        _reconcile_until_told()
        return
    with workplace("backlog") as folder:
        _configure(folder)
        _fill(chosen.rows)
        _run(folder, rows=chosen.rows, rounds=chosen.rounds)


def _configure(folder: Path) -> None:
    os.environ.update(
        DJANGO_SETTINGS_MODULE="controlplane.settings",
        HEADGATE_HOME=str(folder / "home"),
        HEADGATE_LOG_LEVEL="ERROR",
        REDIS_URL="redis://127.0.0.1:9/0",  # nobody: pages are told nothing, at once
    )
    os.environ.pop("DATABASE_URL", None)
    (folder / "home").mkdir(exist_ok=True)
    import logging

    import django

    django.setup()
    logging.getLogger("controlplane.nudge").setLevel(logging.CRITICAL)


# --- the backlog --------------------------------------------------------------------------
def _fill(rows: int) -> None:
    from django.core.management import call_command
    from django.db import connection

    from listeners.models import Progress
    from queries.models.applications import Application
    from queries.models.definitions import Query

    call_command("migrate", verbosity=0)
    applications = [Application(name=f"app{number}", created_at=NOW) for number in range(QUERIES)]
    Application.objects.bulk_create(applications)
    Query.objects.bulk_create(
        Query(name=f"query{number}", application=one, created_at=NOW, phase_since=NOW)
        for number, one in enumerate(applications)
    )
    ids = list(Query.objects.order_by("pk").values_list("pk", flat=True))
    for first in range(0, rows, 2_000):
        Progress.objects.bulk_create(
            _row(number, ids[number % QUERIES]) for number in range(first, min(rows, first + 2_000))
        )
    connection.close()  # writes the log of the database into its file
    file = _database_file()
    file.rename(file.with_suffix(".full"))


def _row(number: int, query: int) -> Any:
    from listeners.models import Progress

    batch = number // QUERIES
    at = NOW - timedelta(hours=6) + timedelta(seconds=10 * batch)
    operator = {"operatorName": "dedupe", "numRowsTotal": 1_000, "numRowsUpdated": 10}
    if number % LATE_EVERY == 0:
        operator["numRowsDroppedByWatermark"] = 3
    body = {
        "batchId": batch,
        "numInputRows": 1_000,
        "durationMs": {"addBatch": 700, "walCommit": 30, "getBatch": 2, "triggerExecution": 800},
        "stateOperators": [operator],
        "sources": [
            {
                "description": "KafkaV2[Subscribe[flights]]",
                "startOffset": {"flights": {str(p): 100 * batch for p in range(12)}},
                "endOffset": {"flights": {str(p): 100 * batch + 100 for p in range(12)}},
                "numInputRows": 1_200,
            }
        ],
        "sink": {"description": "KafkaSink", "numOutputRows": 1_000},
    }
    return Progress(
        driver=query,
        epoch=query,
        seq=batch + 1,
        query=query,
        run=query,
        spark_run_id=f"run-{query}",
        batch=batch,
        at=at,
        received_at=at,
        num_input_rows=1_000,
        input_rows_per_second=100.0,
        processed_rows_per_second=1_250.0,
        batch_duration_ms=800,
        state_rows=1_000,
        body=body,
    )


# --- the rounds ---------------------------------------------------------------------------
Found = dict[str, Any]


def _run(folder: Path, *, rows: int, rounds: int) -> None:
    arms: dict[str, Callable[[], None]] = {"ours": _ours, "one_transaction": _one_transaction}
    told: dict[str, list[Found]] = {name: [] for name in arms}
    for number in range(rounds):
        order = list(arms) if number % 2 == 0 else list(reversed(arms))
        results = {}
        for name in order:
            found = _time(folder, arms[name], rows)
            results[name] = found.pop("result")
            told[name].append(found)
            print(f"round {number + 1}, {name}: " + _line(found))
        if results["ours"] != results["one_transaction"]:
            raise SystemExit("the arms left different ledgers")
    _report(told)


def _line(found: Found) -> str:
    return (
        f"{found['rows_per_min']:,.0f} rows/min, longest hold {found['hold_ms']:.1f} ms "
        f"(p99 {found['hold_p99_ms']:.1f} ms; before the commit {found['before_commit_ms']:.1f}; "
        f"{found['over_50_ms']:.0f} of {found['transactions']:.0f} above 50 ms), "
        f"reconcile p50 {found['p50_ms']:.1f} ms, p95 {found['p95_ms']:.1f} ms, "
        f"longest {found['longest_ms']:.1f} ms"
    )


def _report(told: dict[str, list[Found]]) -> None:
    for name, rounds in told.items():
        for what in rounds[0]:
            print(f"{name}: {what} {spread((one[what] for one in rounds), ',.1f')}")
    ours, baseline = told["ours"], told["one_transaction"]
    middle = {
        name: {what: round(statistics.median(one[what] for one in rounds), 1) for what in rounds[0]}
        for name, rounds in told.items()
    }
    held = ratios([one["hold_ms"] for one in baseline], [one["hold_ms"] for one in ours])
    report(
        "backlog",
        ours=middle["ours"],
        baseline=middle["one_transaction"],
        ratio=round(statistics.median(held), 1),
    )


def _time(folder: Path, arm: Callable[[], None], rows: int) -> Found:
    with _fresh_database(), _beside(folder) as waits:
        with _holds() as holds:
            began = time.perf_counter()
            arm()
            took = time.perf_counter() - began
        _check(rows)
        result = _result()
    waited, held = sorted(waits), sorted(whole for _, whole in holds)
    return {
        "rows_per_min": rows / took * 60,
        "hold_ms": max(held) * 1000,
        "hold_p99_ms": held[int(len(held) * 0.99)] * 1000,
        "before_commit_ms": max(working for working, _ in holds) * 1000,
        "over_50_ms": sum(one > 0.050 for one in held),
        "transactions": len(held),
        "p50_ms": statistics.median(waited) * 1000,
        "p95_ms": waited[int(len(waited) * 0.95)] * 1000,
        "longest_ms": waited[-1] * 1000,
        "result": result,
    }


def _ours() -> None:
    from queries.services.kafka.loss_ledger import keep_ledger

    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        if not keep_ledger(now=NOW):
            return


def _one_transaction() -> None:
    """Do the same work in one transaction per call, without pauses, leases or slices."""
    from django.db import transaction

    from listeners.loops.backlogs import LEDGER
    from listeners.models import Cursor
    from queries.services.kafka import loss_ledger

    Cursor.objects.get_or_create(name=LEDGER)
    limit = time.monotonic() + LIMIT_S
    loss_ledger._ROWS_AT_ONCE, before = 2_000, loss_ledger._ROWS_AT_ONCE
    try:
        while time.monotonic() < limit:
            judged = loss_ledger._judged(
                loss_ledger._rows_after(Cursor.objects.get(name=LEDGER).position), NOW
            )
            if judged:
                with transaction.atomic():
                    loss_ledger._write_late([one for one in judged if one.late], NOW)
                    for one in judged:
                        if one.short:
                            loss_ledger._write_short(one, {}, NOW)
                    Cursor.advance(LEDGER, judged[-1].row.pk)
            if not judged:
                return
    finally:
        loss_ledger._ROWS_AT_ONCE = before


# --- beside it ----------------------------------------------------------------------------
@contextmanager
def _beside(folder: Path) -> Iterator[list[float]]:
    """Have another process write as a reconcile does; afterwards, the list contains its waits."""
    waits: list[float] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.backlog", "--beside", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("the process that reconciles did not start")
        yield waits
        process.stdin.close()
        waits += json.loads(process.stdout.readline())
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _reconcile_until_told() -> None:
    """Write every 100 ms until standard input ends; print the duration of each write."""
    import select

    from django.db import OperationalError, transaction
    from django.db.models import F

    from queries.models.applications import Application

    ids = list(Application.objects.values_list("pk", flat=True))
    print("ready", flush=True)
    took: list[float] = []
    while True:
        began, written = time.monotonic(), False
        while not written and time.monotonic() < began + LIMIT_S:
            # A lock held for longer than SQLite waits is what is measured: it goes on waiting.
            with suppress(OperationalError), transaction.atomic():
                one = ids[len(took) % len(ids)]
                Application.objects.filter(pk=one).update(version=F("version") + 1)
                written = True
        took.append(time.monotonic() - began)
        if select.select([sys.stdin], [], [], max(0.0, began + 0.1 - time.monotonic()))[0]:
            break
    print(json.dumps(took), flush=True)


@contextmanager
def _holds() -> Iterator[list[tuple[float, float]]]:
    """Record how long each transaction of this process held the write lock, in seconds.

    Each time is recorded without and with the COMMIT. The COMMIT waits for the disk when the
    database's log starts again, so it shows how busy the disk is.
    """
    from django.db import connections

    connection: Any = connections["default"]
    connection.ensure_connection()
    held: list[tuple[float, float]] = []
    began = 0.0
    start, end = connection._start_transaction_under_autocommit, connection._commit

    def begin() -> None:
        nonlocal began
        start()
        began = time.perf_counter()

    def commit() -> None:
        nonlocal began
        worked = time.perf_counter() - began
        end()
        if began:
            held.append((worked, time.perf_counter() - began))
            began = 0.0

    connection._start_transaction_under_autocommit = begin
    connection._commit = commit
    try:
        yield held
    finally:
        del connection._start_transaction_under_autocommit, connection._commit


# --- the database -------------------------------------------------------------------------
def _database_file() -> Path:
    from django.conf import settings

    return Path(settings.DATABASES["default"]["NAME"])


@contextmanager
def _fresh_database() -> Iterator[None]:
    """Give the arm a database with the original backlog."""
    from django.db import connection

    file = _database_file()
    connection.close()
    for one in file.parent.glob(f"{file.name}*"):
        if one.suffix != ".full":
            one.unlink()
    shutil.copyfile(file.with_suffix(".full"), file)
    try:
        yield
    finally:
        connection.close()


def _check(rows: int) -> None:
    from django.db.models import Sum

    from queries.models.checkpoints import Loss

    late = Loss.objects.aggregate(all=Sum("records"))["all"]
    if late != 3 * len(range(0, rows, LATE_EVERY)):
        raise SystemExit(f"the ledger holds {late} late rows")


def _result() -> list[Any]:
    """Return the results that must be the same for both arms."""
    from queries.models.checkpoints import Loss

    lines = Loss.objects.order_by("query", "source", "day")
    return list(lines.values_list("query", "kind", "source", "day", "records"))


if __name__ == "__main__":
    main()
