"""What a run has committed and never reported is counted once it has ended, across runs."""

import json
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.utils import timezone

from listeners import models
from listeners.streams import GROUP, of_driver
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Run
from queries.services.checkpoints.batch_repair import (
    UNDER_WAY,
    count_unreported,
    repair_from_checkpoints,
)
from tests.conftest_redis import redis_client, valkey
from tests.scenarios.stage import Stage

__all__ = ["redis_client", "valkey"]

pytestmark = [pytest.mark.redis, pytest.mark.django_db]

NOW = timezone.now().replace(microsecond=0)
LATER = NOW + timedelta(minutes=10)


class Story:
    """A query of which runs end, with what they have committed and what they have reported."""

    def __init__(self, stage: Stage, root: Path) -> None:
        self.stage, self.root = stage, root
        stage.query("delays")
        Checkpoint.objects.update(location=f"file://{root}")
        for name in ("offsets", "commits"):
            (root / name).mkdir(parents=True)

    def run(self, *, minute: int, committed: Iterable[int], reported: Iterable[int]) -> Run:
        """Play a run that began at a minute and ended half a minute later."""
        self.stage.up("delays")
        run = self.stage.run("delays")
        self.stage.launcher.die("delays", python="SIGKILL", jvm="SIGKILL")
        self.stage.look("delays")
        began = NOW + timedelta(minutes=minute)
        Driver.objects.update(host=settings.HEADGATE_HOST)
        Run.objects.filter(pk=run.pk).update(
            created_at=began, ended_at=began + timedelta(seconds=30), spark_run_id=f"r{minute}"
        )
        for batch in committed:
            about = {"batchTimestampMs": int(began.timestamp() * 1000), "conf": {}}
            text = f"v1\n{json.dumps(about)}\n" + json.dumps({"logOffset": batch})
            (self.root / f"offsets/{batch}").write_text(text)
            commit = self.root / f"commits/{batch}"
            commit.write_text('v1\n{"nextBatchWatermarkMs":0}')
            at = (began + timedelta(seconds=20)).timestamp()
            os.utime(commit, (at, at))
        told = sorted(reported)
        if told:
            models.Received.objects.create(
                kind="batch",
                driver=run.driver_id,
                epoch=run.driver.epoch,
                spark_run_id=f"r{minute}",
                query=run.query_id,
                run=run.pk,
                first=told[0],
                last=told[-1],
                at=began,
            )
        return run


@pytest.fixture
def story(stage: Stage, tmp_path: Path, redis_client: redis.Redis) -> Story:
    return Story(stage, tmp_path / "checkpoint")


def _gaps() -> list[tuple[str, int, int]]:
    rows = models.Gap.objects.order_by("pk")
    return [(row.spark_run_id, row.first, row.last) for row in rows]


def test_the_last_batches_of_a_run_lie_in_no_hole_and_are_counted(story: Story) -> None:
    first = story.run(minute=0, committed=[0, 1, 2, 3], reported=[0, 1])
    story.run(minute=1, committed=[4, 5], reported=[4, 5])
    assert count_unreported(now=LATER) == 2
    assert _gaps() == [("r0", 2, 3)]
    assert repair_from_checkpoints(now=LATER) == 2
    rows = models.Progress.objects.filter(run=first.pk, repaired=True).order_by("batch")
    assert [(row.batch, row.epoch) for row in rows] == [
        (2, first.driver.epoch),
        (3, first.driver.epoch),
    ]
    gap = models.Gap.objects.get()
    assert (gap.missing, gap.repaired, gap.beyond_repair) == (2, 2, False)
    assert count_unreported(now=LATER) == 0  # once for each run


def test_a_run_that_reported_nothing_and_one_that_nobody_knows_by_id_are_counted(
    story: Story,
) -> None:
    story.run(minute=0, committed=[0], reported=[])
    unknown = story.run(minute=1, committed=[1], reported=[])
    Run.objects.filter(pk=unknown.pk).update(spark_run_id=None)
    assert count_unreported(now=LATER) == 2
    assert _gaps() == [("r0", 0, 0), (f"run {unknown.pk}", 1, 1)]
    assert repair_from_checkpoints(now=LATER) == 2
    assert not models.Gap.objects.filter(beyond_repair=True).exists()


