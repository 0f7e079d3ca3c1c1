"""Calls to a slow service inside a stream: `map_async` against one call at a time.

Kafka -> one call a record -> Kafka, one partition and so one task, in one run of one driver. The
service is a TCP server in a process of its own that answers each request after so many
milliseconds. Every arm reads records of its own topic in batches; the first batch warms up and
does not count. Each arm's output is compared with its input: one answer a record, none lost, none
double. Beside it: a UDF with a thread pool for each Arrow batch, as it is written today.

- ratio: records a second with 128 in flight, over one call at a time, both measured here;
- ideal: calls in flight over the latency that one call at a time measured.

By default uniform keys and 2 ms; `--grid` goes through 1, 2, 5 and 20 ms and through uniform,
Zipf(1.0) and one hot key. The last line is JSON.
"""

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headgate_async import map_async
from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.headgate_async.remote import connect, connect_blocking, remote

KEYS = 3000
SCHEMA = "key STRING, value STRING"
IN_FLIGHT: tuple[Any, ...] = (16, 32, 128, 256, "auto")
#: Seconds that a measured batch is to last at least, as far as the number of records can tell.
BATCH_S = 10
MOST = 150_000


async def enrich(row: Any, client: Any) -> tuple[Any, ...]:
    """Ask the service, and pass key and answer on."""
    return row.key, await client.ask(row.value)


@dataclass(frozen=True)
class Arm:
    """What was measured of one way."""

    rate: float  # records a second, over the measured batches
    latency_ms: float  # of a call, mean
    used: float  # calls in flight, mean
    cpu: float  # share of a core that the Python worker took
    cpu_us: float = 0  # of the Python worker, for a record, in microseconds


