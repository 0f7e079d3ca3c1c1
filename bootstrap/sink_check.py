"""Compare the output of a `rate` query with a batch over the same input; runs in the image.

    python sink_check.py SINK CHECKPOINT ROWS_PER_SECOND SQL

The input consists of the rows up to the checkpoint's last commit: the source numbers its rows from
0 and spaces their times evenly, starting at the second that it stores in the checkpoint. The script
prints a JSON line: rows in the sink, expected rows, and how many rows are missing or surplus.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def newest(folder: Path) -> int:
    """Return the newest batch in a log."""
    names = [file.name for file in folder.iterdir()]
    return max(int(name) for name in names if name.isascii() and name.isdecimal())


def main(sink: str, checkpoint: str, rows_per_second: str, sql: str) -> None:
    """Compute both outputs, and print the difference."""
    root = Path(checkpoint)
    batch = newest(root / "commits")
    seconds = int((root / "offsets" / str(batch)).read_text().split("\n")[2])
    began_ms = int((root / "sources" / "0" / "0").read_text().split()[-1])
    rows, apart_ms = seconds * int(rows_per_second), 1000 // int(rows_per_second)
    spark = SparkSession.builder.master("local[2]").appName("sink-check").getOrCreate()
    spark.range(rows).selectExpr(
        f"timestamp_millis({began_ms} + id * {apart_ms}) AS timestamp", "id AS value"
    ).createTempView("ticks")
    expected, written = spark.sql(sql).cache(), spark.read.parquet(sink).cache()
    figures = {
        "batches": batch + 1,
        "rows": written.count(),
        "expected": expected.count(),
        "missing": expected.exceptAll(written).count(),
        "too_many": written.exceptAll(expected).count(),
    }
    spark.stop()
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
