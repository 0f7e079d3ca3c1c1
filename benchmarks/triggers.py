"""Measure the latency from record in to record out with four triggers.

Kafka → Kafka, stateless, one broker, one feed (500 records a second to 5 partitions), one driver
(`local[6]`, because continuous and real time occupy a core per partition). The arms take turns, and
the order changes with each round:

- micro-batch: as fast as possible;
- async progress: the same with async progress tracking at Spark's interval of 1 s;
- continuous: epochs of 1 s;
- real time: batches of 5 s.

First, every arm copies the same 2,000 records, and its output is compared with a batch over them:
no record must be missing or invented. Then latency is measured: each record contains the time at
which it was passed to the producer, and a consumer of the sink records when it receives the record,
by the same clock. The first seconds of a turn are not measured. `ratio` is micro-batch p50 /
real-time p50. The last line is JSON.
"""

import argparse
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from benchmarks._measuring import (
    fed,
    kafka_broker,
    kill_session,
    report,
    spark_session,
    workplace,
)
from tests.conftest_kafka import KafkaBroker

TAKES = "4 minutes"
NEEDS_KAFKA = True

PARTITIONS = 5
RATE = 500  # records a second
CHECKED = 2000  # records that each arm copies before anything is measured
WARM_UP_S = 3.0  # of a turn, after its first record has come out
LIMIT_S = 300.0  # generous: the machine may be busy

ASYNC = {"asyncProgressTrackingEnabled": "true"}
#: Arm -> (trigger, output mode, options of the sink).
ARMS: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "micro-batch": ({"processingTime": "0 seconds"}, "append", {}),
    "async progress": ({"processingTime": "0 seconds"}, "append", ASYNC),
    "continuous": ({"continuous": "1 second"}, "append", {}),
    "real time": ({"realTime": "5 seconds"}, "update", {}),
}


def main() -> None:
    """Start the broker and the driver, check every arm, run the rounds, and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=8.0, help="measured in each turn")
    chosen = options.parse_args()
    with workplace("triggers") as folder, kafka_broker(folder) as broker:
        bench = Bench(broker, folder)
        try:
            bench.check()
            turns = bench.rounds(max(3, chosen.rounds), chosen.seconds)
        finally:
            kill_session(bench.spark)
    _report(turns)


class Bench:
    """One driver and one broker between which the arms take turns."""

    def __init__(self, broker: KafkaBroker, folder: Path) -> None:
        self._broker = broker
        self._folder = folder
        self._count = 0
        self.spark = spark_session(folder, cores=PARTITIONS + 1, kafka=True)

    def check(self) -> None:
        """Let each arm copy the same records; exit if an arm loses or invents any."""
        source = self._broker.topic("checked", partitions=PARTITIONS)
        self._broker.produce(source, ((f"key-{n % 50}", f"row-{n}") for n in range(CHECKED)))
        expected = Counter((one.key, one.value) for one in self._broker.read(source))
        for arm in ARMS:
            sink = self._broker.topic("copied", partitions=PARTITIONS)
            with self._running(arm, source, sink, "earliest"):
                found: Counter[Any] = Counter()
                end = time.monotonic() + LIMIT_S
                while expected - found:
                    if time.monotonic() > end:
                        raise SystemExit(f"{arm} lost {(expected - found).total()} records")
                    found = Counter((one.key, one.value) for one in self._broker.read(sink))
            if found.keys() - expected.keys():
                raise SystemExit(f"{arm} wrote records that had not been sent")
            print(f"checked: {arm} copied all {CHECKED} records", flush=True)

    def rounds(self, number: int, seconds: float) -> dict[str, list[list[float]]]:
        """Return each arm's latencies (ms) for each round."""
        source = self._broker.topic("in", partitions=PARTITIONS)
        turns: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
        feed = {"rate": RATE, "partitions": PARTITIONS, "linger_ms": 0}
        with fed(self._broker, source, value=lambda _: f"{time.time():.6f}", **feed):
            for count in range(number):
                order = list(ARMS)[count % len(ARMS) :] + list(ARMS)[: count % len(ARMS)]
                for arm in order:
                    turns[arm].append(self._turn(arm, source, seconds))
                said = ", ".join(
                    f"{arm} {statistics.median(turns[arm][-1]):.1f} ms" for arm in ARMS
                )
                print(f"round {count + 1}: p50 {said}", flush=True)
        return turns

    def _turn(self, arm: str, source: str, seconds: float) -> list[float]:
        sink = self._broker.topic("out", partitions=PARTITIONS)
        with Ear(self._broker, sink) as ear, self._running(arm, source, sink, "latest"):
            ear.wait_for_first()
            time.sleep(WARM_UP_S)
            ear.measure()
            time.sleep(seconds)
            latencies = ear.measured()
        if len(latencies) < RATE * seconds / 2:
            raise SystemExit(f"{arm} let only {len(latencies)} records through in {seconds} s")
        return latencies

    @contextmanager
    def _running(self, arm: str, source: str, sink: str, begin: str) -> Iterator[None]:
        trigger, mode, options = ARMS[arm]
        servers = self._broker.servers
        self._count += 1
        query = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
            .option("startingOffsets", begin)
            .load()
            .select("key", "value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", sink)
            .option("checkpointLocation", str(self._folder / f"checkpoint-{self._count}"))
            .options(**options)
            .outputMode(mode)
            .trigger(**trigger)
            .start()
        )
        try:
            yield
            if (error := query.exception()) is not None:
                raise SystemExit(f"{arm} failed: {str(error)[:500]}")
        finally:
            query.stop()