def test_the_first_batch_of_a_run_and_one_between_two_reports_count_once(story: Story) -> None:
    run = story.run(minute=0, committed=[0, 1, 2, 3], reported=[1])
    key = {"kind": "batch", "driver": run.driver_id, "spark_run_id": "r0"}
    models.Received.objects.create(
        **key, epoch=run.driver.epoch, query=run.query_id, run=run.pk, first=3, last=3, at=NOW
    )
    models.Gap.objects.create(**key, first=2, last=2, missing=1, noticed_at=NOW)
    assert count_unreported(now=LATER) == 1
    assert sorted(_gaps()) == [("r0", 0, 0), ("r0", 2, 2)]


def test_a_batch_that_another_run_began_is_that_of_the_run_that_committed_it(story: Story) -> None:
    story.run(minute=0, committed=[0], reported=[0])
    (story.root / "offsets/1").write_text((story.root / "offsets/0").read_text())
    story.run(minute=1, committed=[1], reported=[1])
    assert count_unreported(now=LATER) == 0


def test_copies_other_programs_batches_and_continuous_epochs_are_not_missing(story: Story) -> None:
    story.run(minute=1, committed=[5], reported=[5])
    for batch, at in ((3, NOW), (6, NOW + timedelta(minutes=5))):  # before it, and after its end
        (story.root / f"offsets/{batch}").write_text((story.root / "offsets/5").read_text())
        commit = story.root / f"commits/{batch}"
        commit.write_text("v1\n{}")
        os.utime(commit, (at.timestamp(), at.timestamp()))
    within = (NOW + timedelta(seconds=70)).timestamp()
    (story.root / "offsets/7").write_text('v1\n\n{"partitionOffsets":{}}')
    (story.root / "commits/7").write_text("v1\n{}")
    os.utime(story.root / "commits/7", (within, within))
    assert count_unreported(now=LATER) == 0


def test_it_waits_for_what_is_under_way(story: Story, redis_client: redis.Redis) -> None:
    run = story.run(minute=0, committed=[0, 1], reported=[0])
    assert count_unreported(now=NOW + timedelta(seconds=30) + UNDER_WAY / 2) == 0
    # In its stream are entries that no ingester has stored.
    stream = of_driver(settings.EVENT_STREAM, run.driver.epoch)
    redis_client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    entry = redis_client.xadd(stream, {"event": "x"}, id=f"{int(NOW.timestamp() * 1000)}-1")
    assert count_unreported(now=LATER) == 0
    redis_client.xreadgroup(GROUP, "one", {stream: ">"})
    assert count_unreported(now=LATER) == 0
    redis_client.xack(stream, GROUP, entry)
    # Its spool is being read.
    gap: dict[str, Any] = {"kind": "seq", "driver": run.driver_id, "first": 4, "last": 4}
    models.Gap.objects.create(**gap, missing=1, noticed_at=NOW)
    assert count_unreported(now=LATER) == 0
    models.Gap.objects.update(closed_at=NOW)
    assert count_unreported(now=LATER) == 1


@pytest.mark.guarantee("G-EVENT-2")
@pytest.mark.parametrize("came", [True, False])
def test_a_run_that_is_over_leaves_no_gap_open(story: Story, came: bool) -> None:
    """Nothing of it can still arrive: what has not, is repaired from its checkpoint."""
    run = story.run(minute=0, committed=[0, 1, 2, 3], reported=[0, 1] if not came else [0, 1, 2, 3])
    key = {"kind": "batch", "driver": run.driver_id, "spark_run_id": "r0"}
    about = {"query": run.query_id, "run": run.pk}
    if not came:
        models.Received.objects.create(
            **key, **about, epoch=run.driver.epoch, first=3, last=3, at=NOW
        )
    models.Gap.objects.create(**key, **about, first=2, last=2, missing=1, noticed_at=NOW)
    count_unreported(now=LATER)
    gap = models.Gap.objects.get()
    assert (gap.closed_at, gap.beyond_repair) == (LATER, not came)
    repair_from_checkpoints(now=LATER)
    gap.refresh_from_db()
    assert (gap.repaired, gap.closed_at, gap.beyond_repair) == (1, LATER, False)
    assert gap.source == ("memory" if came else "checkpoint")
