"""What all recipes need: the flights that they read, and the ID under which they write batches."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "scheduled TIMESTAMP, carrier STRING, tailnum STRING, dep_delay INT"


def flights(spark: SparkSession, params: dict[str, Any]) -> DataFrame:
    """Return the flights in the JSON files in the folder `params["input"]`."""
    return (
        spark.readStream.format("json")
        .schema(SCHEMA)
        .option("maxFilesPerTrigger", params.get("max_files_per_trigger", 20))
        .load(params["input"])
    )


def by_carrier(batch: DataFrame) -> DataFrame:
    """Return a batch's additions to each carrier's totals: flights and minutes of delay."""
    return batch.groupBy("carrier").agg(
        F.count("*").alias("flights"), F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay")
    )


def query_id(batch: DataFrame) -> str:
    """Return the ID, from the checkpoint, of the query to which the batch belongs.

    A restarted query keeps its ID and continues its batch numbers; a query that starts without a
    checkpoint gets a new ID. Spark sets the ID as a property of the thread that runs the batch.
    """
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise ValueError("this DataFrame is not a batch of a streaming query")
    return str(found)
