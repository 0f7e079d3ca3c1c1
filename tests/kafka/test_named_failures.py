"""What Kafka and Spark refuse is named as what it is, in one driver."""

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from queries.domain.failures.categories import Category
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Failure
from tests.conftest_kafka import KafkaBroker
from tests.kafka.world import World

PARTIAL = """
from pyspark.sql import functions as F


def build(spark, params):
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    counts = ticks.groupBy((F.col("value") % 50).alias("k")).count()

    def part(batch, number):
        batch.limit(1).collect()

    return counts.writeStream.outputMode("update").foreachBatch(part)
"""

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.redis, pytest.mark.django_db]


def _failure(world: World, name: str) -> Failure:
    rows = Failure.objects.filter(run__query__name=name).order_by("-pk")
    return world.wait(rows.first, f"{name} fails")


def _python(world: World, name: str, function: str) -> None:
    now = timezone.now()
    row = Query.objects.create(name=name, application=world.application, created_at=now)
    spec = {
        "kind": "python",
        "function": function,
        "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
    }
    row.revisions.create(number=1, kind="python", spec=spec, author="aude", created_at=now)
    location = f"file://{world.home}/checkpoints/{name}"
    Checkpoint.objects.create(query=row, location=location, created_at=now)


def _code(world: World) -> None:
    """Give the application a folder with the function that reads a part of its batch."""
    folder = world.home / "functions"
    folder.mkdir()
    (folder / "partial.py").write_text(PARTIAL)
    revision = world.application.revisions.get()
    revision.spec["python_path"] = [str(folder)]
    revision.save()


def test_each_is_named_as_what_it_is(
    world: World, broker: KafkaBroker, client: Client, author: Any
) -> None:
    _code(world)
    client.force_login(author)
    kafka = {"kafka.bootstrap.servers": broker.servers}

    # A row without a topic, in a sink without the option topic.
    mixed = broker.topic("mixed")
    world.query(
        "null-topic",
        broker.servers,
        mixed,
        sql="SELECT CASE WHEN CAST(value AS STRING) = '7' THEN CAST(NULL AS STRING) "
        f"ELSE '{broker.topic('out')}' END AS topic, value FROM records",
        sink={"format": "kafka", "options": kafka},
    )
    broker.produce(mixed, [(None, "1"), (None, "7")])
    # Starting offsets for one partition of three.
    three = broker.topic("three", partitions=3)
    offsets = {"startingOffsets": json.dumps({three: {"0": 0}})}
    world.query("one-of-three", broker.servers, three, options=offsets)
    # A function of foreachBatch that reads a part of each batch.
    _python(world, "partial", "partial:build")
    for name in ("null-topic", "one-of-three", "partial"):
        world.start(name)

    found = _failure(world, "null-topic")
    assert (found.category, found.policy) == (Category.DATA, "POISON")
    page = client.get(f"/failures/{found.pk}/").content.decode()
    assert "the sink&#x27;s topic option" in page
    assert "lost data" not in page
    found = _failure(world, "one-of-three")
    assert (found.category, found.policy) == (Category.CONFIGURATION, "FATAL")
    page = client.get(f"/failures/{found.pk}/").content.decode()
    assert f"Missing: {three}-1, {three}-2." in page
    assert "lost data" not in page
    found = _failure(world, "partial")
    assert (found.category, found.policy) == (Category.USER_CODE, "POISON")
    world.wait(lambda: world.row("partial").phase == "ON_HOLD", "partial is held")
    assert "read all rows of the batch" in client.get(f"/failures/{found.pk}/").content.decode()
