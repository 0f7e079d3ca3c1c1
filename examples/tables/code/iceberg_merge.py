"""Add up flights in an Iceberg table by MERGE, each batch exactly once.

Iceberg has no transaction IDs, but a snapshot can have properties. The recipe stores the query's
ID and the batch's number there, in the same commit as the rows, and skips a batch that the table
already has. `expire_snapshots` keeps the newest `RETAINED` snapshots: these must include the
snapshot of this query's last batch, so set `RETAINED` above the number of snapshots that other
writers add between two batches.
"""

from functools import partial
from typing import Any

from batches import by_carrier, flights, query_id
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

RETAINED = 100
CREATE = """
CREATE TABLE IF NOT EXISTS {table} (carrier STRING, flights BIGINT, delay BIGINT) USING iceberg
TBLPROPERTIES ('history.expire.min-snapshots-to-keep' = '{retained}')
"""
MERGE = """
MERGE INTO {table} AS total USING changes ON total.carrier = changes.carrier
WHEN MATCHED THEN UPDATE SET
    flights = total.flights + changes.flights, delay = total.delay + changes.delay
WHEN NOT MATCHED THEN INSERT *
"""
NEWEST = """
SELECT max(CAST(summary['headgate-batch'] AS BIGINT)) FROM {table}.snapshots
WHERE summary['headgate-query'] = '{query}'
"""


class _Statement:
    """A SQL statement that Java can call, in the thread of the batch."""

    class Java:
        implements = ("java.util.concurrent.Callable",)

    def __init__(self, spark: SparkSession, sql: str) -> None:
        self._spark, self._sql = spark, sql

    def call(self) -> None:
        self._spark.sql(self._sql)


def build(spark: SparkSession, params: dict[str, Any]) -> DataStreamWriter:
    """Return the writer to the table `params["table"]` (`catalog.database.table`)."""
    table = params["table"]
    spark.sql(CREATE.format(table=table, retained=RETAINED))
    return flights(spark, params).writeStream.foreachBatch(partial(_merge, table))


def _merge(table: str, batch: DataFrame, number: int) -> None:
    spark, query = batch.sparkSession, query_id(batch)
    spark.sql(f"REFRESH TABLE {table}")
    [(newest,)] = spark.sql(NEWEST.format(table=table, query=query)).collect()
    if newest is not None and newest >= number:
        return
    by_carrier(batch).createOrReplaceTempView("changes")
    # Iceberg for Spark 3.5 has no configuration for these properties; all versions have this.
    jvm: Any = spark._jvm
    jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(
        {"headgate-query": query, "headgate-batch": str(number)},
        _Statement(spark, MERGE.format(table=table)),
        jvm.java.lang.Class.forName("java.lang.Exception"),
    )