class Bench:
    """One driver and one broker; each arm gets topics of its own."""

    def __init__(self, spark: Any, broker: KafkaBroker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.number = 0

    def arm(self, way: Any, *, rows: int, keys: str, batches: int = 3) -> Arm:
        """Run a way over `batches` batches of `rows` records; check all, measure all but one."""
        self.number += 1
        source, sink = self.broker.topic("in"), self.broker.topic("out")
        total = rows * batches
        self.broker.produce(source, _records(total, keys))
        frame = self.spark.readStream.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self.broker.servers,
                "subscribe": source,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(rows),
            }
        )
        text = frame.load().selectExpr(
            "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
        )
        query = (
            way(text)
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.servers)
            .option("topic", sink)
            .option("checkpointLocation", str(self.folder / f"checkpoint-{self.number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = [json.loads(one.json) for one in query.recentProgress]
        progress = [one for one in progress if one["numInputRows"]]
        self._check(sink, total, keys)
        return _measured(progress[1:])

    def _check(self, sink: str, total: int, keys: str) -> None:
        """Compare what was written with what must be; within a key also the order."""
        found: dict[str | None, list[str | None]] = {}
        for record in self.broker.read(sink):
            found.setdefault(record.key, []).append(record.value)
        expected: dict[str | None, list[str | None]] = {}
        for key, value in _records(total, keys):
            expected.setdefault(key, []).append(f"{value}-answer")
        if found != expected:
            raise SystemExit("the output is not what the input makes: nothing was measured")


def _records(count: int, keys: str) -> Iterator[tuple[str, str]]:
    """Return keyed records, the same ones each time."""
    chance = random.Random(11)
    weights = list(itertools.accumulate(1.0 / (rank + 1) for rank in range(KEYS)))
    for number in range(count):
        if keys == "uniform":
            key = number % KEYS
        elif keys == "zipf":
            key = chance.choices(range(KEYS), cum_weights=weights)[0]
        else:  # hot: every second record is of one key
            key = 0 if number % 2 else 1 + number % (KEYS - 1)
        yield f"key-{key}", f"value-{number}"


def _measured(progress: list[dict[str, Any]]) -> Arm:
    seconds = sum(one["durationMs"]["triggerExecution"] for one in progress) / 1000
    rate = sum(one["numInputRows"] for one in progress) / seconds
    seen = [figures for one in progress for figures in one.get("observedMetrics", {}).values()]
    if not seen:
        return Arm(rate, 0, 0, 0)
    calls, busy, wall, cpu = (
        sum(one[name] for one in seen) for name in ("calls", "busy_ms", "wall_ms", "cpu_ms")
    )
    return Arm(rate, busy / calls, busy / wall, cpu / wall, 1000 * cpu / calls)


def ours(in_flight: Any, port: int) -> Any:
    """Return the way of `map_async`."""
    return partial(
        map_async,
        enrich=enrich,
        key="key",
        schema=SCHEMA,
        name=f"enrich {in_flight}",
        setup=partial(connect, port),
        in_flight=in_flight,
        shuffle=False,
    )


def threads(number: int, port: int) -> Any:
    """Return the way of a thread pool for each Arrow batch, a blocking client for each thread."""

    def lookup(frames: Iterator[Any]) -> Iterator[Any]:
        import threading

        mine = threading.local()

        def ask(text: str) -> str:
            if not hasattr(mine, "client"):
                mine.context = connect_blocking(port)
                mine.client = mine.context.__enter__()
            return str(mine.client.ask(text))

        with ThreadPoolExecutor(number) as pool:
            for frame in frames:
                yield frame.assign(value=list(pool.map(ask, frame["value"])))

    return lambda frame: frame.mapInPandas(lookup, SCHEMA)


def _session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
    jars = ",".join(str(jar) for jar in sorted(pieces.kafka_connector().glob("*.jar")))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    """Measure, print a table, and a line of JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--grid", action="store_true", help="all latencies and keys")
    options.add_argument("--latency", type=float, default=2.0, help="milliseconds")
    options.add_argument("--in-flight", type=str, default="", help="of these only, by comma")
    chosen = options.parse_args()
    latencies = (1.0, 2.0, 5.0, 20.0) if chosen.grid else (chosen.latency,)
    distributions = ("uniform", "zipf", "hot") if chosen.grid else ("uniform",)
    numbers = [int(one) if one.isdigit() else one for one in chosen.in_flight.split(",") if one]
    with tempfile.TemporaryDirectory(prefix="headgate-async-map-") as name:
        folder = Path(name)
        broker = KafkaBroker(folder / "kafka")
        broker.start()
        spark = _session(folder)
        try:
            bench = Bench(spark, broker, folder)
            results = {
                (latency, keys): _row(bench, latency, keys, numbers or IN_FLIGHT)
                for latency in latencies
                for keys in distributions
            }
        finally:
            spark.stop()
            broker.stop()
    _say(results[(2.0 if chosen.grid else chosen.latency, "uniform")])


def _row(bench: Bench, latency: float, keys: str, numbers: Any) -> dict[str, Arm]:
    print(f"\n{latency:g} ms, {keys} keys")
    with remote(latency_ms=latency) as service:
        found: dict[str, Arm] = {}

        def take(name: str, way: Any, guess: float) -> None:
            rows = int(max(1000, min(MOST, guess * BATCH_S)))
            found[name] = arm = bench.arm(way, rows=rows, keys=keys)
            one = found.get("sequential", arm)
            print(
                f"  {name:>12}: {arm.rate:8,.0f} records/s  x{arm.rate / one.rate:5.1f}"
                f"  latency {arm.latency_ms:6.2f} ms  in flight {arm.used:6.1f}"
                f"  CPU {arm.cpu:4.0%}, {arm.cpu_us:5.1f} µs a record",
                flush=True,
            )

        take("sequential", ours("sequential", service.port), 1000 / (latency + 0.5))
        for number in numbers:
            most = 256 if number == "auto" else number
            take(str(number), ours(number, service.port), most * 1000 / (latency + 0.5))
        take("32 threads", threads(32, service.port), 32 * 1000 / (latency + 0.5))
        return found


def _say(found: dict[str, Arm]) -> None:
    one = found["sequential"]
    answer: dict[str, Any] = {"name": "async_map", "baseline": round(one.rate, 1)}
    fixed = [arm.rate for name, arm in found.items() if name.isdigit()]
    if "128" in found:
        answer["ours"] = round(found["128"].rate)
        answer["ratio"] = round(found["128"].rate / one.rate, 1)
        answer["cpu_us_128"] = round(found["128"].cpu_us, 1)
    if "256" in found:
        answer["ratio_256"] = round(found["256"].rate / one.rate, 1)
    for number in ("16", "32"):
        if number in found:
            ideal = int(number) / (one.latency_ms / 1000)
            answer[f"of_ideal_{number}"] = round(found[number].rate / ideal, 2)
    if "auto" in found and fixed:
        answer["auto_of_best_fixed"] = round(found["auto"].rate / max(fixed), 2)
        answer["auto_in_flight"] = round(found["auto"].used, 1)
    answer["threads_32_ratio"] = round(found["32 threads"].rate / one.rate, 1)
    answer["bound"] = {
        name: _bound(arm, one) for name, arm in found.items() if name.isdigit() or name == "auto"
    }
    print(json.dumps(answer))


def _bound(arm: Arm, one: Arm) -> str:
    if arm.cpu > 0.85:
        return f"the Python worker's CPU: {arm.cpu_us:.0f} µs a record"
    if arm.latency_ms > 2 * one.latency_ms:
        return "CPU that others of this machine took: service, broker, JVM, strangers"
    return "the limit"


if __name__ == "__main__":
    main()
