"""Keep what a JVM has learnt of Spark's classes, so that those after it start sooner.

    python bootstrap/spark_classes.py ARCHIVE

Runs one small streaming query in a JVM that writes the classes it has loaded to ARCHIVE when it
ends (class data sharing, JEP 350). A JVM with another class path or other options ignores it.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 180.0


def main(archive: Path) -> None:
    """Write the archive, whole or not at all."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    aside = archive.with_suffix(".part")
    given = os.environ.get("JDK_JAVA_OPTIONS", "")
    wanted = f"-XX:ArchiveClassesAtExit={aside} -Xlog:cds=off -Xlog:cds+dynamic=off"
    os.environ["JDK_JAVA_OPTIONS"] = f"{given} {wanted}".strip()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
    counts = rows.groupBy("value").count().writeStream.outputMode("update").format("noop")
    with tempfile.TemporaryDirectory() as folder:
        query = counts.option("checkpointLocation", folder).start()
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and not (query.lastProgress or {}).get("numInputRows"):
            query.awaitTermination(0.2)
        query.stop()
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # its JVM ends with it, and writes
    gateway.proc.wait(LIMIT_S)
    aside.rename(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
