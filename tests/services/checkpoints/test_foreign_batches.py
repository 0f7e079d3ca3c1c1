"""Plain PySpark beside Headgate on one checkpoint: seen in the log, and said where people look."""

import html
import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from listeners.models import Heartbeat, Received
from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from queries.selectors.query_lines import query_line
from queries.services.checkpoints.batch_repair import look_for_foreign_batches
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


def begin(place: Path, number: int, at: datetime) -> None:
    """Write a batch's offsets and commit, as Spark does at that moment."""
    about = {"batchWatermarkMs": 0, "batchTimestampMs": int(at.timestamp() * 1000), "conf": {}}
    for folder, text in (
        ("offsets", f"v1\n{json.dumps(about)}\n{number}"),
        ("commits", 'v1\n{"nextBatchWatermarkMs":0}'),
    ):
        (place / folder).mkdir(parents=True, exist_ok=True)
        (place / folder / str(number)).write_text(text)


@pytest.fixture
def place(stage: Stage, tmp_path: Path) -> Path:
    """A query that ran from 20 to 10 minutes ago, and made batches 0 to 2 then."""
    now = timezone.now()
    stage.query("delays")
    Checkpoint.objects.update(location=tmp_path.as_uri())
    begin(tmp_path, 0, now - timedelta(days=3))  # before it was Headgate's
    stage.now = now - timedelta(minutes=20)
    stage.up("delays")
    for number in (1, 2):
        begin(tmp_path, number, stage.now + timedelta(seconds=number))
    stage.now = now - timedelta(minutes=10)
    stage.launcher.obliging = True
    stage.stop("delays")
    stage.wait(5)
    assert stage.phase("delays") == "STOPPED"
    return tmp_path


def test_our_own_batches_and_those_before_us_are_no_news(stage: Stage, place: Path) -> None:
    assert look_for_foreign_batches(now=timezone.now()) == 0
    assert query_line("delays", now=timezone.now()).foreign_batches is None


def test_batches_begun_while_nothing_of_ours_ran_are_told_everywhere(
    stage: Stage, place: Path, client: Client, viewer: User
) -> None:
    now = timezone.now()
    for number in (3, 4):
        begin(place, number, now - timedelta(minutes=8 - number))
    assert look_for_foreign_batches(now=now) == 1
    assert look_for_foreign_batches(now=now) == 0  # it is known
    client.force_login(viewer)
    said = "Its checkpoint contains batches that no run of this installation made (3 to 4, the last"
    for page in ("/queries/delays/", "/queries/", "/"):
        text = html.unescape(client.get(page).content.decode())
        assert said in text, page
    assert "data-troubled" in client.get("/queries/").content.decode()
    page = html.unescape(client.get("/queries/delays/checkpoint/").content.decode())
    assert "another process wrote to this checkpoint" in page
    api = APIClient()
    api.force_authenticate(viewer)
    told = api.get("/api/v1/queries/delays/").json()["foreign_batches"]
    assert (told["first"], told["last"]) == (3, 4)
    begin(place, 5, now)
    assert look_for_foreign_batches(now=now + timedelta(seconds=30)) == 1
    assert Checkpoint.objects.get().foreign_first == 3
    line = query_line("delays", now=now)
    assert line.foreign_batches is not None
    assert line.foreign_batches.last == 5
    assert query_line("delays", now=now + timedelta(days=2)).foreign_batches is None


def test_beside_a_run_of_ours_it_is_what_that_run_never_reported(stage: Stage, place: Path) -> None:
    now = timezone.now()
    stage.now = now - timedelta(minutes=6)
    stage.start("delays")
    run = stage.run("delays")
    Run.objects.filter(pk=run.pk).update(spark_run_id="ours")
    Received.objects.create(
        kind="batch",
        driver=run.driver_id,
        spark_run_id="ours",
        epoch=run.epoch,
        first=3,
        last=4,
        at=now,
    )
    for number in (3, 4, 5):  # 5 may be in flight
        begin(place, number, now - timedelta(minutes=5))
    beat = Heartbeat(driver=run.driver_id, epoch=1, seq=1, at=now, received_at=now, body={})
    beat.save()
    assert look_for_foreign_batches(now=now) == 0
    begin(place, 6, now - timedelta(minutes=4))
    assert look_for_foreign_batches(now=now) == 1
    assert Checkpoint.objects.get().foreign_last == 6


def test_one_checkpoint_that_cannot_be_read_hides_no_other(
    stage: Stage, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    begin(place, 3, now - timedelta(minutes=2))
    for name, location in (("far", "s3a://bucket/far"), ("odd", "file:///nowhere/odd")):
        query = stage.query(name)
        Checkpoint.objects.filter(query=query).update(location=location)
        stage.start(name)
    (place / "offsets" / "4").write_text("not a log")
    assert look_for_foreign_batches(now=now) == 1
