"""Compare a light query next to heavy ones: with FIFO, and with the pools that Headgate advises.

One driver on two cores runs three heavy queries with 128 tasks per batch, as fast as possible, and
one light query with one task, every second. Two arms take turns in it:

- FIFO: all queries are in one FIFO pool, where Spark serves the older job first;
- pools: the light query's pool has a minimum share of 1, and the heavy queries share another pool.

Each arm's batches are checked first: their ids have no holes, and all their rows were read. `ratio`
is the p95 of the light query's batches with FIFO / with pools; `heavy_kept` is the share of the
heavy queries' throughput that remains with pools. The last line is JSON.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks._measuring import kill_session, report, spark_session, workplace
from queries.domain.definitions.configuration import fairscheduler_xml
from queries.domain.definitions.spec import PoolSpec

TAKES = "12 minutes"

HEAVY, TASKS = 3, 128
#: Some 30 ms of one core, without a call out of Spark: a heavy batch is two seconds of two cores.
WORK = "aggregate(sequence(1, 1000000), value, (sum, n) -> (sum * 31 + n) % 1000003)"
WARM_UP_S = 4.0
LIMIT_S = 120.0  # generous: the machine may be busy

POOLS = (
    PoolSpec(name="together", mode="FIFO"),
    PoolSpec(name="light", min_share=1),
    PoolSpec(name="heavy"),
)
#: Arm -> the pools of the light query and of the heavy ones.
ARMS = {"FIFO": ("together", "together"), "pools": ("light", "heavy")}

Turn = tuple[list[float], float]  # the light query's batches in ms, the heavy ones' rows a second


def main() -> None:
    """Let the arms take turns, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=45.0, help="measured in each turn")
    chosen = options.parse_args()
    with workplace("pools") as folder:
        allocations = folder / "pools.xml"
        allocations.write_text(fairscheduler_xml(POOLS))
        conf = {
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": f"file://{allocations}",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        }
        spark = spark_session(folder, cores=2, conf=conf)
        try:
            turns = _rounds(spark, folder, max(5, chosen.rounds), chosen.seconds)
        finally:
            kill_session(spark)
    _report(turns)


def _rounds(spark: Any, folder: Path, number: int, seconds: float) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {arm: [] for arm in ARMS}
    numbers = count()
    for turn in range(-1, number):  # the first round warms the JVM up and checks
        for arm in list(ARMS) if turn % 2 else list(ARMS)[::-1]:
            light, heavy = ARMS[arm]
            places = {name: folder / f"{name}-{next(numbers)}" for name in _names()}
            with _running(spark, places, light, heavy) as queries:
                found = _measured(queries, seconds)
            if turn >= 0:
                turns[arm].append(found)
        if turn >= 0:
            said = ", ".join(
                f"{arm} {_p95(turns[arm][-1][0]):.0f} ms, {turns[arm][-1][1]:.0f} rows/s"
                for arm in ARMS
            )
            print(f"round {turn + 1}: light p95 and heavy throughput {said}", flush=True)
    return turns


def _names() -> list[str]:
    return [*(f"heavy{number}" for number in range(HEAVY)), "light"]


@contextmanager
def _running(spark: Any, places: dict[str, Path], light: str, heavy: str) -> Iterator[Any]:
    queries = {}
    try:
        for name, place in places.items():
            tasks, pool = (1, light) if name == "light" else (TASKS, heavy)
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
            source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks)
            rows = source.option("numPartitions", tasks).load()
            work = "value" if name == "light" else WORK
            writer = rows.selectExpr(work).writeStream.format("noop").queryName(name)
            every = "1 second" if name == "light" else "0 seconds"
            writer = writer.trigger(processingTime=every)
            queries[name] = writer.option("checkpointLocation", f"file://{place}").start()
        yield queries
    finally:
        for query in queries.values():
            query.stop()


def _measured(queries: dict[str, Any], seconds: float) -> Turn:
    """Measure for `seconds` once every query has committed; exit if a batch is incomplete."""
    end = time.monotonic() + LIMIT_S
    while not all(len(query.recentProgress) > 1 for query in queries.values()):
        if time.monotonic() > end:
            raise SystemExit("a query did not start")
        time.sleep(0.2)
    time.sleep(WARM_UP_S)
    before = {name: query.lastProgress["batchId"] for name, query in queries.items()}
    began = time.monotonic()
    time.sleep(seconds)
    batches = {name: _batches(query) for name, query in queries.items()}
    took = time.monotonic() - began
    for name, found in batches.items():
        rows = 1 if name == "light" else TASKS
        if [one["batchId"] for one in found] != list(range(len(found))):
            raise SystemExit(f"batches of {name} are missing")
        if any(one["numInputRows"] != rows for one in found):
            raise SystemExit(f"a batch of {name} did not read its {rows} rows")
    light = batches.pop("light")[before["light"] + 1 :]
    if not light:
        raise SystemExit("the light query did not execute a batch")
    heavy = sum(
        one["numInputRows"] for name, found in batches.items() for one in found[before[name] + 1 :]
    )
    return [float(one["durationMs"]["triggerExecution"]) for one in light], heavy / took


def _batches(query: Any) -> list[dict[str, Any]]:
    return [dict(one) for one in query.recentProgress]


def _p95(durations: list[float]) -> float:
    ordered = sorted(durations)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]


def _report(turns: dict[str, list[Turn]]) -> None:
    arms: dict[str, dict[str, Any]] = {}
    for arm, rounds in turns.items():
        p95, heavy = [_p95(light) for light, _ in rounds], [rows for _, rows in rounds]
        arms[arm] = {
            "light_p95_ms": round(statistics.median(p95), 1),
            "light_p95_of_rounds_ms": [round(min(p95), 1), round(max(p95), 1)],
            "light_p50_ms": round(statistics.median(ms for light, _ in rounds for ms in light), 1),
            "heavy_rows_per_second": round(statistics.median(heavy), 1),
            "heavy_of_rounds": [round(min(heavy), 1), round(max(heavy), 1)],
        }
        print(f"{arm}: {arms[arm]}")
    fifo, pools = arms["FIFO"], arms["pools"]
    report(
        "pools",
        ours=pools,
        baseline=fifo,
        ratio=round(fifo["light_p95_ms"] / pools["light_p95_ms"], 1),
        heavy_kept=round(pools["heavy_rows_per_second"] / fifo["heavy_rows_per_second"], 2),
    )


if __name__ == "__main__":
    main()
