"""A stateful Kafka query moves from Spark to Spark and back, killed each time; nothing is lost."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queries.checkpoints.logs import CheckpointLogs
from queries.domain.sparks import (
    KEY_ORDER,
    MERGE,
    OURS,
    SPARKS,
    Spark,
    command,
    is_older,
    pinned_by,
)
from queries.models.drivers import Driver, Run
from queries.models.history import Operation
from queries.roles import AuthorRights
from queries.selectors.definitions.definitions import ready_connectors
from queries.selectors.definitions.sparks import spark_rows, written_of
from queries.selectors.spark_folders import installed_sparks
from queries.services.definitions.catalog import revise_application
from queries.services.probes.preflight import begin_spark_trials, with_spark
from queries.services.supervision.application_operations import request_application_restart
from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.kafka.world import World

pytestmark = [
    *(pytest.mark.kafka, pytest.mark.spark, pytest.mark.redis, pytest.mark.faults),
    pytest.mark.django_db(transaction=True),
]

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SUMS = (
    "SELECT key, concat(CAST(count(*) AS STRING), ':', CAST(sum(n) AS STRING)) AS value FROM "
    "(SELECT CAST(key AS STRING) AS key, CAST(CAST(value AS STRING) AS INT) AS n FROM records) "
    "GROUP BY key"
)


class Story:
    """One query that counts and sums by key into a topic, and what it must have written."""

    def __init__(self, world: World, broker: KafkaBroker, first: Spark) -> None:
        self.world, self.broker = world, broker
        self.source, self.out = broker.topic("in", partitions=2), broker.topic("out")
        self.produced: list[tuple[str, int]] = []
        revision = world.application.revisions.get()
        revision.spec |= {"spark": first, "policy": {"base_delay_s": 1}}
        revision.save()
        sink = {
            "format": "kafka",
            "options": {"kafka.bootstrap.servers": broker.servers, "topic": self.out},
            "output_mode": "update",
        }
        conf = {"spark.sql.streaming.stateStore.providerClass": ROCKS}
        self.query = world.query(
            "sums", broker.servers, self.source, sql=SUMS, sink=sink, conf=conf
        )

    def produce(self, count: int = 60) -> None:
        first = len(self.produced)
        made = [("abc"[n % 3], n) for n in range(first, first + count)]
        self.broker.produce(self.source, [(key, str(n)) for key, n in made])
        self.produced += made

    def batch(self) -> dict[str, str]:
        """Compute the same as a batch, over everything that was produced."""
        counts, sums = Counter(key for key, _ in self.produced), Counter[str]()
        for key, n in self.produced:
            sums[key] += n
        return {key: f"{counts[key]}:{sums[key]}" for key in counts}

    def written(self) -> dict[str | None, str | None]:
        """Return the newest value of each key in the output."""
        return {one.key: one.value for one in self.broker.read(self.out)}

    def kill(self) -> None:
        """SIGKILL the driver and its JVM, in whatever they are doing."""
        driver = self._run().driver
        for pid in (driver.pid, driver.jvm_pid):
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

    def move(self, to: Spark) -> None:
        """Save another Spark, ask for the restart, and kill the driver inside a batch."""
        by: dict[str, Any] = {"actor": "aude", "now": timezone.now()}
        application = self.world.application
        spec = with_spark(application, to)
        revise_application(application=application, spec=spec, expected_revision=None, **by)
        self.produce()
        request_application_restart(application=application, **by)
        self.kill()

    def goes_on(self, spark: Spark) -> None:
        """Wait until a run on this Spark has written what the batch computes."""
        self.world.wait(
            lambda: self._run().driver.spark_version.startswith(f"{spark}."),
            f"a run on Spark {spark}",
        )
        self.produce()  # what was there before may have been committed just before the kill
        self.world.wait(
            lambda: self._run().first_commit_at is not None and self.written() == self.batch(),
            f"the output on Spark {spark} equals the batch",
        )
        found = written_of(self.query)
        assert found is not None
        assert found.back == ("4.1" if spark == "4.0" else spark), "both pin the same keys"
        assert spark == "3.5" or found.operators == ("stateStoreSave",), "3.5 does not store it"
        assert pinned_by(spark) <= found.conf.keys()

    def tried(self, to: Spark) -> dict[str, Any]:
        """Try another Spark on a copy, while the query runs; return what it reports."""
        by: dict[str, Any] = {"actor": "aude", "now": timezone.now(), "rights": AuthorRights.ALL}
        (asked,) = begin_spark_trials(application=self.world.application, spark=to, **by)
        done = self.world.wait(
            lambda: Operation.objects.filter(pk=asked.pk).exclude(outcome="").first(),
            f"the preflight with Spark {to}",
        )
        judged: dict[str, Any] = done.result.get("preflight") or {}
        assert judged.get("verdict") == "passed", (done.detail.text, judged)
        assert judged["tries"][0]["end"] == "passed"
        return dict(judged["spark"])

    def _run(self) -> Run:
        return Run.objects.select_related("driver").filter(query=self.query).latest("epoch")


@pytest.fixture
def sparks(settings: Any) -> list[Spark]:
    """The versions that can run here, oldest first; skip, with the commands, without another."""
    settings.SPARKS_DIR = Path(pieces.sparks_folder())
    there = [
        spark
        for spark in SPARKS
        if spark in installed_sparks() and "kafka" in ready_connectors(spark)
    ]
    if len(there) < 2:
        get = f'`{command("4.2")}` and `make connector ARGS="kafka --spark 4.2"`'
        pytest.skip(f"there is no other Spark with a Kafka connector; get one with {get}")
    return there


def test_a_stateful_query_moves_there_and_back(
    world: World, broker: KafkaBroker, sparks: list[Spark]
) -> None:
    story = Story(world, broker, sparks[0])
    story.produce()
    world.start("sums")
    world.wait(lambda: Run.objects.filter(query=story.query).exists(), "the first run")
    story.goes_on(sparks[0])
    told = story.tried(OURS)
    assert (told["from"], told["to"], told["no_way_back"]) == (sparks[0], OURS, "")
    assert [KEY_ORDER, "false"] in told["added"], "it goes on as the older version behaves"
    for spark in (*sparks[1:], sparks[-2]):
        story.move(spark)
        story.goes_on(spark)
    (row,) = spark_rows(world.application, OURS)
    assert row.told is not None
    assert not row.told["refused"]
    conf = CheckpointLogs.at(story.query.checkpoints.get().location)
    newest = conf.offsets(max(conf.begun()))
    assert newest is not None
    assert newest.conf.get(MERGE, "1") == ("1" if is_older(sparks[0], "4.2") else "2")
    assert KEY_ORDER not in newest.conf, "Spark before 4.3 does not keep what it does not know"
    assert Driver.objects.filter(state="LIVE").count() == 1
