"""Archive Spark's classes once: a JVM that maps them is up in half the time.

`python -m tests.class_archive FOLDER` runs a small streaming query and has its JVM write the
classes that it loaded into FOLDER (application class-data sharing, JEP 350). `bootstrap/test.py`
has each JVM use it; a JVM of another Java, or with other jars, goes without.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import pyspark

from controlplane.home import Trouble
from tests import pieces

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"  # of what cannot be archived
#: Seconds that the JVM may take to write the archive, at its end.
WRITTEN_WITHIN_S = 180


def main(folder: Path) -> int:
    """Make the archive where it is not there yet; return 0, without a Java too."""
    try:
        java = pieces.java()
    except Trouble as trouble:
        sys.stdout.write(f"{trouble}\n")
        return 0
    options = os.environ.get("JDK_JAVA_OPTIONS", "")
    made_of = f"{java.version} {java.home} {pyspark.__version__} {pyspark.__file__} {options}"
    archive = folder / f"{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"
    if archive.exists():
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / archive.name
        os.environ["JAVA_HOME"] = str(java.home)
        os.environ["JDK_JAVA_OPTIONS"] = f"{options} -XX:ArchiveClassesAtExit={draft} {QUIET}"
        _stream(Path(scratch))
        for old in folder.glob("*.jsa"):
            old.unlink()
        moved = folder / f".{archive.name}"
        moved.write_bytes(draft.read_bytes())  # perhaps of another file system
        moved.rename(archive)
    return 0


def _stream(scratch: Path) -> None:
    """Run a query with state, from files to files, and wait until its JVM is gone."""
    from pyspark.sql import SparkSession

    (scratch / "in").mkdir()
    (scratch / "in/rows.json").write_text('{"carrier": "UA", "delay": 12}\n' * 10)
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.getOrCreate()
    gateway = spark.sparkContext._gateway
    rows = spark.readStream.schema("carrier STRING, delay INT").json(str(scratch / "in"))
    rows.createOrReplaceTempView("flights")
    late = spark.sql("SELECT carrier, count(*) AS late FROM flights WHERE delay > 5 GROUP BY 1")
    for stream, mode, sink in ((rows, "append", "parquet"), (late, "complete", "noop")):
        writer = stream.writeStream.format(sink).outputMode(mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(scratch / f"checkpoint-{sink}"))
        writer.start(str(scratch / "out") if sink == "parquet" else None).awaitTermination(120)
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(WRITTEN_WITHIN_S)
    finally:
        gateway.proc.kill()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
