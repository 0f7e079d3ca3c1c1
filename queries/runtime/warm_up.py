"""Run small stateful batches, so that a standby driver has loaded what a first batch needs.

A JVM loads about 20,000 classes for a first batch and compiles its code, which takes most of a
fresh driver's time (docs/performance.md). No user's code and no user's data are involved, and the
query has ended before the listener is registered.
"""

import shutil
from pathlib import Path
from typing import Any

LONGEST_S = 120
_FOLDER = "warm-up"
#: Each file is a batch: the second one reads the state of the first, as after a takeover.
_FILES, _ROWS = 4, 50


def warm_up(spark: Any, tmp: Path) -> None:
    """Run batches of JSON rows through a window and a state store, and delete their files.

    Raises the query's own error if a batch fails.
    """
    from pyspark.sql import functions as F

    session, folder = spark.newSession(), tmp / _FOLDER
    rows = folder / "rows"
    rows.mkdir(parents=True, exist_ok=True)
    for number in range(_FILES):
        lines = (f'{{"at": "2026-01-01T0{number}:{n:02}:00", "n": {n}}}\n' for n in range(_ROWS))
        (rows / f"{number}.json").write_text("".join(lines))
    source = session.readStream.schema("at TIMESTAMP, n BIGINT").option("maxFilesPerTrigger", 1)
    counts = (
        source.json(rows.as_uri())
        .withWatermark("at", "1 minute")
        .groupBy(F.window("at", "5 minutes"), (F.col("n") % 3).alias("key"))
        .agg(F.count("*").alias("rows"), F.avg("n").alias("mean"), F.max("n").alias("most"))
    )
    writer = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    query = writer.option("checkpointLocation", (folder / "checkpoint").as_uri()).start()
    try:
        query.awaitTermination(LONGEST_S)
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
