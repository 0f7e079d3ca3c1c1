"""Ten queries, each slow for one known reason: does the sentence name it?

Runs real Spark in one driver, about two minutes, in a folder that is removed:

    make bench slow_batches

Each query runs a few batches; the slowest one is explained from Spark's status store, exactly as a
driver's telemetry does it. Fails if fewer than nine of ten are right. The last line is JSON.
"""

import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from listeners.spark.slow_batches import SLOW_MS, SlowBatches
from listeners.spark.task_times import TaskTimes
from queries.domain.triggers.slow_batches import BatchCause, Diagnosis, diagnose, evidence_of

TAKES = "3 minutes"
#: How many of the ten must be right.
GOAL = 9
BATCHES = 2
LIMIT_S = 120.0  # per query
#: The old generation of a heap of 1 GB (two thirds of it), the part to fill, and bytes per number.
_OLD_BYTES, _FULL, _BOXED = 716_000_000, 0.9, 20

SLOW_CHMOD = """#!/bin/sh
case "$*" in *slow_checkpoint*) sleep 1.5;; esac
exec /bin/chmod "$@"
"""


def main(only: list[str]) -> int:
    """Run the queries; return 0 if enough sentences name the right cause."""
    with tempfile.TemporaryDirectory(prefix="slow-batches-", ignore_cleanup_errors=True) as folder:
        spark = _spark(Path(folder))
        explain = SlowBatches(spark, TaskTimes(spark))
        right, results = 0, {}
        chosen = {cause: make for cause, make in QUERIES.items() if not only or cause in only}
        for cause, make in chosen.items():
            took, found = _explained(spark, explain, Path(folder), cause, make)
            ranked = {one.cause: one.ms for one in found.causes[:3]}
            good = took >= SLOW_MS and found.causes[0].cause is cause
            right += good
            results[cause] = {"right": good, "says": found.says, "causes": ranked}
            print(f"{'right' if good else 'WRONG'}  {cause}: {found.says} {ranked}", flush=True)
        print(json.dumps({"right": right, "of": len(chosen), "results": results}), flush=True)
        spark.sparkContext._gateway.proc.kill()
    return 0 if right >= min(GOAL, len(chosen)) else 1


