"""Run one small stateful batch, so that a standby driver has loaded what a first batch needs.

A JVM loads about 20,000 classes and compiles the generated code for a first batch, which takes most
of a fresh driver's time (docs/performance.md). No user's code and no user's data are involved, and
the query has ended before the listener is registered.
"""

import shutil
from pathlib import Path
from typing import Any

LONGEST_S = 60
_FOLDER = "warm-up"


def warm_up(spark: Any, tmp: Path) -> None:
    """Run a batch of ten rows through a shuffle and a state store, and delete its checkpoint.

    Raises the query's own error if the batch fails.
    """
    from pyspark.sql import functions as F

    session, folder = spark.newSession(), tmp / _FOLDER
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    counts = (
        rows.withWatermark("timestamp", "1 minute")
        .groupBy(F.window("timestamp", "1 minute"), (F.col("value") % 3).alias("key"))
        .agg(F.count("*").alias("rows"), F.max("value").alias("newest"))
    )
    writer = counts.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    try:
        query.awaitTermination(LONGEST_S)
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
