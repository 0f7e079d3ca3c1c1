"""Measure how much time async progress tracking saves per trigger, and how much a crash repeats.

Kafka → Kafka, stateless, as fast as possible, with its own broker and a continuous feed:

- trigger: one driver in which two arms take turns (the order changes with each round): without
  async progress tracking, and with it at Spark's default checkpoint interval of 1 s. A turn's
  figure is the median of its batches' `triggerExecution`; `ratio` is without / with.
- replay: a driver with a checkpoint interval of 2 s is killed with SIGKILL, JVM first, ten times,
  at random moments. Each time, the sink's own records show how far the driver had come, and the
  checkpoint's files show where the next start continues. The records in between are processed
  again: their rows are counted, and their time span is that of the source's records. The span must
  never exceed the interval plus one batch (the longest of that life, once it has caught up with the
  records that it missed while it was dead); the next life must begin exactly at the position in the
  files; and at the end, no source record must be missing.

The last line is JSON.
"""

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks._measuring import (
    fed,
    kafka_broker,
    kill_session,
    ratios,
    report,
    spark_session,
    spread,
    workplace,
)
from listeners.spark.sorter import recent_executed
from queries.checkpoints.logs import CheckpointLogs
from queries.domain.checkpoints.logs import records_between, resumed_after
from queries.domain.triggers.async_progress import ENABLED, INTERVAL
from tests.conftest_kafka import KafkaBroker

TAKES = "8 minutes"
NEEDS_KAFKA = True

ROOT = Path(__file__).resolve().parent.parent
PARTITIONS = 2
RATE = 1000  # records a second
LINGER_MS = 5  # of the feed's producer
INTERVAL_MS = 2000  # of the driver that is killed
LIMIT_S = 300.0  # generous: the machine may be busy
STEADY = 6  # batches in which a life catches up with what it missed while it was dead
SKIPPED = 3  # first batches of a turn: plans are made, producers opened
POLL_S = 0.25


