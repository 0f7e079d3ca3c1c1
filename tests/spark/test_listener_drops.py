"""A listener that sleeps makes Spark drop events: the count is exact and ours lose none."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from listeners import models, selectors
from tests import pieces
from tests.conftest_redis import MakeIngester, ValkeyServer
from tests.listeners.events import KEY, STREAM

pytestmark = [pytest.mark.spark, pytest.mark.redis, pytest.mark.django_db]

REPOSITORY = Path(__file__).resolve().parents[2]


def play(mode: str, folder: Path, valkey: ValkeyServer) -> dict[str, Any]:
    """Play the story in a process of its own; return what Spark itself knows of it."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.spark.listener_story", mode]
        + [str(folder / "driver"), valkey.url, STREAM, KEY.decode()],
        cwd=REPOSITORY,
        env={**os.environ, **pieces.of_spark(), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-4000:]
    facts: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return facts


def ingest(client: redis.Redis, make_ingester: MakeIngester) -> None:
    ingester = make_ingester(batch=1000)
    while ingester.step() or client.xlen(STREAM) > ingester.stored:
        pass


def stored_batches(**which: Any) -> list[int]:
    rows = models.Progress.objects.filter(query=42, run=5, **which)
    return sorted(rows.values_list("batch", flat=True))


@pytest.mark.promise
def test_on_the_private_queue_nothing_of_ours_is_lost_and_the_count_is_sparks(
    tmp_path: Path,
    valkey: ValkeyServer,
    redis_client: redis.Redis,
    make_ingester: MakeIngester,
) -> None:
    facts = play("private", tmp_path, valkey)
    ingest(redis_client, make_ingester)
    assert facts["mode"] == "private"
    # The first batch is explained; on a busy machine, so is one that took twice as long as usual.
    slow = list(models.SlowBatch.objects.all())
    assert slow
    for evidence in slow:
        assert (evidence.query, evidence.run) == (42, 5)
        assert evidence.body["cores"] == 2
        assert sum(stage["tasks"] for stage in evidence.body["stages"]) > 0
    before, after = facts["dropped"]
    assert stored_batches() == facts["executed"]
    assert stored_batches(repaired=True) == []
    losses = selectors.dropped([42], drivers={42: 1})[42]
    assert 0 < before <= losses.bus <= after
    assert (losses.outbox, losses.missing_batches) == (0, 0)
    heartbeat = selectors.telemetry([1])[1].heartbeat
    assert heartbeat.streams is not None
    assert (heartbeat.streams.dropped, heartbeat.streams.capacity) == (losses.bus, 5)
    assert heartbeat.ours is not None
    assert heartbeat.ours.dropped == 0
    [sleeper] = heartbeat.listeners
    assert (sleeper.name, sleeper.slow, sleeper.errors) == ("drowsy:Sleeper", True, 0)
    assert sleeper.max_ms >= 3000
    kinds = set(models.Event.objects.filter(run=5).values_list("kind", flat=True))
    assert {"started", "terminated"} <= kinds
    # Every number that the driver gave out has arrived.
    whole = models.Received.objects.filter(kind="seq").values_list("first", "last").get()
    assert whole == (1, facts["last_seq"]) == (1, int(facts["last_seq_file"]))


def test_in_the_fallback_every_hole_is_repaired_from_the_drivers_memory(
    tmp_path: Path,
    valkey: ValkeyServer,
    redis_client: redis.Redis,
    make_ingester: MakeIngester,
) -> None:
    facts = play("fallback", tmp_path, valkey)
    ingest(redis_client, make_ingester)
    assert facts["mode"] == "fallback"
    before, after = facts["dropped"]
    assert stored_batches() == facts["executed"]
    repaired = len(stored_batches(repaired=True))
    assert repaired > 0
    losses = selectors.dropped([42], drivers={42: 1})[42]
    assert 0 < before <= losses.bus <= after
    assert (losses.missing_batches, losses.repaired) == (repaired, repaired)
    heartbeat = selectors.telemetry([1])[1].heartbeat
    assert (heartbeat.mode, heartbeat.ours) == ("fallback", None)
    assert (heartbeat.missing_batches, heartbeat.repaired) == (repaired, repaired)
    assert heartbeat.listeners[0].slow
    age = datetime.now(UTC) - selectors.telemetry([1])[1].received_at
    assert age.total_seconds() < 600
