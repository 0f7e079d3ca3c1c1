"""Measure what writing the logs of a checkpoint on S3 costs each batch: ours and Spark's manager.

- ours: each log entry and file of the state is one object, created once, without a rename;
- baseline: Spark's default, which writes a temporary object, copies it to its name and deletes it.

Both arms take turns on one real S3 gateway on loopback and in one Spark: the same stateful query,
each time on a new checkpoint, for the same number of batches. Latency to a store in a data center
is higher, so what matters there is the number of requests that a rename adds. Before any figure is
used, each checkpoint must have every log entry exactly once, and the counts must be those of the
rows that were read. `walCommit` and `commitOffsets` are Spark's own figures; the first two batches
of each turn are left out. The last line is JSON.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks._measuring import kill_session, ratios, report, spark_session, spread, workplace
from examples.flights import s3_definitions
from installation.machine import trial_servers
from queries.jvm.compiled import our_jar
from tests import pieces

TAKES = "6 minutes"

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
OURS = "headgate.CheckpointFiles"
LIMIT_S = 300.0  # for one turn
WARM_UP = 2  # batches left out
PARTS = ("walCommit", "commitOffsets", "triggerExecution")
ROWS = 100  # per batch


def main() -> None:
    """Start a gateway and Spark, let the arms take turns, compare."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--batches", type=int, default=12)
    asked = options.parse_args()
    if reason := pieces.missing_s3():
        raise SystemExit(reason)
    with workplace("log_entries") as folder:
        gateway = trial_servers.Gateway(folder / "s3", program=pieces.versitygw(), usual_port=None)
        gateway.start(pieces.java().home)
        try:
            found = _turns(gateway, folder, max(5, asked.rounds), max(5, asked.batches))
        finally:
            gateway.stop()
    for part in PARTS:
        for arm, turns in found.items():
            print(f"{part}, {arm or 'default'}: {spread(turn[part] for turn in turns)} ms a batch")
    logs = {
        arm: [turn["walCommit"] + turn["commitOffsets"] for turn in turns]
        for arm, turns in found.items()
    }
    whole = {arm: [turn["triggerExecution"] for turn in turns] for arm, turns in found.items()}
    report(
        "log_entries",
        ours=round(statistics.median(logs[OURS]), 1),
        baseline=round(statistics.median(logs[""]), 1),
        ratio=round(statistics.median(ratios(logs[""], logs[OURS])), 2),
        unit="ms, walCommit and commitOffsets of a batch, median",
        batch_ratio=round(statistics.median(ratios(whole[""], whole[OURS])), 2),
        rounds=len(logs[OURS]),
    )


def _turns(
    gateway: trial_servers.Gateway, folder: Path, rounds: int, batches: int
) -> dict[str, list[dict[str, float]]]:
    """Return the medians of each turn in ms, by arm; each round has one turn of each arm."""
    address = gateway.address()
    jars = (*sorted(pieces.s3_connector().glob("*.jar")), our_jar(folder / "classes"))
    spark = spark_session(
        folder,
        conf={
            **s3_definitions.store(gateway.place, address.access_key, address.secret_key),
            "spark.jars": ",".join(str(jar) for jar in jars),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        },
    )
    found: dict[str, list[dict[str, float]]] = {"": [], OURS: []}
    try:
        for arm in found:  # classes and connections are ready before anything counts
            _turn(spark, arm, f"warm-up-{len(arm)}", batches)
        for turn in range(rounds):
            arms = list(found) if turn % 2 else list(reversed(found))
            for arm in arms:
                found[arm].append(_turn(spark, arm, f"turn-{turn}-{len(arm)}", batches))
    finally:
        kill_session(spark)
    return found


def _turn(spark: Any, arm: str, name: str, batches: int) -> dict[str, float]:
    """Run the query for some batches on a new checkpoint; return the medians in ms."""
    place = f"s3a://{trial_servers.BUCKET}/{name}"
    session = spark.newSession()
    if arm:
        session.conf.set(SETTING, arm)
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    table = name.replace("-", "_")
    query = (
        rows.groupBy((rows.value % 10).alias("digit"))
        .count()
        .writeStream.format("memory")
        .queryName(table)
        .outputMode("complete")
        .option("checkpointLocation", place)
        .start()
    )
    end = time.monotonic() + LIMIT_S
    while (last := query.lastProgress) is None or last["batchId"] < batches - 1:
        if not query.isActive or time.monotonic() > end:
            raise SystemExit(f"{name}: {query.exception() or 'too slow'}")
        time.sleep(0.05)
    seen = [each for each in query.recentProgress if each["batchId"] < batches]
    query.stop()
    _check(session, place, table, batches)
    counted = [each["durationMs"] for each in seen if each["batchId"] >= WARM_UP]
    return {part: statistics.median(each[part] for each in counted) for part in PARTS}


def _check(session: Any, place: str, table: str, batches: int) -> None:
    """Exit unless each batch has its entries once and every row was counted once."""
    context = session.sparkContext
    folder = context._jvm.org.apache.hadoop.fs.Path(place)
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())
    for log in ("offsets", "commits"):
        listed = files.listStatus(context._jvm.org.apache.hadoop.fs.Path(f"{place}/{log}"))
        found = [str(one.getPath().getName()) for one in listed]
        names = sorted(
            int(name) for name in found if name.isdigit()
        )  # not of an interrupted rename
        if names != list(range(len(names))) or len(names) < batches:
            raise SystemExit(f"{place}: {log} has {names}")
    counts = {row["digit"]: row["count"] for row in session.table(table).collect()}
    if len(set(counts.values())) != 1 or sum(counts.values()) % ROWS:
        raise SystemExit(f"{place}: rows were lost or counted twice: {counts}")


if __name__ == "__main__":
    main()
