"""Write each batch to Delta tables exactly once: to two tables, or by MERGE.

Delta stores an application ID and a version (`txnAppId`, `txnVersion`) with a commit, and skips a
commit whose version is not above the stored one. With the query's ID and the batch's number as
values, Delta skips a batch that is executed again.
"""

from functools import partial
from typing import Any

from batches import by_carrier, flights, query_id
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

CREATE = (
    "CREATE TABLE IF NOT EXISTS {table} (carrier STRING, flights BIGINT, delay BIGINT) USING delta"
)
MERGE = """
MERGE INTO {table} AS total USING changes ON total.carrier = changes.carrier
WHEN MATCHED THEN UPDATE SET
    flights = total.flights + changes.flights, delay = total.delay + changes.delay
WHEN NOT MATCHED THEN INSERT *
"""
_ONCE = "spark.databricks.delta.write"


def into_two(spark: SparkSession, params: dict[str, Any]) -> DataStreamWriter:
    """Return a writer to `params["all"]`, and of the late flights to `params["late"]`."""
    return flights(spark, params).writeStream.foreachBatch(partial(_append, params))


def _append(params: dict[str, Any], batch: DataFrame, number: int) -> None:
    once = {"txnAppId": query_id(batch), "txnVersion": number}
    batch.persist()  # read once, although it is written twice
    try:
        batch.write.format("delta").options(**once).mode("append").save(params["all"])
        late = batch.where("dep_delay >= 15")
        late.write.format("delta").options(**once).mode("append").save(params["late"])
    finally:
        batch.unpersist()


def merged(spark: SparkSession, params: dict[str, Any]) -> DataStreamWriter:
    """Return a writer that adds each batch to the totals by carrier in `params["table"]`."""
    table = f"delta.`{params['table']}`"
    spark.sql(CREATE.format(table=table))
    return flights(spark, params).writeStream.foreachBatch(partial(_merge, table))


def _merge(table: str, batch: DataFrame, number: int) -> None:
    spark = batch.sparkSession  # this query's own session, so the settings affect no other query
    # MERGE has no options: outside DataFrame writers, Delta reads them from the session's settings.
    spark.conf.set(f"{_ONCE}.txnAppId", query_id(batch))
    spark.conf.set(f"{_ONCE}.txnVersion", str(number))
    by_carrier(batch).createOrReplaceTempView("changes")
    spark.sql(MERGE.format(table=table))
