"""Health beside what is known, with a real driver: open transactions, a hang, somebody else."""

import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Producer
from django.utils import timezone

from queries.domain.states import Phase, Verdict
from queries.domain.supervision.health import verdicts as judged
from queries.domain.supervision.health.verdicts import Health
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Checkpoint
from queries.selectors.query_lines import query_line
from queries.services.checkpoints.batch_repair import look_for_foreign_batches
from tests.conftest_kafka import KafkaBroker
from tests.kafka.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.redis, pytest.mark.django_db]

RATE = [
    {
        "name": "numbers",
        "format": "rate",
        "options": {"rowsPerSecond": "5", "numPartitions": "1"},
    }
]

#: What somebody runs who knows nothing of Headgate: three batches on a checkpoint that is there.
PLAIN_PYSPARK = """
import sys
import time
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", "5").load().select("value")
query = (
    rows.writeStream.format("noop")
    .option("checkpointLocation", sys.argv[1])
    .trigger(processingTime="500 milliseconds")
    .start()
)
until = time.monotonic() + 240
while len(query.recentProgress) < 3 and time.monotonic() < until and query.isActive:
    time.sleep(0.2)
query.stop()
"""


def health(name: str) -> Health | None:
    return query_line(name, now=timezone.now()).health


def _says(name: str, verdict: Verdict) -> Health | None:
    found = health(name)
    return found if found is not None and found.verdict is verdict else None


def test_what_an_open_transaction_holds_back_is_named(world: World, broker: KafkaBroker) -> None:
    topic = broker.topic("transactional")
    broker.produce(topic, [("k", str(n)) for n in range(50)])
    world.query(
        "counts", broker.servers, topic, options={"kafka.isolation.level": "read_committed"}
    )
    world.start("counts")
    world.wait(lambda: _says("counts", Verdict.IDLE), "all is read")
    producer = Producer(
        {"bootstrap.servers": broker.servers, "log_level": 0, "transactional.id": topic}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(2050):
        producer.produce(topic, str(number).encode())
    assert producer.flush(60) == 0
    found = world.wait(lambda: _says("counts", Verdict.WAITING), "it waits")
    assert found.reason == "2,050 offsets are waiting for an open transaction."
    lag = query_line("counts", now=timezone.now()).lag
    assert lag is not None
    assert (lag.records, lag.waiting, lag.unit) == (2050, 2050, "offsets")
    producer.commit_transaction(60)
    world.wait(lambda: _says("counts", Verdict.IDLE), "all is read again")
    assert SourceLag.objects.get().committed == 2101  # with the transaction's own mark


def test_a_hang_in_the_first_batch_is_seen_and_so_is_plain_pyspark(
    world: World, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "STALL_FLOOR_S", 8.0)
    topic = broker.topic("hang")
    broker.produce(topic, [("k", "1")])
    hang = "SELECT reflect('java.lang.Thread', 'sleep', 3600000L) AS slept FROM records"
    world.query("hangs", broker.servers, topic, sql=hang)
    world.query("ticks", broker.servers, "-", sources=RATE, sql="SELECT value FROM numbers")
    world.start("hangs")
    world.start("ticks")
    found = world.wait(lambda: _says("hangs", Verdict.STALLED), "the hang is seen")
    assert world.row("hangs").phase == Phase.STARTING
    assert "Its driver still sends heartbeats." in found.reason

    world.wait(lambda: world.row("ticks").phase == Phase.RUNNING, "its neighbour runs")
    world.stop("ticks")
    world.wait(lambda: timezone.now() > _ended(world) + judged.CLOCKS, "a moment later")
    assert look_for_foreign_batches(now=timezone.now()) == 0
    place = Checkpoint.objects.get(query__name="ticks").location
    subprocess.run([sys.executable, "-c", PLAIN_PYSPARK, place], check=True, timeout=280)
    assert look_for_foreign_batches(now=timezone.now()) == 1
    seen = query_line("ticks", now=timezone.now()).foreign_batches
    assert seen is not None
    assert seen.at > _ended(world)
    assert query_line("hangs", now=timezone.now()).foreign_batches is None


def _ended(world: World) -> Any:
    return world.row("ticks").runs.latest("epoch").ended_at
