"""What Spark's stages tell: how long each waited, and for whom."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listeners.spark.task_times import Stage, waited

REPOSITORY = Path(__file__).resolve().parents[3]

LIGHT = Stage("light", submitted=1_000, first_task=1_400, ended=1_500, task_ms=100)


def test_a_stage_that_begins_at_once_waits_for_nobody() -> None:
    assert waited(Stage("light", 1_000, 1_000, 1_100, 100), [LIGHT]) == (0, {})
    assert waited(Stage("light", 1_000, None, None, 0), [LIGHT]) == (0, {})


def test_a_wait_while_nobody_ran_is_nobodys() -> None:
    before = Stage("heavy", 0, 0, 1_000, 1_000)
    own = Stage("light", 900, 900, 1_300, 400)
    unborn = Stage("heavy", 900, None, None, 0)
    assert waited(LIGHT, [before, own, unborn, LIGHT]) == (400, {})


def test_a_wait_is_divided_by_the_task_time_of_each() -> None:
    two_cores = Stage("heavy", 0, 0, 4_000, 8_000)
    half = Stage("other", 1_000, 1_200, 2_200, 1_000)
    assert waited(LIGHT, [two_cores, half]) == (400, {"heavy": 320, "other": 80})


def test_a_stage_that_still_runs_counts_too() -> None:
    assert waited(LIGHT, [Stage("heavy", 0, 500, None, 0)]) == (400, {"heavy": 400})


_stages = st.builds(
    Stage,
    group=st.sampled_from("abc"),
    submitted=st.integers(0, 1_000),
    first_task=st.none() | st.integers(0, 1_000),
    ended=st.none() | st.integers(0, 2_000),
    task_ms=st.integers(0, 5_000),
)


@given(_stages, st.lists(_stages, max_size=6))
def test_what_is_divided_is_never_more_than_the_wait(stage: Stage, others: list[Stage]) -> None:
    wait, shares = waited(stage, others)
    assert wait >= 0
    assert sum(shares.values()) <= wait + len(shares)
    assert stage.group not in shares


STORY = """
import json, os, sys, time
from pyspark.sql import SparkSession, functions as F
from listeners.spark import task_times
from listeners.spark.sorter import RunKnown

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
