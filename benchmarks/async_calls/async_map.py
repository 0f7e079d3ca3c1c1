"""Compare ways to call a slow service in a stream: `map_async` and one call at a time.

Kafka -> one call per record -> Kafka, with one partition and so one task, in one run of one driver.
The service is a TCP server in its own process that responds to each request after a fixed number of
milliseconds. All ways take turns, in five rounds by default. Each time, a way reads records from
its own topic in three batches; the first is a warm-up and does not count. The output is compared
with the input: one result per record, none lost or duplicated, in order within a key. A third way
is a UDF with a thread pool for each Arrow batch, as users write it today.

- ratio: records per second with 128 in flight, divided by those with one call at a time in the same
  round;
- auto_of_best_fixed: records per second with `"auto"`, divided by those of the best fixed number in
  the same round;
- of_ideal: the measured rate divided by the ideal rate, which is calls in flight divided by
  latency: once with the latency of one call at a time and once with that at the same number in
  flight.

Figures are medians over the rounds, with their range. The default is uniform keys and 2 ms;
`--grid` measures 1, 2, 5 and 20 ms with uniform keys, Zipf(1.0) keys and one hot key, by default in
one round each. The last line is JSON.
"""

import argparse
import itertools
import json
import random
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._measuring import kafka_broker, ratios, report, spark_session, spread, workplace
from headgate_async import map_async
from tests.conftest_kafka import KafkaBroker
from tests.headgate_async.remote import connect, connect_blocking, remote

TAKES = "8 minutes"
NEEDS_KAFKA = True

KEYS = 3000
#: How many calls side by side the keys allow, rows of the commonest being asked one by one.
SIDE_BY_SIDE = {"uniform": KEYS, "zipf": sum(1.0 / rank for rank in range(1, KEYS + 1)), "hot": 2}
SCHEMA = "key STRING, value STRING"
IN_FLIGHT: tuple[Any, ...] = (16, 32, 128, 256, "auto")
#: Seconds that a measured batch is to last at least, as far as the number of records can tell.
BATCH_S = 4
MOST = 200_000
ROUNDS = 5


async def enrich(row: Any, client: Any) -> tuple[Any, ...]:
    """Call the service, and return the key and its response."""
    return row.key, await client.ask(row.value)


@dataclass(frozen=True)
class Arm:
    """The measurements of one way."""

    rate: float  # records a second, over the measured batches
    latency_ms: float  # of a call, mean
    used: float  # calls in flight, mean
    cpu: float  # share of a core that the Python worker took
    cpu_us: float = 0  # of the Python worker, for a record, in microseconds


class Bench:
    """One driver and one broker; each arm gets its own topics."""

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
        """Compare the written records with the expected ones, including the order within a key."""
        found: dict[str | None, list[str | None]] = {}
        for record in self.broker.read(sink):
            found.setdefault(record.key, []).append(record.value)
        expected: dict[str | None, list[str | None]] = {}
        for key, value in _records(total, keys):
            expected.setdefault(key, []).append(f"{value}-answer")
        if found != expected:
            raise SystemExit("the output does not match the input, so nothing was measured")


def _records(count: int, keys: str) -> Iterator[tuple[str, str]]:
    """Return keyed records, always the same ones."""
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
    """Return the way that uses `map_async`."""
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
    """Return the way with a thread pool per Arrow batch and a blocking client per thread."""

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


