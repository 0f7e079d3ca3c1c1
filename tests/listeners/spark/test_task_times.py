"""What Spark's stages tell: how long each waited, and for whom."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError

from headgate_ground.wire import EventKind, QueryPulse, WireEvent
from listeners.spark.heartbeat import ThreadDumps
from listeners.spark.slow_batches import SlowBatches, timing_ms
from listeners.spark.sorter import RunKnown
from listeners.spark.task_times import StageTimes, TaskTimes, waited
from queries.domain.triggers.slow_batches import BatchCause, diagnose, evidence_of

REPOSITORY = Path(__file__).resolve().parents[3]

LIGHT = StageTimes("light", submitted=1_000, first_task=1_400, ended=1_500, task_ms=100)


def test_a_stage_that_begins_at_once_waits_for_nobody() -> None:
    assert waited(StageTimes("light", 1_000, 1_000, 1_100, 100), [LIGHT]) == (0, {})
    assert waited(StageTimes("light", 1_000, None, None, 0), [LIGHT]) == (0, {})


def test_a_wait_while_nobody_ran_is_nobodys() -> None:
    before = StageTimes("heavy", 0, 0, 1_000, 1_000)
    own = StageTimes("light", 900, 900, 1_300, 400)
    unborn = StageTimes("heavy", 900, None, None, 0)
    assert waited(LIGHT, [before, own, unborn, LIGHT]) == (400, {})


def test_a_wait_is_divided_by_the_task_time_of_each() -> None:
    two_cores = StageTimes("heavy", 0, 0, 4_000, 8_000)
    half = StageTimes("other", 1_000, 1_200, 2_200, 1_000)
    assert waited(LIGHT, [two_cores, half]) == (400, {"heavy": 320, "other": 80})


def test_a_stage_that_still_runs_counts_too() -> None:
    assert waited(LIGHT, [StageTimes("heavy", 0, 500, None, 0)]) == (400, {"heavy": 400})


_stages = st.builds(
    StageTimes,
    group=st.sampled_from("abc"),
    submitted=st.integers(0, 1_000),
    first_task=st.none() | st.integers(0, 1_000),
    ended=st.none() | st.integers(0, 2_000),
    task_ms=st.integers(0, 5_000),
)


@given(_stages, st.lists(_stages, max_size=6))
def test_what_is_divided_is_never_more_than_the_wait(
    stage: StageTimes, others: list[StageTimes]
) -> None:
    wait, shares = waited(stage, others)
    assert wait >= 0
    assert sum(shares.values()) <= wait + len(shares)
    assert stage.group not in shares


def batch(number: int, took: int, run: int = 5) -> WireEvent:
    """Return the event of a batch that took so many ms."""
    body = {"batchId": number, "batchDuration": took}
    return WireEvent(1, 1, 1, "", EventKind.PROGRESS, 42, run, batch=number, body=body)


class Explained(SlowBatches):
    """Slow batches whose evidence is not read from Spark."""

    def __init__(self) -> None:
        spark = SimpleNamespace(sparkContext=None)
        super().__init__(spark, TaskTimes(spark))

    def evidence(self, progress: dict[str, Any]) -> dict[str, Any]:
        """Return no stages; fail as Spark might for batch 99."""
        if progress["batchId"] == 99:
            raise Py4JError("gone")
        return {"stages": []}


def test_only_the_slowest_batch_of_a_while_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Explained()
    for number, took in enumerate((999, 4_000, 9_000, 5_000)):
        found.note(batch(number, took))
    slow = found.look()
    assert slow is not None
    assert (slow.query, slow.run) == (42, 5)
    assert slow.body == {"batch": 2, "took_ms": 9_000, "median_ms": None, "stages": []}
    found.note(batch(4, 60_000, run=6))
    assert found.look() is None  # one in ten seconds
    monkeypatch.setattr("listeners.spark.slow_batches.EVERY_S", 0)
    assert found.look() is not None
    assert found.look() is None


def test_a_batch_is_slow_against_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("listeners.spark.slow_batches.EVERY_S", 0)
    found = Explained()
    for number in range(6):
        found.note(batch(number, 2_000))
    assert found.look() is not None  # the first of its run that took a second
    found.note(batch(6, 3_999))
    assert found.look() is None
    found.note(batch(7, 4_000))
    slow = found.look()
    assert slow is not None
    assert slow.body["median_ms"] == 2_000


def test_stages_that_cannot_be_read_cost_only_the_evidence() -> None:
    found = Explained()
    found.note(batch(99, 5_000))
    assert found.look() is None


def test_sparks_timings_are_read() -> None:
    assert timing_ms("12 ms") == 12
    assert timing_ms("total (min, med, max (stageId: taskId))\n3.2 s (1.0 s, 1.1 s)") == 3_200
    assert timing_ms("") == 0


class Dumping(ThreadDumps):
    """Thread dumps that are not taken from a JVM."""

    def dump(self) -> dict[str, str]:
        """Return a dump."""
        return {"threads": "main", "heap": ""}


def hanging(*, active: bool = True) -> RunKnown:
    """Return a run whose trigger is active or not."""
    status = SimpleNamespace(isTriggerActive=lambda: active)
    return RunKnown(42, 5, "spark-run", SimpleNamespace(status=lambda: status))


def test_a_query_that_hangs_is_dumped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("listeners.spark.heartbeat.monotonic", lambda: clock[0])
    dumps = Dumping(SimpleNamespace(sparkContext=None))
    dumps.note(batch(1, 100))
    clock[0] += 59
    assert dumps.look([hanging()], ()) is None
    clock[0] += 1
    assert dumps.look([hanging(active=False)], ()) is None  # it waits for its next trigger
    found = dumps.look([hanging()], ())
    assert found is not None
    assert (found.query, found.run) == (42, 5)
    assert found.body == {"quiet_s": 60, "threads": "main", "heap": ""}
    clock[0] += 599
    assert dumps.look([hanging()], ()) is None
    clock[0] += 1
    assert dumps.look([hanging()], (QueryPulse(5, True, "10:00"),)) is None  # a task has ended
    clock[0] += 60
    assert dumps.look([hanging()], (QueryPulse(5, True, "10:00"),)) is not None


def test_a_query_that_waits_for_its_trigger_hides_no_other_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("listeners.spark.heartbeat.monotonic", lambda: clock[0])
    dumps = Dumping(SimpleNamespace(sparkContext=None))
    waiting = RunKnown(41, 4, "other-run", hanging(active=False).jquery)
    gone = RunKnown(40, 3, "gone", None)
    assert dumps.look([waiting, gone, hanging()], ()) is None
    clock[0] += 60
    found = dumps.look([waiting, gone, hanging()], ())
    assert found is not None
    assert found.run == 5


def test_a_run_has_few_dumps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("listeners.spark.heartbeat.monotonic", lambda: clock[0])
    dumps = Dumping(SimpleNamespace(sparkContext=None))
    found = []
    for _ in range(6):
        found.append(dumps.look([hanging()], ()))
        clock[0] += 600
    assert [one is not None for one in found] == [False, True, True, True, False, False]


def test_a_requested_dump_is_taken_once_from_a_query_that_does_not_hang() -> None:
    dumps = Dumping(SimpleNamespace(sparkContext=None))
    assert dumps.look([hanging(active=False)], ()) is None
    dumps.request(5, "10:00")
    found = dumps.look([hanging(active=False)], ())
    assert found is not None
    assert found.body == {"quiet_s": 0, "asked": "10:00", "threads": "main", "heap": ""}
    dumps.request(5, "10:00")  # the assignment is read every second
    assert dumps.look([hanging(active=False)], ()) is None
    dumps.request(5, "10:05")
    assert dumps.look([hanging(active=False)], ()) is not None


STORY = """
import json, os, sys, time
from pyspark.sql import SparkSession, functions as F
from listeners.spark import slow_batches, task_times
from headgate_ground.wire import EventKind, WireEvent
from listeners.spark.sorter import RunKnown
from listeners.spark.heartbeat import ThreadDumps

