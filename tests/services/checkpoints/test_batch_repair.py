"""A batch that nothing else remembers comes back from its checkpoint, and says so."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from listeners import models, selectors
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Run
from queries.services.checkpoints.batch_repair import repair_from_checkpoints
from tests.scenarios.stage import Stage
from tests.web.batches import batches

BEGAN = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkpoint whose logs hold the batches 0 to 9, each done after 0.8 s."""
    folder = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for batch in range(10):
        at = BEGAN + timedelta(seconds=5 * batch)
        about = {"batchTimestampMs": int(at.timestamp() * 1000), "batchWatermarkMs": 0, "conf": {}}
        source = json.dumps({"logOffset": batch})
        (folder / f"offsets/{batch}").write_text(f"v1\n{json.dumps(about)}\n{source}")
        commit = folder / f"commits/{batch}"
        commit.write_text('v1\n{"nextBatchWatermarkMs":0}')
        done = at.timestamp() + 0.8
        os.utime(commit, (done, done))
    return folder


@pytest.fixture
def run(stage: Stage, root: Path, settings: Any) -> Run:
    """Return a run of which the batches 4 to 6 were never told, and are beyond repair by now."""
    stage.query("delays")
    stage.up("delays")
    Driver.objects.update(host=settings.HEADGATE_HOST)
    Checkpoint.objects.update(location=f"file://{root}")
    run = stage.run("delays")
    batches(run, 4, until=BEGAN + timedelta(seconds=15))
    batches(run, 3, first=7, until=BEGAN + timedelta(seconds=45), seq_after=4)
    key = {"kind": "batch", "driver": run.driver_id, "spark_run_id": run.spark_run_id}
    models.Received.objects.filter(**key).delete()
    for first, last in ((0, 3), (7, 9)):
        models.Received.objects.create(
            **key,
            epoch=run.driver.epoch,
            query=run.query_id,
            run=run.pk,
            first=first,
            last=last,
            at=BEGAN,
        )
    models.Gap.objects.create(
        **key,
        query=run.query_id,
        run=run.pk,
        first=4,
        last=6,
        missing=3,
        noticed_at=timezone.now() - timedelta(minutes=3),
        closed_at=timezone.now() - timedelta(minutes=1),
        beyond_repair=True,
    )
    return run


def _recalled() -> list[models.Progress]:
    return list(models.Progress.objects.filter(repaired=True).order_by("batch"))


def test_existence_times_and_offsets_come_back_and_no_metric_is_made_up(run: Run) -> None:
    assert repair_from_checkpoints(now=timezone.now()) == 3
    rows = _recalled()
    assert [row.batch for row in rows] == [4, 5, 6]
    assert [row.at for row in rows] == [BEGAN + timedelta(seconds=5 * n) for n in (4, 5, 6)]
    assert {row.batch_duration_ms for row in rows} == {800}
    assert all(row.body["fromCheckpoint"] for row in rows)
    assert all("numInputRows" not in row.body for row in rows)
    assert {row.input_rows_per_second for row in rows} == {None}
    [source] = rows[0].body["sources"]
    assert (source["startOffset"], source["endOffset"]) == ({"logOffset": 3}, {"logOffset": 4})
    gap = models.Gap.objects.get()
    assert (gap.repaired, gap.beyond_repair, gap.source) == (3, False, "checkpoint")
    lost = selectors.dropped([run.query_id], drivers={run.query_id: run.driver_id})[run.query_id]
    assert (lost.missing_batches, lost.repaired) == (3, 3)


def test_a_second_look_changes_nothing(run: Run) -> None:
    repair_from_checkpoints(now=timezone.now())
    latest = models.Latest.objects.get().batch
    assert repair_from_checkpoints(now=timezone.now()) == 0
    assert len(_recalled()) == 3
    assert models.Latest.objects.get().batch == latest == 9
    assert not models.Received.objects.filter(kind="seq", first__lte=0).exists()
    assert models.Received.objects.filter(kind="batch").values_list("first", "last").get() == (0, 9)


def test_what_the_logs_hold_no_more_stays_beyond_repair(run: Run, root: Path) -> None:
    (root / "commits/4").unlink()
    (root / "offsets/5").write_text("v1\n{cut")
    assert repair_from_checkpoints(now=timezone.now()) == 1
    assert [row.batch for row in _recalled()] == [6]
    gap = models.Gap.objects.get()
    assert (gap.repaired, gap.beyond_repair) == (1, True)


@pytest.mark.parametrize("where", ["s3a://bucket/delays", "file:///nowhere/at/all"])
def test_a_checkpoint_that_cannot_be_read_from_here_is_left_alone(run: Run, where: str) -> None:
    Checkpoint.objects.update(location=where)
    assert repair_from_checkpoints(now=timezone.now()) == 0


def test_a_checkpoint_of_another_host_is_left_to_it(run: Run) -> None:
    Driver.objects.update(host="another-host")
    assert repair_from_checkpoints(now=timezone.now()) == 0


def test_rest_says_where_a_batch_comes_from(run: Run, client: Client, viewer: User) -> None:
    repair_from_checkpoints(now=timezone.now())
    client.force_login(viewer)
    rows = client.get("/api/v1/queries/delays/progress/").json()["results"]
    told = {row["progress"]["batchId"]: row["progress"].get("fromCheckpoint") for row in rows}
    assert {batch for batch, so in told.items() if so} == {4, 5, 6}