def _spark(folder: Path) -> SparkSession:
    """Start Spark with a `chmod` that is slow in one checkpoint's folder.

    Hadoop's local file system runs `chmod` for each file that a checkpoint's log creates.
    """
    (folder / "bin").mkdir()
    chmod = folder / "bin" / "chmod"
    chmod.write_text(SLOW_CHMOD)
    chmod.chmod(chmod.stat().st_mode | stat.S_IXUSR)
    os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC -XX:-UseGCOverheadLimit")
        .config("spark.local.dir", str(folder / "tmp"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.scheduler.mode", "FAIR")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(SlowSource)
    return spark


def _explained(
    spark: SparkSession,
    explain: SlowBatches,
    folder: Path,
    cause: BatchCause,
    make: Callable[[SparkSession, Path], Any],
) -> tuple[int, Diagnosis]:
    """Return the duration of the query's slowest batch in ms, and its explanation."""
    writer = make(spark, folder)
    query = writer.option("checkpointLocation", f"file://{folder}/slow_{cause}").start()
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end and query.isActive:
        done = [one for one in _progress(query) if "addBatch" in one["durationMs"]]
        if len(done) >= BATCHES:
            break
        time.sleep(0.2)
    if query.exception() or not done:
        raise query.exception() or TimeoutError(f"{cause}: no batch ended within {LIMIT_S:.0f} s")
    time.sleep(1)  # Spark's own listener stores the stages a little later
    slow = max(done, key=lambda progress: progress["batchDuration"])
    found = diagnose(evidence_of(slow, {**explain.evidence(slow), "median_ms": None}))
    for one in (query, *spark.streams.active):
        one.stop()
    return slow["batchDuration"], found


def _progress(query: Any) -> list[dict[str, Any]]:
    return [json.loads(one.json) for one in query.recentProgress]


def _rate(spark: SparkSession, rows: int, partitions: int = 2) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    return source.option("numPartitions", partitions).load()


def _noop(rows: DataFrame) -> Any:
    return rows.writeStream.format("noop").outputMode("update").trigger(processingTime="1 second")


# --- the queries ----------------------------------------------------------------------------
def _skew(spark: SparkSession, folder: Path) -> Any:
    """Nine in ten rows share one key, and the work is per row."""
    key = F.when(F.col("value") % 20 == 0, F.col("value") % 8).otherwise(F.lit(3))
    heavy = F.expr("aggregate(sequence(1, 3000), 0L, (a, x) -> (a * 31 + x + value) % 1000003)")

    def each(batch: DataFrame, _: int) -> None:
        spread = batch.repartition(8, key).select(heavy.alias("h"))
        spread.write.format("noop").mode("overwrite").save()

    return _rate(spark, 40_000).writeStream.foreachBatch(each).trigger(processingTime="1 second")


def _spill(spark: SparkSession, folder: Path) -> Any:
    """A window buffers whole partitions and may keep only a few rows in memory."""
    spark.conf.set("spark.sql.windowExec.buffer.in.memory.threshold", "100")
    spark.conf.set("spark.sql.windowExec.buffer.spill.threshold", "20000")

    def each(batch: DataFrame, _: int) -> None:
        wide = batch.select(
            "value", F.repeat(F.sha2(F.col("value").cast("string"), 256), 8).alias("t")
        )
        wide.createOrReplaceTempView("wide")
        text = "SELECT max(t) OVER (PARTITION BY value % 2 ORDER BY value ROWS BETWEEN"
        text += " UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM wide"
        batch.sparkSession.sql(text).write.format("noop").mode("overwrite").save()

    return _rate(spark, 600_000).writeStream.foreachBatch(each).trigger(processingTime="1 second")


def _gc(spark: SparkSession, folder: Path) -> Any:
    """The driver's heap is nearly full, so each allocation is expensive."""
    jvm = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    heap = jvm.java.lang.Runtime.getRuntime()
    free = int(_FULL * _OLD_BYTES) - (heap.totalMemory() - heap.freeMemory())
    numbers = jvm.java.util.stream.LongStream.range(1_000, max(1_001, free // _BOXED))
    held = numbers.boxed().toList()
    jvm.java.lang.System.getProperties().put("held", held)
    text = (
        "size(array_distinct(transform(sequence(1, 4000), x -> concat(cast(x AS string), value))))"
    )
    return _noop(_rate(spark, 150).select(F.expr(text)))


def _python(spark: SparkSession, folder: Path) -> Any:
    """A Python function computes for each row."""

    @F.udf("long")  # type: ignore[untyped-decorator]
    def slow(value: int) -> int:
        return sum(range(20_000)) + value

    return _noop(_rate(spark, 20_000).select(slow("value")))


class SlowReader(DataSourceStreamReader):  # type: ignore[misc]
    """A source that takes three seconds to name its newest offset."""

    def initialOffset(self) -> dict[str, int]:
        """Return the first offset."""
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        """Return the newest offset, late."""
        time.sleep(3)
        return {"at": int(time.time())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return one partition."""
        return [InputPartition(end["at"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """Return one row."""
        yield (partition.value,)


class SlowSource(DataSource):  # type: ignore[misc]
    """The source of the query with a slow source."""

    @classmethod
    def name(cls) -> str:
        """Return the format."""
        return "slow_source"

    def schema(self) -> str:
        """Return the columns."""
        return "value long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the reader."""
        return SlowReader()


def _source(spark: SparkSession, folder: Path) -> Any:
    return _noop(spark.readStream.format("slow_source").load())


def _sink(spark: SparkSession, folder: Path) -> Any:
    """The foreachBatch function calls something slow outside Spark."""

    def each(batch: DataFrame, _: int) -> None:
        batch.count()
        time.sleep(3)

    return _rate(spark, 100).writeStream.foreachBatch(each).trigger(processingTime="1 second")


def _cores(spark: SparkSession, folder: Path) -> Any:
    """Another query's long tasks hold both cores."""

    @F.udf("long")  # type: ignore[untyped-decorator]
    def hold(value: int) -> int:
        time.sleep(4)
        return value

    busy = _noop(_rate(spark, 8, 8).select(hold("value")))
    busy.option("checkpointLocation", f"file://{folder}/busy").start()
    time.sleep(4)
    return _noop(_rate(spark, 100).select("value"))


def _checkpoint(spark: SparkSession, folder: Path) -> Any:
    """The checkpoint's file system takes its time."""
    return _noop(_rate(spark, 100).select("value"))


def _shuffle(spark: SparkSession, folder: Path) -> Any:
    """A hundred and fifty shuffle partitions for a thousand rows."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "150")
    return _noop(_rate(session, 1_000).groupBy((F.col("value") % 500).alias("k")).count())


def _driver(spark: SparkSession, folder: Path) -> Any:
    """The plan has thousands of columns, and the optimizer removes all but one of them."""
    rows = _rate(spark, 100).select("value")
    for _ in range(40):
        wide = [F.expr(f"value + {n} * (value % {n + 2})").alias(f"c{n}") for n in range(400)]
        rows = rows.select("value", *wide).select((F.col("value") + 1).alias("value"))
    return _noop(rows)


QUERIES: dict[BatchCause, Callable[[SparkSession, Path], Any]] = {
    BatchCause.SKEW: _skew,
    BatchCause.SPILL: _spill,
    BatchCause.PYTHON: _python,
    BatchCause.SOURCE: _source,
    BatchCause.SINK: _sink,
    BatchCause.CORES: _cores,
    BatchCause.CHECKPOINT: _checkpoint,
    BatchCause.SHUFFLE: _shuffle,
    BatchCause.DRIVER: _driver,
    BatchCause.GC: _gc,  # last: the heap stays full
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
