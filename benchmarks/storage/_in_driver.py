"""Queries of the benchmark `takeovers`: drivers load this file as users' code."""

import ctypes
import time
from pathlib import Path
from typing import Any

#: Rows that a driver creates in its JVM before a full collection: about 300 MB of small objects.
_OBJECTS = 3_000_000


def upserts(spark: Any, params: dict[str, Any]) -> Any:
    """Return a writer that stores each value once in PostgreSQL, and notes each call for a batch.

    Both are one statement, so a stopped driver holds no lock.
    """
    import psycopg

    table = params["table"]
    statement = (
        f"WITH noted AS (INSERT INTO {table}_calls VALUES (%s))"
        f" INSERT INTO {table} SELECT unnest(%s::bigint[]), %s"
        " ON CONFLICT (value) DO UPDATE SET batch = excluded.batch"
    )

    def write(frame: Any, batch: int) -> None:
        values = sorted(row.value for row in frame.collect())
        with psycopg.connect(params["database"], autocommit=True) as database:
            database.execute(statement, (batch, values, batch))

    return _rate(spark, params).writeStream.foreachBatch(write)


def burdened(spark: Any, params: dict[str, Any]) -> Any:
    """Return a writer that does in a batch what a file in the folder says, once.

    The files are `gil` (its text: seconds) and `gc` (how often); the seconds that it took replace
    the file, with the suffix `.done`.
    """
    folder = Path(params["folder"])

    def write(frame: Any, batch: int) -> None:
        for name, act in (("gil", _hold_the_gil), ("gc", _collect_garbage)):
            asked = folder / name
            if asked.exists():
                began = time.monotonic()
                act(frame.sparkSession, int(asked.read_text()))
                asked.with_suffix(".new").write_text(f"{time.monotonic() - began:.3f}")
                asked.with_suffix(".new").rename(folder / f"{name}.done")
                asked.unlink()

    return _rate(spark, params).writeStream.foreachBatch(write)


def _rate(spark: Any, params: dict[str, Any]) -> Any:
    return spark.readStream.format("rate").option("rowsPerSecond", params["rows"]).load()


def _hold_the_gil(_: Any, seconds: int) -> None:
    """Sleep in C without releasing the GIL: no other thread of this process runs meanwhile."""
    sleep = ctypes.PyDLL(None).sleep
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:  # a signal interrupts a sleep
        sleep(max(1, round(left)))


def _collect_garbage(spark: Any, times: int) -> None:
    kept = spark.range(_OBJECTS)._jdf.collectAsList()
    for _ in range(times):
        spark._jvm.java.lang.System.gc()
    assert kept.size() == _OBJECTS
