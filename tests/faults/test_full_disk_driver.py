"""The disk of HEADGATE_HOME is full, the checkpoints' is not: queries go on committing batches.

The whole system and a real driver. The data folder is a small file system of its own, which only
root may mount; the checkpoints lie beside it.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.shared import code_of, data_of
from tests.faults.small_disks import fill, free, is_full
from tests.faults.system import System
from tests.faults.test_whole_system import missing

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(1200)]

BATCHES = 6  # committed on a full disk, of each query

# A worker process of Spark's for each row, and more words than the disk takes.
CODE = """
from pyspark.sql.functions import udf


@udf("long")
def next_one(value):
    return value + 1


def write(batch, number):
    print("x" * 100_000)
    batch.write.format("noop").mode("append").save()


def define(spark, params):
    rows = spark.readStream.format("rate").option("rowsPerSecond", "5").load()
    return rows.select(next_one("value")).writeStream.foreachBatch(write)
"""
TRIGGER = {"kind": "processing_time", "interval": "500 milliseconds"}
RATE = {"name": "numbers", "format": "rate", "options": {"rowsPerSecond": "5"}}
QUERIES: dict[str, dict[str, Any]] = {
    "loud": {"kind": "python", "function": "loud:define", "trigger": TRIGGER},
    "quiet": {
        "kind": "sql",
        "sources": [RATE],
        "sql": "SELECT value FROM numbers",
        "sink": {"format": "noop"},
        "trigger": TRIGGER,
    },
    # Its shuffle files lie in the driver's folder.
    "shuffles": {
        "kind": "sql",
        "sources": [RATE],
        "sql": "SELECT value % 3 AS third, count(*) AS rows FROM numbers GROUP BY 1",
        "sink": {"format": "noop", "output_mode": "complete"},
        "trigger": TRIGGER,
    },
}
STATELESS = ("loud", "quiet")


@pytest.fixture
def system(roomy_system: System) -> System:
    """Return the system on a small disk, with the code that its drivers run."""
    (code_of(roomy_system) / "loud.py").write_text(CODE)
    return roomy_system


def define(system: System, path: str, body: dict[str, Any]) -> None:
    status, answer = system.call("POST", path, body)
    assert status == 201, answer


def committed(checkpoints: Path, name: str) -> int:
    """Return the newest batch that a checkpoint has, -1 for none: Spark's own word."""
    folder = checkpoints / name / "commits"
    return max((int(one.name) for one in folder.glob("*") if one.name.isdigit()), default=-1)


@pytest.mark.guarantee("G-DISK-1")
def test_batches_are_committed_on_a_full_disk_and_their_events_come_afterwards(
    system: System, small_disk: Path
) -> None:
    disk, checkpoints = small_disk, data_of(system) / "checkpoints"
    spec = {
        "memory": "512m",
        "python_path": [system.environment["HEADGATE_CODE_ROOTS"]],
        "policy": {"base_delay_s": 1},
    }
    define(system, "applications/", {"name": "flights", "spec": spec})
    for name, query in QUERIES.items():
        place = f"file://{checkpoints / name}"
        body = {"name": name, "application": "flights", "spec": query, "checkpoint": place}
        define(system, "queries/", body)
    # Within walls a driver is given the checkpoints that are known when it starts.
    for name in QUERIES:
        system.verb(name, "start")
    before = {name: system.running(name)["current_run"] for name in QUERIES}

    fill(disk)
    assert is_full(disk)
    begun = {name: committed(checkpoints, name) for name in QUERIES}

    def goes_on() -> bool:
        fill(disk)  # what others give up
        return all(committed(checkpoints, name) >= begun[name] + BATCHES for name in STATELESS)

    system.wait("batches on a full disk", goes_on)
    last = {name: committed(checkpoints, name) for name in QUERIES}

    free(disk)
    for name in STATELESS:
        system.wait(f"the events of {name}", partial(told, system, name, last[name]))
        body = system.wait(f"{name} is well", partial(well, system, name))
        assert body["current_run"]["id"] == before[name]["id"]
        assert missing(system.batches(name)) == []
        assert body["dropped_events"]["outbox"] == 0
    # What needs room in the driver's folder has failed, and comes back by itself.
    system.wait("shuffles go on", lambda: committed(checkpoints, "shuffles") > last["shuffles"])
    system.wait("shuffles is well", partial(well, system, "shuffles"))
    assert {name: system.running(name)["current_run"]["pid"] for name in QUERIES} == {
        name: run["pid"] for name, run in before.items()
    }
    causes = [one["root_cause"] for one in system.get("queries/shuffles/failures/")["results"]]
    assert all("No space left on device" in cause for cause in causes), causes


def told(system: System, name: str, batch: int) -> bool:
    return system.batch(name) >= batch


def well(system: System, name: str) -> Any:
    """Return a query's body where it runs and its health is known and no trouble."""
    body = system.query(name)
    if body["phase"] != "RUNNING" or body["health"] is None:
        return None
    trouble = body["health"]["verdict"] in ("QUERY_MISSING", "NO_TELEMETRY", "STALLED", "WAITING")
    return None if trouble else body