def main() -> None:
    """Run both parts against one broker and print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=8.0, help="length of one turn")
    options.add_argument("--kills", type=int, default=10)
    options.add_argument("--seed", type=int, default=20260301)
    options.add_argument("--arms", help=argparse.SUPPRESS)
    options.add_argument("--life", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.arms:
        return arms(json.loads(chosen.arms))
    if chosen.life:
        return live(json.loads(chosen.life))
    with workplace("async_progress") as folder, kafka_broker(folder) as broker:
        source = broker.topic("in", partitions=PARTITIONS)
        with fed(broker, source, rate=RATE, partitions=PARTITIONS, value=str, linger_ms=LINGER_MS):
            turns = trigger(broker, source, folder, max(5, chosen.rounds), chosen.seconds)
            replays = replay(broker, source, folder, max(10, chosen.kills), chosen.seed)
            lost = replays.catch_up()
    _report(turns, replays, lost)
    return None


# --- what runs in a process of its own, with Spark ----------------------------------------


def start(spark: Any, asked: dict[str, Any]) -> Any:
    """Start the query: where a record came from and when it was written, to the sink."""
    servers = {"kafka.bootstrap.servers": asked["servers"]}
    rows = (
        spark.readStream.format("kafka")
        .options(subscribe=asked["source"], startingOffsets=asked["from"], **servers)
        .load()
        .selectExpr("concat_ws(':', partition, offset, unix_millis(timestamp)) AS value")
    )
    writer = rows.writeStream.format("kafka").options(topic=asked["sink"], **servers)
    if asked["interval"] is not None:
        writer = writer.options(**{ENABLED: "true", INTERVAL: str(asked["interval"])})
    return writer.option("checkpointLocation", asked["checkpoint"]).start()


def arms(asked: dict[str, Any]) -> None:
    """Let the arms take turns; print a line of JSON for each turn: {with, p50, batches}."""
    folder = Path(asked["folder"])
    spark = spark_session(folder, kafka=True)
    for turn in range(-2, asked["rounds"] * 2):  # the first of each arm warms the driver up
        with_async = bool((turn + turn // 2) % 2)
        mine = {**asked, "interval": 1000 if with_async else None, "from": "latest"}
        query = start(spark, {**mine, "checkpoint": str(folder / f"turn-{turn}")})
        time.sleep(asked["seconds"])  # a turn is a length of time, not an event
        jvm, jquery = spark.sparkContext._jvm, query._jsq
        batches = [
            int(one["durationMs"]["triggerExecution"]) for one in recent_executed(jvm, jquery)
        ]
        query.stop()
        told = {"with": with_async, "p50": statistics.median(batches[SKIPPED:] or batches or [0])}
        if turn >= 0:
            print(json.dumps({**told, "batches": len(batches)}), flush=True)
    kill_session(spark)


def live(asked: dict[str, Any]) -> None:
    """Run one life of the query that will be killed; append its reports to its folder."""
    folder = Path(asked["folder"])
    spark = spark_session(folder, kafka=True)
    jvm = spark.sparkContext._jvm
    print(json.dumps({"jvm": spark.sparkContext._gateway.proc.pid}), flush=True)
    query = start(spark, asked)
    seen: set[int] = set()
    with (folder / f"life-{asked['life']}.jsonl").open("a") as told:
        while query.isActive:
            for one in recent_executed(jvm, query._jsq):
                if one["batchId"] not in seen:
                    seen.add(one["batchId"])
                    told.write(json.dumps(one) + "\n")
                    told.flush()
            time.sleep(POLL_S)
    raise SystemExit(str(query.exception()))


# --- the trigger --------------------------------------------------------------------------


def trigger(
    broker: KafkaBroker, source: str, folder: Path, rounds: int, seconds: float
) -> dict[bool, list[float]]:
    """Return the median trigger duration (ms) of each turn, without (False) and with (True)."""
    asked = {
        "servers": broker.servers,
        "source": source,
        "sink": broker.topic("arms"),
        "folder": str(folder / "arms"),
        "rounds": rounds,
        "seconds": seconds,
    }
    process = _spawn("--arms", asked)
    turns: dict[bool, list[float]] = {False: [], True: []}
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        turns[told["with"]].append(float(told["p50"]))
        print(f"{'with' if told['with'] else 'without'}: {told['p50']:.0f} ms", flush=True)
    if process.wait(LIMIT_S) and len(turns[True]) < rounds:
        raise SystemExit("the driver of the two arms exited")
    return turns


def _spawn(mode: str, asked: dict[str, Any]) -> "subprocess.Popen[str]":
    Path(asked["folder"]).mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.async_progress", mode, json.dumps(asked)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=(Path(asked["folder"]) / "stderr.log").open("a"),
        text=True,
        start_new_session=True,
    )


# --- the replay ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replay:
    """The work that the next life had to repeat after one SIGKILL."""

    batches_kept: int | None  # the batch that the next life went on after
    rows: int
    seconds: float
    batch_s: float  # the longest batch of the life that was killed, the first apart


class Lives:
    """The lives of one query with one checkpoint, each ended by SIGKILL."""

    def __init__(self, broker: KafkaBroker, source: str, folder: Path) -> None:
        self.broker, self.source = broker, source
        self.folder = folder / "lives"
        self.sink = broker.topic("out")
        self.logs = CheckpointLogs(self.folder / "checkpoint")
        self.replays: list[Replay] = []
        self.done: dict[int, int] = {}  # source partition -> next offset, as the sink has it
        self.times: dict[tuple[int, int], int] = {}  # source record -> when it was written
        self._read = 0
        self._process: subprocess.Popen[str] | None = None
        self._jvm = 0

    def begin(self, life: int) -> None:
        """Start a driver and wait until it commits."""
        before = self.logs.last_commit()
        asked = {
            "servers": self.broker.servers,
            "source": self.source,
            "sink": self.sink,
            "folder": str(self.folder),
            "checkpoint": str(self.logs.root),
            "interval": INTERVAL_MS,
            "from": "latest",
            "life": life,
        }
        self._process = _spawn("--life", asked)
        assert self._process.stdout is not None
        self._jvm = int(json.loads(self._process.stdout.readline())["jvm"])
        self._until(lambda: self.logs.last_commit() not in (before, None), "the first commit")
        self._until(lambda: self._steady(life), "batches of what has just come")

    def kill(self) -> None:
        """SIGKILL the JVM and its Python, and wait until both are gone."""
        assert self._process is not None
        jvm = psutil.Process(self._jvm)
        jvm.send_signal(signal.SIGKILL)
        self._process.kill()
        self._process.wait(LIMIT_S)
        with_suppressed = psutil.wait_procs([jvm], timeout=LIMIT_S)
        assert not with_suppressed[1], "the JVM is still running after SIGKILL"

    def measure(self, life: int) -> Replay:
        """Compare the sink's records with the position in the checkpoint."""
        self.read_sink()
        kept = resumed_after(self.logs.begun(), self.logs.committed())
        offsets = self.logs.offsets(kept) if kept is not None else None
        begin = self._partitions(offsets.sources["0"]) if offsets else {}
        again = {place for place in self.times if place[1] >= begin.get(place[0], 0)}
        end = {str(partition): following for partition, following in self.done.items()}
        start = {str(partition): begin.get(partition, 0) for partition in self.done}
        rows = records_between({"s": start}, {"s": end})
        assert rows == len(again), (rows, len(again))
        written = [self.times[place] for place in again]
        seconds = (max(written) - min(written)) / 1000 if written else 0.0
        return Replay(kept, len(again), seconds, self._longest(life))

    def began_at(self, life: int) -> dict[int, int]:
        """Return the offsets at which a life began, as Spark reported with its first batch."""
        self._until(lambda: self._told(life), "the first report")
        return self._partitions(self._told(life)[0]["sources"][0]["startOffset"])

    def kept_at(self, replay: Replay) -> dict[int, int]:
        """Return the offsets at which a life must begin, according to the checkpoint's files."""
        assert replay.batches_kept is not None
        offsets = self.logs.offsets(replay.batches_kept)
        return self._partitions(offsets.sources["0"]) if offsets else {}

    def read_sink(self) -> None:
        """Read the sink's new records since the last call."""
        consumer = Consumer(
            {"bootstrap.servers": self.broker.servers, "group.id": "none", "log_level": 0,
             "enable.auto.commit": False}
        )  # fmt: skip
        end = self.broker.watermarks(self.sink)[0][1]
        consumer.assign([TopicPartition(self.sink, 0, self._read)])
        while self._read < end:
            for message in consumer.consume(5000, timeout=1):
                partition, offset, written = map(int, (message.value() or b"").split(b":"))
                self.times[partition, offset] = written
                self.done[partition] = max(self.done.get(partition, 0), offset + 1)
                self._read = (message.offset() or 0) + 1
        consumer.close()

    def catch_up(self) -> int:
        """Run a last life until all is read; return how many source records the sink lacks."""
        self.begin(len(self.replays))
        ends = {number: mark[1] for number, mark in self.broker.watermarks(self.source).items()}

        def all_done() -> bool:
            self.read_sink()
            return all(self.done.get(number, 0) >= end for number, end in ends.items())

        self._until(all_done, "the last record")
        self.kill()
        first = {number: min(o for p, o in self.times if p == number) for number in ends}
        return sum(
            (number, offset) not in self.times
            for number, end in ends.items()
            for offset in range(first[number], end)
        )

    def _partitions(self, offsets: dict[str, dict[str, int]]) -> dict[int, int]:
        return {int(number): offset for number, offset in offsets[self.source].items()}

    def _told(self, life: int) -> list[dict[str, Any]]:
        path = self.folder / f"life-{life}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def _steady(self, life: int) -> bool:
        """Return whether a life has caught up: its newest batch was not larger than usual."""
        told = self._told(life)
        if len(told) < STEADY:
            return False
        newest = told[-1]
        took_s = newest["durationMs"]["triggerExecution"] / 1000
        return bool(newest["numInputRows"] <= 2 * RATE * max(took_s, 0.5))

    def _longest(self, life: int) -> float:
        batches = [one["durationMs"]["triggerExecution"] for one in self._told(life)[STEADY - 1 :]]
        return float(max(batches)) / 1000

    def _until(self, condition: Any, what: str) -> None:
        limit = time.monotonic() + LIMIT_S
        while not condition():
            dead = self._process is not None and self._process.poll() is not None
            if dead or time.monotonic() > limit:
                said = (self.folder / "stderr.log").read_text()[-2000:]
                raise SystemExit(f"not seen in {LIMIT_S:.0f} s: {what}\n{said}")
            time.sleep(0.05)  # another process's files have no event to wait for