class Ear:
    """A consumer of a sink that records how old each record is when it arrives."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.servers,
                "log_level": 0,
                "group.id": f"ear-{topic}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.subscribe([topic])
        self._first = threading.Event()
        self._over = threading.Event()
        self._guard = threading.Lock()
        self._found: list[float] = []
        self._since = float("inf")  # records sent before are not measured
        self._thread = threading.Thread(target=self._listen, name="ear")

    def __enter__(self) -> "Ear":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def wait_for_first(self) -> None:
        """Wait until a record has been written to the sink."""
        if not self._first.wait(LIMIT_S):
            raise SystemExit("a running query did not write any record")

    def measure(self) -> None:
        """Start measuring records that are sent from now on."""
        with self._guard:
            self._since = time.time()

    def measured(self) -> list[float]:
        """Return the latencies in ms since `measure`."""
        with self._guard:
            return list(self._found)

    def _listen(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, timeout=0.02):
                if message.error() is not None:
                    continue
                sent, now = float(message.value() or 0), time.time()
                self._first.set()
                with self._guard:
                    if sent >= self._since:
                        self._found.append((now - sent) * 1000)


def _report(turns: dict[str, list[list[float]]]) -> None:
    """Print each arm's p50 and p95, then the JSON line."""
    arms: dict[str, dict[str, Any]] = {}
    for arm, rounds in turns.items():
        every = sorted(latency for one in rounds for latency in one)
        medians = [statistics.median(one) for one in rounds]
        arms[arm] = {
            "p50_ms": round(statistics.median(every), 1),
            "p95_ms": round(every[int(len(every) * 0.95)], 1),
            "p50_of_rounds_ms": [round(min(medians), 1), round(max(medians), 1)],
            "records": len(every),
        }
        print(f"{arm}: p50 {arms[arm]['p50_ms']} ms, p95 {arms[arm]['p95_ms']} ms")
    ours, baseline = arms["real time"]["p50_ms"], arms["micro-batch"]["p50_ms"]
    report(
        "triggers",
        ours=ours,
        baseline=baseline,
        ratio=round(baseline / ours, 1),
        unit="ms from record in to record out, p50",
        rounds=len(turns["real time"]),
        arms=arms,
    )


if __name__ == "__main__":
    main()