folder = sys.argv[1]
task_times.LOOK_EVERY_S = 1.0
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.local.dir", folder + "/tmp")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)

def query(name, partitions, column):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", partitions)
    rows = source.option("numPartitions", partitions).load().select(column)
    path = f"file://{folder}/{name}"
    writer = rows.writeStream.format("noop").option("checkpointLocation", path)
    return writer.trigger(processingTime="100 milliseconds").queryName(name).start()

@F.udf("int")
def slow(value):
    time.sleep(0.5)
    return 1

heavy = query("heavy", 8, slow("value"))
light = query("light", 1, F.col("value"))
runs = [RunKnown(n, n, str(q.runId), q._jsq) for n, q in ((1, heavy), (2, light))]
looks, told = task_times.TaskTimes(spark), {}
end = time.monotonic() + 150
while time.monotonic() < end:
    for one in looks.look(runs):
        told[one.run] = [one.task_ms, one.waited_ms, one.waited_for]
    if told.get(2, [0, 0, {}])[2].get("1", 0) > 2000 and told.get(1, [0])[0] > 8000:
        break
    time.sleep(0.2)
slow_batches.EVERY_S = 0
explain = slow_batches.SlowBatches(spark, looks)
seen = set()  # a stage ends before its batch does, so the first batch may still be running
while "evidence" not in told and time.monotonic() < end + 30:
    for progress in map(json.loads, (one.json for one in heavy.recentProgress)):
        batch = progress["batchId"]
        if batch in seen:
            continue
        seen.add(batch)
        explain.note(WireEvent(1, 1, 1, "", EventKind.PROGRESS, 1, 1, batch=batch, body=progress))
        if found := explain.look():
            told["evidence"] = [progress, found.body]
            break
    time.sleep(0.2)
told["dump"] = ThreadDumps(spark).dump()
sys.stdout.write(json.dumps(told) + "\\n")
sys.stdout.flush()
spark.sparkContext._gateway.proc.kill()
os._exit(0)
"""


@pytest.mark.spark
def test_a_light_query_waits_for_a_heavy_one(tmp_path: Path, java_home: str) -> None:
    (tmp_path / "story.py").write_text(STORY)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "story.py"), str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    heavy, light = told["1"], told["2"]
    assert heavy[0] > 10 * light[0]  # task time
    assert light[2]["1"] > 2000  # of its wait, that for the heavy one
    assert light[1] >= light[2]["1"]
    (stage, *_) = told["evidence"][1]["stages"]
    assert stage["longest_executor"] == "driver"
    assert stage["longest_host"]
    found = diagnose(evidence_of(*told["evidence"]))
    assert found.causes[0].cause is BatchCause.PYTHON
    assert "Python functions took" in found.says
    assert '"stream execution thread for' in told["dump"]["threads"]
    assert "java.lang.String" in told["dump"]["heap"]