def replay(broker: KafkaBroker, source: str, folder: Path, kills: int, seed: int) -> Lives:
    """Kill the query repeatedly, measure each time, and check where the query continues."""
    lives, chance = Lives(broker, source, folder), random.Random(seed)
    for life in range(kills):
        lives.begin(life)
        if lives.replays:
            began, kept = lives.began_at(life), lives.kept_at(lives.replays[-1])
            assert began == kept, f"life {life} began at {began}, the files said {kept}"
        time.sleep(chance.uniform(2, 4) * INTERVAL_MS / 1000)  # a crash has no event
        lives.kill()
        found = lives.measure(life)
        lives.replays.append(found)
        most = INTERVAL_MS / 1000 + found.batch_s
        print(
            f"kill {life + 1}: {found.rows:,} rows again, {found.seconds:.2f} s "
            f"(at most {most:.2f})",
            flush=True,
        )
        assert found.seconds <= most, "a crash replayed more than the interval and one batch"
    return lives


# --- figures ------------------------------------------------------------------------------


def _report(turns: dict[bool, list[float]], lives: Lives, lost: int) -> None:
    """Print medians with their spread, and the JSON line for comparisons."""
    times = ratios(turns[False], turns[True])
    seconds = [one.seconds for one in lives.replays]
    shares = [one.seconds / (INTERVAL_MS / 1000 + one.batch_s) for one in lives.replays]
    print(f"trigger p50 without {spread(turns[False])} ms, with {spread(turns[True])} ms")
    print(f"ratio of each pair {spread(times, '.2f')}")
    said = spread(seconds, ".2f")
    print(f"replay {said} s at an interval of {INTERVAL_MS / 1000:g} s; {lost} lost")
    report(
        "async_progress",
        ours=round(statistics.median(turns[True]), 1),
        baseline=round(statistics.median(turns[False]), 1),
        ratio=round(statistics.median(times), 2),
        kills=len(lives.replays),
        interval_s=INTERVAL_MS / 1000,
        replay_s=round(statistics.median(seconds), 2),
        replay_s_most=round(max(seconds), 2),
        replay_of_allowed_most=round(max(shares), 2),
        lost=lost,
    )


if __name__ == "__main__":
    main()
