"""Run stateful queries on files with whichever PySpark comes first on the import path.

Called as a script: `upgrade_shapes.py HOME[:compare] …`. Each HOME has the input in `in/`, and a
checkpoint and an output for each query. Prints JSON: HOME -> query -> "" or what went wrong; with
`:compare`, also whether all rows that were ever written equal those of a batch computation.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

SCHEMA = "side STRING, k STRING, n INT, t TIMESTAMP, a INT, b INT, c INT, d INT, e INT"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def windows(rows: DataFrame) -> DataFrame:
    """Count and sum by minute and key."""
    grouped = rows.groupBy(f.window("t", "1 minute"), "k")
    sums = grouped.agg(f.count("*").alias("count"), f.sum("n").alias("sum"))
    return sums.select(f.col("window.start").cast("string").alias("start"), "k", "count", "sum")


def sessions(rows: DataFrame) -> DataFrame:
    """Count by key in sessions."""
    grouped = rows.groupBy(f.session_window("t", "20 seconds"), "k").agg(f.count("*").alias("n"))
    return grouped.select(f.col("session_window.start").cast("string").alias("start"), "k", "n")


def unique(rows: DataFrame) -> DataFrame:
    """Remove duplicates by two columns."""
    return rows.dropDuplicates(["k", "a"]).select("k", "a")


def unique_by_many(rows: DataFrame) -> DataFrame:
    """Remove duplicates by more columns than Scala's sets keep in order."""
    columns = ["k", "a", "b", "c", "d", "e"]
    return rows.dropDuplicates(columns).select(*columns)


def unique_within(rows: DataFrame) -> DataFrame:
    """Remove duplicates within the watermark; the input has none that are further apart."""
    by_n = rows.dropDuplicatesWithinWatermark if rows.isStreaming else rows.dropDuplicates
    return by_n(["n"]).select("n")


def joined(rows: DataFrame) -> DataFrame:
    """Join two streams by key and time, with the rows of the left that have no match."""
    left = rows.where("side = 'l'").selectExpr("k AS lk", "n AS ln", "t AS lt")
    right = rows.where("side = 'r'").selectExpr("k AS rk", "n AS rn", "t AS rt")
    on = "lk = rk AND rt BETWEEN lt - INTERVAL 5 SECONDS AND lt + INTERVAL 5 SECONDS"
    return left.join(right, f.expr(on), "leftOuter").select("lk", "ln", "rn")


#: Query -> its transformation and its state store.
SHAPES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "windows, HDFS": (windows, HDFS),
    "windows, RocksDB": (windows, ROCKS),
    "sessions, RocksDB": (sessions, ROCKS),
    "duplicates, HDFS": (unique, HDFS),
    "duplicates, RocksDB": (unique, ROCKS),
    "duplicates by 6 columns, HDFS": (unique_by_many, HDFS),
    "duplicates within the watermark, RocksDB": (unique_within, ROCKS),
    "outer join, HDFS": (joined, HDFS),
    "outer join, RocksDB": (joined, ROCKS),
}


def _start(spark: SparkSession, home: Path, name: str) -> StreamingQuery:
    """Start a query on all new files; it writes each batch to a folder of its own."""
    shape, provider = SHAPES[name]

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").json(str(home / name / f"out/{number}"))

    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    # By name, because a copy's checkpoint has the paths of the original's input.
    rows = spark.readStream.schema(SCHEMA).option("fileNameOnly", True)
    rows = rows.option("maxFilesPerTrigger", 1).json(str(home / "in/*.json"))
    writer = shape(rows.withWatermark("t", "10 seconds")).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(home / name / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def _differing(spark: SparkSession, home: Path, name: str) -> str:
    """Return how the output differs from a batch computation, without what ends the input."""
    shape, _ = SHAPES[name]
    rows = spark.read.schema(SCHEMA).json(str(home / "in"))
    expected = shape(rows.where("k <> 'end'"))
    out = spark.read.schema(expected.schema).json(str(home / name / "out/*"))
    key = next(column for column in ("k", "lk", "n") if column in expected.columns)
    out = out.where(f"CAST({key} AS STRING) NOT IN ('end', '-1')")
    got, wanted = (Counter(map(str, frame.collect())) for frame in (out, expected))
    lost, extra = sorted(wanted - got), sorted(got - wanted)
    return f"lost {len(lost)}: {lost[:2]}, extra {len(extra)}: {extra[:2]}" if lost or extra else ""


def _first_line(error: Exception) -> str:
    text = str(error)
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    return (causes[-1] if causes else text.splitlines()[0] if text else repr(error))[:300]


def main() -> None:
    """Continue every query of every home."""
    builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    found: dict[str, dict[str, str]] = {}
    for argument in sys.argv[1:]:
        home, _, compare = argument.partition(":")
        found[home] = {}
        queries = {}
        for name in SHAPES:  # all at once
            found[home][name] = ""
            try:
                queries[name] = _start(spark, Path(home), name)
            except Exception as error:
                found[home][name] = _first_line(error)
        for name, query in queries.items():
            try:
                query.awaitTermination()
                if compare:
                    found[home][name] = _differing(spark, Path(home), name)
            except Exception as error:
                found[home][name] = _first_line(error)
    sys.stdout.write(f"{json.dumps(found)}\n")
    spark.stop()


if __name__ == "__main__":
    main()
