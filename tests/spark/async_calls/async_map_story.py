"""What `map_async` does on a real Spark, told as a line of JSON: run by `test_async_map.py`.

    python async_map_story.py MASTER FOLDER

Starts with our packages on this process's own path only: executors must not need them.
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
from pyspark.sql import functions as f

from headgate_async import map_async

ROWS, KEYS, BATCHES = 400, 40, 3


def make() -> tuple[Any, Any]:
    """Return (setup, enrich) as closures: functions of a script travel by value anyway."""
    import contextlib

    @contextlib.asynccontextmanager
    async def setup() -> Any:
        yield {"opened": os.getpid(), "calls": 0, "running": {}}

    async def enrich(row: Any, client: Any) -> Any:
        import importlib.util

        assert not client["running"].get(row.k), "two calls of a key at once"
        client["running"][row.k] = True
        client["calls"] += 1
        await asyncio.sleep(0.002)
        client["running"][row.k] = False
        if row.value % 7 == 0:
            return None
        if row.value % 5 == 0:
            raise ValueError("fives are refused")
        there = importlib.util.find_spec("headgate_async") is not None
        pid = client["opened"]
        return [(row.k, row.value, pid, client["calls"], there)] * (2 if row.value % 3 == 0 else 1)

    return setup, enrich


def main(master: str, folder: Path) -> None:
    """Run a query of two operators over a few batches and tell of it."""
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    setup, enrich = make()
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    frame = frame.withColumn("k", f.col("value") % KEYS)
    schema = "k LONG, value LONG, pid LONG, calls LONG, there BOOLEAN"
    one = map_async(
        frame,
        enrich,
        key="k",
        schema=schema,
        setup=setup,
        order_by="value",
        on_error="dead_letter",
        name="first",
    )

    def again(row: Any) -> Any:
        return (row.k, row.value, row.pid, row.calls, row.there, row.dead_letter is not None)

    two = map_async(
        one, again, key=None, schema=f"{schema}, dead BOOLEAN", in_flight=4, name="second"
    )
    taken: list[Any] = []
    query = (
        two.writeStream.foreachBatch(lambda batch, _: taken.extend(batch.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    limit = time.monotonic() + 180
    progress: list[dict[str, Any]] = []
    while time.monotonic() < limit and query.isActive and len(progress) < BATCHES:
        time.sleep(0.1)
        progress = [json.loads(each.json) for each in query.recentProgress]
        progress = [each for each in progress if each["numInputRows"]]
    failed = str(query.exception() or "")
    query.stop()
    upto = ROWS * BATCHES
    rows = [row for row in taken if row.dead or row.value < upto]
    sys.stdout.write(
        json.dumps(
            {
                "failed": failed,
                "values": sorted(row.value for row in rows if not row.dead),
                "dead": sum(row.dead for row in taken),
                "there": any(row.there for row in taken if not row.dead),
                "workers": len({row.pid for row in taken if not row.dead}),
                "observed": [each["observedMetrics"] for each in progress[:BATCHES]],
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
