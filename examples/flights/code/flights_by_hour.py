"""Count flights and delays by hour, in a small SQLite table that is kept up to date.

This is a query of kind "python": Headgate calls `build(spark, params)`, and sets the checkpoint,
name and trigger of the returned writer. A batch may be executed twice (after a crash), so the
function upserts: writing the same rows again does not change anything.
"""

import sqlite3
from contextlib import closing
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

SCHEMA = (
    "scheduled TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, distance INT, dep_delay INT, arr_delay INT"
)
KEPT_HOURS = 10_000
CREATE = """
CREATE TABLE IF NOT EXISTS flights_by_hour (
    hour TEXT PRIMARY KEY, flights INTEGER, late INTEGER, mean_delay REAL
)
"""
UPSERT = """
INSERT INTO flights_by_hour (hour, flights, late, mean_delay) VALUES (?, ?, ?, ?)
ON CONFLICT (hour) DO UPDATE SET
    flights = excluded.flights, late = excluded.late, mean_delay = excluded.mean_delay
"""
TRIM = """
DELETE FROM flights_by_hour WHERE hour <= (
    SELECT hour FROM flights_by_hour ORDER BY hour DESC LIMIT 1 OFFSET ?
)
"""


def build(spark: SparkSession, params: dict[str, Any]) -> DataStreamWriter:
    """Return the writer, which writes the hours changed by a batch to `params["database"]`."""
    flights = (
        spark.readStream.format("json")
        .schema(SCHEMA)
        .option("maxFilesPerTrigger", params.get("max_files_per_trigger", 20))
        .option("ignoreMissingFiles", True)
        .load(params["input"])
    )
    hours = (
        flights.withWatermark("scheduled", "1 minute")
        .groupBy(F.window("scheduled", "1 hour"))
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_delay") >= 15).alias("late"),
            F.avg("dep_delay").alias("mean_delay"),
        )
        .withColumn("hour", F.date_format("window.start", "yyyy-MM-dd HH:mm"))
    )
    database = params["database"]
    return hours.writeStream.outputMode("update").foreachBatch(
        lambda frame, batch: upsert(frame, database)
    )


def upsert(frame: DataFrame, database: str) -> None:
    """Write the changed hours; the transaction writes a batch completely or not at all."""
    rows = [tuple(row) for row in frame.select("hour", "flights", "late", "mean_delay").collect()]
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.execute(CREATE)
        connection.executemany(UPSERT, rows)
        connection.execute(TRIM, (KEPT_HOURS,))