def main() -> None:
    """Measure; print a table and a line of JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--grid", action="store_true", help="all latencies and keys")
    options.add_argument("--latency", type=float, default=2.0, help="milliseconds")
    options.add_argument(
        "--in-flight", type=str, default="", help=("only these, separated by commas")
    )
    options.add_argument("--rounds", type=int, default=0, help=f"{ROUNDS}; 1 with --grid")
    chosen = options.parse_args()
    latencies = (1.0, 2.0, 5.0, 20.0) if chosen.grid else (chosen.latency,)
    distributions = ("uniform", "zipf", "hot") if chosen.grid else ("uniform",)
    numbers = [int(one) if one.isdigit() else one for one in chosen.in_flight.split(",") if one]
    rounds = chosen.rounds or (1 if chosen.grid else ROUNDS)
    with workplace("async_map") as folder, kafka_broker(folder) as broker:
        spark = spark_session(folder, kafka=True)
        try:
            bench = Bench(spark, broker, folder)
            results = {
                (latency, keys): _row(bench, latency, keys, numbers or IN_FLIGHT, rounds)
                for latency in latencies
                for keys in distributions
            }
        finally:
            spark.stop()
    _say(results[(2.0 if chosen.grid else chosen.latency, "uniform")])


def _row(
    bench: Bench, latency: float, keys: str, numbers: Any, rounds: int
) -> dict[str, list[Arm]]:
    """Return the measurements of each way, with one arm per round."""
    print(f"\n{latency:g} ms, {keys} keys")
    a_call = 1000 / (latency + 0.5)  # a second, one after the other
    with remote(latency_ms=latency) as service:
        port = service.port
        ways = [
            ("sequential", ours("sequential", port), 1),
            *((str(one), ours(one, port), 256 if one == "auto" else one) for one in numbers),
            ("32 threads", threads(32, port), 32),
        ]
        found: dict[str, list[Arm]] = {name: [] for name, _, _ in ways}
        for _ in range(rounds):
            for name, way, most in ways:
                busy = min(most, SIDE_BY_SIDE[keys])
                rows = int(max(1000, min(MOST, busy * a_call * BATCH_S)))
                found[name].append(bench.arm(way, rows=rows, keys=keys))
        for name, arms in found.items():
            middle = _middle(arms)
            print(
                f"  {name:>12}: {spread((one.rate for one in arms), '8,.0f')} records/s"
                f"  x{statistics.median(_ratios(found, name)):5.1f}"
                f"  latency {middle.latency_ms:6.2f} ms  in flight {middle.used:6.1f}"
                f"  CPU {middle.cpu:4.0%}, {middle.cpu_us:5.1f} µs a record",
                flush=True,
            )
        return found


def _middle(arms: Sequence[Arm]) -> Arm:
    return Arm(*(statistics.median(figures) for figures in zip(*map(astuple, arms), strict=True)))


def _ratios(found: dict[str, list[Arm]], name: str) -> list[float]:
    """Return a way's rate divided by the rate of one call at a time, for each round."""
    way, one = ([arm.rate for arm in found[arms]] for arms in (name, "sequential"))
    return ratios(way, one)


def _say(found: dict[str, list[Arm]]) -> None:
    middle = {name: _middle(arms) for name, arms in found.items()}
    one = middle["sequential"]
    answer: dict[str, Any] = {"ours": None, "ratio": None}
    fixed = [name for name in found if name.isdigit()]
    if "128" in found:
        times = _ratios(found, "128")
        answer["ours"] = round(middle["128"].rate)
        answer["ratio"] = round(statistics.median(times), 1)
        answer["ratio_range"] = [round(min(times), 1), round(max(times), 1)]
        answer["cpu_us_128"] = round(middle["128"].cpu_us, 1)
    if "256" in found:
        answer["ratio_256"] = round(statistics.median(_ratios(found, "256")), 1)
    for number in sorted({"16", "32"} & found.keys()):
        arm = middle[number]
        for name, latency in (("", one.latency_ms), ("_at_its_latency", arm.latency_ms)):
            ideal = int(number) / (latency / 1000)
            answer[f"of_ideal_{number}{name}"] = round(arm.rate / ideal, 2)
    if "auto" in found and fixed:
        best = [
            max(arm.rate for arm in arms) for arms in zip(*(found[n] for n in fixed), strict=True)
        ]
        shares = ratios([arm.rate for arm in found["auto"]], best)
        answer["auto_of_best_fixed"] = round(statistics.median(shares), 2)
        answer["auto_of_best_range"] = [round(min(shares), 2), round(max(shares), 2)]
        answer["auto_in_flight"] = round(middle["auto"].used, 1)
    answer["threads_32_ratio"] = round(statistics.median(_ratios(found, "32 threads")), 1)
    answer["bound"] = {
        name: _bound(middle[name], one) for name in found if name in {*fixed, "auto"}
    }
    report("async_map", baseline=round(one.rate, 1), **answer)


def _bound(arm: Arm, one: Arm) -> str:
    if arm.cpu > 0.85:
        return f"the Python worker's CPU: {arm.cpu_us:.0f} µs a record"
    if arm.latency_ms > 2 * one.latency_ms:
        return "CPU used by other processes on this machine: service, broker, JVM, anything else"
    return "the limit"


if __name__ == "__main__":
    main()
