"""`map_async` beside what else a query may hold, told as a line of JSON.

    python async_map_beside_story.py FOLDER

Run by `test_async_map_beside.py`. Each story is a query of its own; all read the same files, or
rows that Spark makes.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from headgate_async import map_async

FILES, ROWS, KEYS = 3, 60, 7
ENDS_WITHIN_S = 120.0
SCHEMA = "k LONG, value LONG"


def values() -> list[int]:
    """Return the values of all files."""
    return [value for file in range(FILES) for value in _values_of(file)]


def _values_of(file: int) -> list[int]:
    """Return a file's own values, and again each second one of the file before it.

    State must know those again, across batches.
    """
    before = range((file - 1) * ROWS, file * ROWS) if file else ()
    return [*range(file * ROWS, (file + 1) * ROWS), *(value for value in before if value % 2)]


def _write(folder: Path) -> str:
    folder.mkdir()
    for file in range(FILES):
        lines = [json.dumps({"k": value % KEYS, "value": value}) for value in _values_of(file)]
        (folder / f"{file}.json").write_text("\n".join(lines))
        os.utime(folder / f"{file}.json", (1_000_000 + file, 1_000_000 + file))
    return str(folder)


async def _same(row: Any, client: Any) -> Any:
    await asyncio.sleep(0.002)
    return row.k, row.value


def _calls(frame: Any, name: str) -> Any:
    return map_async(frame, _same, key="k", schema=SCHEMA, name=name, order_by=())


def main(folder: Path) -> None:
    """Run the stories one after the other and tell of them."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    path = _write(folder / "in")
    told: dict[str, Any] = {}

    def files() -> Any:
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(path)

    def run(name: str, frame: Any, mode: str, **trigger: Any) -> None:
        last: list[list[int]] = []

        def take(batch: Any, _: int) -> None:
            rows = [list(row) for row in batch.collect()]
            last[:] = rows if mode == "complete" else last + rows

        query = (
            frame.writeStream.foreachBatch(take)
            .outputMode(mode)
            .option("checkpointLocation", str(folder / name))
            .trigger(**trigger)
            .start()
        )
        assert query.awaitTermination(int(ENDS_WITHIN_S)), f"{name} did not end"
        executed = [one for one in query.recentProgress if one.numInputRows]
        told[name] = {"rows": sorted(last), "batches": len(executed)}

    run(
        "stateful_before",
        _calls(files().dropDuplicates(["value"]), "a"),
        "append",
        availableNow=True,
    )
    counts = _calls(files(), "b").groupBy("k").count()
    run("stateful_after", counts, "complete", availableNow=True)
    run("once", _calls(files(), "c"), "append", once=True)

    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    query = (
        _calls(made.selectExpr(f"value % {KEYS} AS k", "value"), "d")
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "tracked"))
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "200")
        .trigger(processingTime="0 seconds")
        .start()
    )
    limit = time.monotonic() + ENDS_WITHIN_S
    progress: list[dict[str, Any]] = []
    while time.monotonic() < limit and query.isActive and len(progress) < FILES:
        time.sleep(0.1)
        progress = [json.loads(one.json) for one in query.recentProgress]
        progress = [one for one in progress if one["numInputRows"]]
    told["tracked"] = {
        "failed": str(query.exception() or ""),
        "calls": [one["observedMetrics"]["headgate_async:d"]["calls"] for one in progress],
        "rows": [one["numInputRows"] for one in progress],
    }
    query.stop()
    sys.stdout.write(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
