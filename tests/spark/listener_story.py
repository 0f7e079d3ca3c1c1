"""A driver's telemetry beside a listener that sleeps, played in a process of its own.

Arguments: private|fallback, folder, Redis URL, stream, key. Prints one JSON line of what Spark
itself knows: the batches that ran and what its counter says was dropped.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from listeners.spark import slow_batches
from listeners.spark.listener import BusCounters
from listeners.spark.sorter import recent_executed
from listeners.spark.telemetry import Telemetry

BATCHES = 25
LIMIT_S = 200.0
SLEEPER = """
import time
from pyspark.sql.streaming import StreamingQueryListener

class Sleeper(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryProgress(self, event): time.sleep(3)
    def onQueryTerminated(self, event): pass
"""


def main(mode: str, folder: Path, redis_url: str, stream: str, key: str) -> None:
    """Run one query for `BATCHES` batches and tell what Spark knows."""
    folder.mkdir(parents=True)
    (folder / "drowsy.py").write_text(SLEEPER)
    sys.path.insert(0, str(folder))
    spark = _session(folder)
    slow_batches.SLOW_MS = 0  # any batch is slow, on any machine
    telemetry = Telemetry(
        driver=1,
        epoch=7,
        directory=folder,
        redis_url=redis_url,
        stream=stream,
        key=key.encode(),
        settings={"force_fallback": mode == "fallback", "heartbeat_s": 0.5},
        mask=lambda body: body,
    )
    telemetry.attach(spark)
    session = spark.newSession()
    telemetry.session_opened(session, ("drowsy:Sleeper",))
    query = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", f"file://{folder}/checkpoint")
        .trigger(processingTime="300 milliseconds")
        .start()
    )
    run = {"query": 42, "run": 5, "spark_run_id": query.runId, "jquery": query._jsq}
    telemetry.query_started(**run)
    jvm = spark.sparkContext._jvm
    _wait(lambda: len(recent_executed(jvm, query._jsq)) >= BATCHES)
    query.stop()
    telemetry.query_ended(**run)
    executed = [progress["batchId"] for progress in recent_executed(jvm, query._jsq)]
    dropped = _settled_counter(spark)
    last_seq = telemetry.close(30)
    facts = {
        "mode": telemetry.mode,
        "executed": executed,
        # Spark posts now and then without a query too (blocks cleaned, executors' metrics): the
        # last heartbeat, sent on closing, read the counter between these two.
        "dropped": [dropped, _dropped(spark)],
        "last_seq": last_seq,
        "last_seq_file": (folder / "last_seq").read_text().strip(),
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    spark.sparkContext._gateway.proc.kill()  # stopping would wait for the sleeper
    os._exit(0)


def _session(folder: Path) -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", str(folder / "tmp"))
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.scheduler.listenerbus.eventqueue.streams.capacity", "5")
        .getOrCreate()
    )


def _dropped(spark: SparkSession) -> int:
    counters = BusCounters(spark, "streams").read()
    return counters.dropped if counters else -1


def _settled_counter(spark: SparkSession) -> int:
    """Return Spark's own count of dropped events once it rises no more."""
    seen: list[int] = []

    def unchanged() -> bool:
        seen.append(_dropped(spark))
        return len(seen) > 10 and len(set(seen[-10:])) == 1

    _wait(unchanged)
    return seen[-1]


def _wait(met: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not met():
        if time.monotonic() > limit:
            raise TimeoutError("Spark did not get there")
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
