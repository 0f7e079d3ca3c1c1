"""A job of plain Spark 3.5 moves in with its checkpoint, is killed, upgraded and taken back.

The script copies a topic to a Delta table, is never changed, and is controlled over REST only.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from queries.domain.sparks import Spark
from queries.models.applications import Application
from queries.models.drivers import Run
from tests import pieces
from tests.api.conftest import client_of
from tests.conftest_kafka import KafkaBroker
from tests.kafka.world import World
from tests.spark.driver_under_test import wait_for

pytestmark = [
    *(pytest.mark.kafka, pytest.mark.spark, pytest.mark.redis, pytest.mark.faults),
    *(pytest.mark.django_db(transaction=True), pytest.mark.timeout(1500)),
]

JOB = Path(__file__).parents[1] / "jobs" / "topic_to_table.py"
CONNECTORS = ("kafka", "delta")
OLD: Spark = "3.5"
NEW: Spark = "4.2"
BATCH = 20  # records in each, as the script has it


class Story:
    """The topic, the table, and the application that runs the script."""

    def __init__(self, world: World, broker: KafkaBroker, rest: APIClient) -> None:
        self.world, self.broker, self.rest = world, broker, rest
        self.topic = broker.topic("in", partitions=1)
        self.table, self.checkpoint = world.home / "table", world.home / "checkpoint"
        self.arguments = [broker.servers, self.topic, str(self.table), f"file://{self.checkpoint}"]
        self.produced: list[tuple[str, int]] = []

    def produce(self, batches: int = 2) -> None:
        first = len(self.produced)
        made = [("abc"[n % 3], n) for n in range(first, first + batches * BATCH)]
        self.broker.produce(self.topic, [(key, str(n)) for key, n in made])
        self.produced += made

    def batch(self) -> list[tuple[str, int]]:
        """Compute what the table must have, from everything in the topic."""
        return sorted(
            ((one.key or "", int(one.value or "")) for one in self.broker.read(self.topic)),
            key=lambda row: row[1],
        )

    def written(self) -> list[tuple[str, int]]:
        """Return the rows of the table's newest version, duplicates included."""
        files: dict[str, None] = {}
        for commit in sorted((self.table / "_delta_log").glob("*.json")):
            for action in map(json.loads, commit.read_text().splitlines()):
                if "add" in action:
                    files[action["add"]["path"]] = None
                if "remove" in action:
                    files.pop(action["remove"]["path"])
        found = [row for file in files for row in parquet.read_table(self.table / file).to_pylist()]
        return sorted(((row["key"], row["n"]) for row in found), key=lambda row: row[1])

    def submit(self) -> None:
        """Run the job with plain spark-submit, and kill it once it has written two batches."""
        spark = pieces.spark_folder(OLD)
        [options] = JOB.read_text().split('"""')[1].split("spark-submit ")[1:]
        words = shlex.split(options.replace("\\\n", " "))
        jars = ",".join(jar for name in CONNECTORS for jar in pieces.connector_jars(name, OLD))
        at = words.index("--packages")
        words = [*words[:at], "--jars", jars, *words[at + 2 : -5], str(JOB), *self.arguments]
        job = subprocess.Popen(
            [f"{spark}/pyspark/bin/spark-submit", *words],
            env={
                **os.environ,
                "JAVA_HOME": str(pieces.java().home),
                "PYTHONPATH": spark,
                "SPARK_HOME": f"{spark}/pyspark",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            cwd=self.world.home,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            committed = self.checkpoint / "commits" / "1"
            wait_for(committed.exists, "plain Spark has written two batches", 240)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()

    def call(self, method: str, address: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request as an author, and return the answer."""
        answer = getattr(self.rest, method)(f"/api/v1/{address}", body or {}, format="json")
        assert answer.status_code < 300, answer.json()
        return answer.json()

    def done(self, operation: dict[str, Any]) -> None:
        """Wait for the end of an operation."""

        def outcome() -> dict[str, Any] | None:
            found: dict[str, Any] = self.call("get", f"operations/{operation['id']}/")
            return found if found["outcome"] else None

        ended = self.world.wait(outcome, f"operation {operation['verb']}")
        assert ended["outcome"] == "DONE", ended

    def goes_on(self, spark: Spark) -> Run:
        """Wait for a run on a Spark that has the table equal to the batch; return it."""
        runs = Run.objects.select_related("driver").filter(query__application__name="ingest")
        run = self.world.wait(
            lambda: runs.filter(
                driver__spark_version__startswith=f"{spark}.",
                ended_at=None,
                query__phase="RUNNING",
            ).first(),
            f"a run on Spark {spark}",
        )
        self.produce()
        self.world.wait(lambda: self.written() == self.batch(), f"the table's rows on {spark}")
        return run

    def kill(self, run: Run) -> None:
        """SIGKILL the driver and its JVM."""
        for pid in (run.driver.pid, run.driver.jvm_pid):
            assert pid is not None
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def story(world: World, broker: KafkaBroker, author: User, settings: Any) -> Story:
    for spark in (OLD, NEW):
        for name in CONNECTORS:
            if missing := pieces.missing_connector(name, spark):
                pytest.skip(missing)
    settings.SPARKS_DIR = pieces.sparks_folder()
    settings.CODE_ROOTS = [JOB.parent]
    return Story(world, broker, client_of(author))


def test_no_row_is_lost_or_written_twice(story: Story) -> None:
    story.produce(4)
    story.submit()

    spec = {
        "kind": "script",
        "spark": OLD,
        "master": "local[2]",
        "memory": "1g",
        "connectors": [*CONNECTORS],
        "python_path": [str(JOB.parent)],
        "script": {"file": str(JOB), "arguments": story.arguments},
        "policy": {"base_delay_s": 1},
    }
    story.call("post", "applications/", {"name": "ingest", "spec": spec})
    story.world.application = Application.objects.get(name="ingest")
    story.call("post", "applications/ingest/start/")
    story.kill(story.goes_on(OLD))
    story.produce()
    story.goes_on(OLD)

    story.done(story.call("post", "queries/ingest~rows/snapshots/", {"reason": "before 4.2"}))
    [snapshot] = story.call("get", "queries/ingest~rows/snapshots/")["results"]
    story.call("patch", "applications/ingest/", {"spec": {"spark": NEW}})
    story.call("post", "applications/ingest/restart/")
    story.goes_on(NEW)

    story.call("patch", "applications/ingest/", {"spec": {"spark": OLD}})
    story.done(story.call("post", "queries/ingest~rows/rewind/", {"batch": snapshot["batch"]}))
    story.goes_on(OLD)
    assert sorted(story.produced, key=lambda row: row[1]) == story.written()
