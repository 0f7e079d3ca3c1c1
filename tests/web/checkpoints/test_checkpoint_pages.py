"""A query's checkpoint opened up: batches, files, state, what is kept, and the acts on it."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.applications import Application
from queries.models.checkpoints import Snapshot, SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Host
from queries.models.history import Operation
from queries.selectors.hosts import UNANSWERED_AFTER
from queries.services.checkpoints import snapshot
from queries.services.procedures.engine import advance, due_operations
from queries.tasks import PROCEDURES
from tests.checkpoints.forms import put, write_batch, write_checkpoint
from tests.scenarios.stage import Stage
from tests.web.batches import batches
from tests.web.browserless import Page


@pytest.fixture
def root(stage: Stage, tmp_path: Path, settings: LazySettings) -> Path:
    stage.now = timezone.now()
    settings.CHECKPOINTS_DIR = tmp_path / "cps"
    return tmp_path / "cps" / "delays"


def _query(stage: Stage, root: Path, **spec: Any) -> Query:
    query = stage.query("delays", **spec)
    Checkpoint.objects.filter(query=query).update(location=f"file://{root}")
    return query


def _work(stage: Stage) -> None:
    # Steps note the time of the clock on the wall, which a slow machine's story falls behind.
    stage.now = max(stage.now, timezone.now())
    for _ in range(4):
        for pk in due_operations(now=timezone.now()):
            advance(pk, procedures=PROCEDURES, launcher=stage.launcher, now=timezone.now())
        stage.wait(1)


def test_batches_stand_with_offsets_records_and_what_is_in_flight(
    client: Client, viewer: User, stage: Stage, root: Path
) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(12), source="kafka", in_flight=True)
    client.force_login(viewer)
    text = Page(client, "/queries/delays/checkpoint/").text
    assert "In flight" in text
    assert text.count("Committed") == 12
    assert "flights: 1 partition, 130 in total" in text
    assert "Rewind…" not in text  # a viewer reads


def test_many_batches_are_paged(client: Client, viewer: User, stage: Stage, root: Path) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(130))
    client.force_login(viewer)
    first = Page(client, "/queries/delays/checkpoint/")
    assert "/checkpoint/batches/129/" in first.html
    assert "/checkpoint/batches/79/" not in first.html
    older = Page(client, "/queries/delays/checkpoint/?before=80")
    assert "/checkpoint/batches/79/" in older.html
    assert "before=30" in older.html


def test_the_gaps_of_async_progress_tracking_are_explained(
    client: Client, viewer: User, stage: Stage, root: Path
) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(0), source="kafka")
    for batch in (0, 1, 5):
        write_batch(root, batch, source="kafka")
    client.force_login(viewer)
    text = Page(client, "/queries/delays/checkpoint/").text
    assert "3 batches not in the log because of async progress tracking" in text


def test_one_batch_names_its_files_and_those_that_are_gone(
    client: Client, viewer: User, stage: Stage, root: Path, tmp_path: Path
) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(4), files_a_batch=2)
    client.force_login(viewer)
    text = Page(client, "/queries/delays/checkpoint/batches/2/").text
    assert "file:///in/f2-0.json" in text
    assert "file:///in/f2-1.json" in text
    assert "f1-0" not in text
    assert "gone" in text
    assert client.get("/queries/delays/checkpoint/batches/9/").status_code == 404


@pytest.mark.sql("queries.selectors.checkpoints.uncounted_batches")
def test_a_batch_that_was_repeated_and_not_counted_is_no_batch_of_zero_rows(
    client: Client, viewer: User, stage: Stage, root: Path
) -> None:
    _query(stage, root)
    stage.up("delays")
    run = stage.run("delays")
    run.first_commit_at = timezone.now()
    run.save()
    write_checkpoint(root, batches=range(4), source="kafka")
    rows = batches(run, 2, first=2, until=timezone.now(), rows=0)
    ends = [{"flights": {"0": end}} for end in (20, 30)]
    rows[0].body |= {
        "durationMs": {"addBatch": 900, "triggerExecution": 950},
        "sources": [{"startOffset": ends[0], "endOffset": ends[1]}],
    }
    rows[0].save()
    client.force_login(viewer)
    text = Page(client, "/queries/delays/checkpoint/batches/2/").text
    assert "Spark repeated this batch after a restart and read none of its rows" in text
    assert "in no count. The figure below is counted from offsets." in text
    assert "repeated" not in Page(client, "/queries/delays/checkpoint/batches/3/").text
    listed = Page(client, "/queries/delays/checkpoint/").html
    assert listed.count("Spark repeated the batch without reading it") == 1
    lag = Page(client, "/queries/delays/lag/").text
    assert "Batch 2 : Spark repeated this batch after a restart" in lag


def test_two_batches_are_set_against_each_other(
    client: Client, viewer: User, stage: Stage, root: Path
) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(12), source="kafka")
    place = root / "offsets/9"
    place.write_text(place.read_text().replace('"spark.sql.shuffle.partitions": "2"', '"a": "b"'))
    client.force_login(viewer)
    text = Page(client, "/queries/delays/checkpoint/compare/?one=9&other=3").text
    assert "Between them: 6 batches" in text
    assert "60 offsets" in text
    assert "spark.sql.shuffle.partitions" in text
    assert client.get("/queries/delays/checkpoint/compare/?one=9&other=x").status_code == 404


@pytest.mark.sql(
    "queries.selectors.checkpoints.operator_lines",
    "queries.selectors.checkpoints.pinned_configuration",
)
def test_state_shows_operators_growth_and_where_the_checkpoint_wins(
    client: Client, viewer: User, stage: Stage, root: Path
) -> None:
    query = _query(stage, root, conf={"spark.sql.shuffle.partitions": "8"})
    write_checkpoint(root, batches=range(4), store="zip")
    stage.up("delays")
    rows = batches(stage.run("delays"), 40, until=timezone.now(), every_s=30)
    for place, row in enumerate(rows):
        body = dict(row.body)
        body["stateOperators"] = [
            {"numRowsTotal": 1000 + place, "memoryUsedBytes": 100_000_000 + place * 10_000_000}
        ]
        type(row).objects.filter(pk=row.pk).update(body=body, state_rows=1000 + place)
    client.force_login(viewer)
    text = Page(client, "/queries/delays/checkpoint/state/").text
    assert "RocksDB" in text
    assert "1,039" in text
    assert "Steady growth towards the memory limit." in text
    assert "The checkpoint wins" in text
    assert query.name in text


@pytest.mark.sql(
    "queries.selectors.checkpoints.earlier_checkpoints",
    "queries.selectors.checkpoints.rows_of",
    "queries.selectors.checkpoints.open_procedure",
)
def test_a_checkpoint_elsewhere_says_so(
    client: Client, author: User, stage: Stage, root: Path
) -> None:
    query = _query(stage, root)
    Checkpoint.objects.filter(query=query).update(location="s3a://bucket/delays")
    client.force_login(author)
    for address in ("", "state/", "kept/"):
        text = Page(client, f"/queries/delays/checkpoint/{address}").text
        assert "is not on a local file system" in text
        assert "Rewind…" not in text


@pytest.mark.parametrize(
    ("heard", "placed", "says"),
    [
        (False, "", "none on host web-1 responds. Open Headgate on the worker's host."),
        (False, "spark-2", "none on host web-1 responds. Open Headgate on host spark-2."),
        (True, "", "The worker on host web-1 was asked to read the checkpoint, but nothing has"),
    ],
)
def test_a_checkpoint_that_no_worker_reads_for_this_host_says_so_and_where_to_look(
    client: Client,
    viewer: User,
    stage: Stage,
    settings: LazySettings,
    tmp_path: Path,
    heard: bool,
    placed: str,
    says: str,
) -> None:
    stage.query("delays")
    Checkpoint.objects.update(location="s3a://bucket/delays")
    Application.objects.update(host=placed)
    settings.HEADGATE_HOST, settings.MIRRORS_DIR = "web-1", tmp_path / "mirrors"
    if heard:
        Host.objects.create(name="web-1", seen_at=timezone.now(), steady_since=timezone.now())
    client.force_login(viewer)
    assert (
        "Reading the checkpoint from its storage…"
        in Page(client, "/queries/delays/checkpoint/").text
    )
    (mirror,) = settings.MIRRORS_DIR.iterdir()
    long_ago = timezone.now().timestamp() - UNANSWERED_AFTER.total_seconds() - 1
    os.utime(mirror, (long_ago, long_ago))
    text = Page(client, "/queries/delays/checkpoint/").text
    assert says in text
    assert "Reading the checkpoint" not in text


def test_a_query_that_never_committed_says_so(
    client: Client, author: User, stage: Stage, root: Path
) -> None:
    _query(stage, root)
    client.force_login(author)
    assert "No batch has committed yet" in Page(client, "/queries/delays/checkpoint/").text
    page = Page(client, "/queries/delays/rewind/?batch=3")
    assert "is not in the checkpoint" in page.text


def test_an_operator_takes_a_snapshot_pins_it_and_removes_it(
    client: Client, operator: User, stage: Stage, root: Path
) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(4))
    client.force_login(operator)
    assert "newest, 3" in Page(client, "/queries/delays/snapshot/").html
    client.post("/queries/delays/snapshot/", {"reason": "before the release"})
    _work(stage)
    row = Snapshot.objects.get()
    text = Page(client, "/queries/delays/checkpoint/kept/").text
    assert "before the release" in text
    client.post(f"/queries/delays/snapshots/{row.pk}/pin/", {"pinned": "1"})
    client.post(f"/queries/delays/snapshots/{row.pk}/remove/")
    row.refresh_from_db()
    assert (row.pinned, row.removed_at) == (True, None)
    client.post(f"/queries/delays/snapshots/{row.pk}/pin/", {"pinned": "0"})
    assert "deleted permanently" in Page(client, f"/queries/delays/snapshots/{row.pk}/remove/").text
    client.post(f"/queries/delays/snapshots/{row.pk}/remove/")
    assert "No snapshots" in Page(client, "/queries/delays/checkpoint/kept/").text


def test_a_rewind_is_previewed_and_then_done(
    client: Client, author: User, stage: Stage, root: Path
) -> None:
    query = _query(stage, root)
    write_checkpoint(root, batches=range(12), source="kafka", in_flight=True)
    SourceLag.objects.create(
        query=query, source="flights", partition=0, earliest=95, latest=130, seen_at=stage.now
    )
    client.force_login(author)
    text = Page(client, "/queries/delays/rewind/?batch=7").text
    assert "Batch 12 has started but not committed" in text
    assert "The noop sink keeps nothing" in text
    assert "deleted: the broker starts at 95" in text
    assert Checkpoint.objects.get(query=query).location == f"file://{root}"  # nothing is done yet
    client.post("/queries/delays/rewind/", {"batch": "7"})
    _work(stage)
    assert ".r7-" in Checkpoint.objects.get(query=query, retired_at=None).location
    assert f"file://{root}" in Page(client, "/queries/delays/checkpoint/kept/").text
    activity = Page(client, "/queries/delays/activity/").text
    assert "Rewound to an earlier batch" in activity
    assert "delays.r7-" in activity


def test_a_rewind_finds_the_batch_by_the_time_it_committed(
    client: Client, author: User, stage: Stage, root: Path
) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(12), source="kafka")
    for number in range(12):  # one a minute, from two at night on
        at = datetime(2026, 3, 2, 2, number, tzinfo=UTC).timestamp()
        os.utime(root / "commits" / str(number), (at, at))
    client.force_login(author)
    page = Page(client, "/queries/delays/rewind/?at=2026-03-02T02:05:30")
    assert "Batch 5 was the newest batch committed by 2026-03-02T02:05:30 UTC." in page.text
    assert 'name="batch" value="5"' in page.html
    assert "Rewind to batch 5" in page.text
    early = Page(client, "/queries/delays/rewind/?at=2026-03-01T00:00").text
    assert "None of the available batches had committed by 2026-03-01 00:00:00 UTC." in early
    assert "is not a valid time" in Page(client, "/queries/delays/rewind/?at=noon").text


def test_a_reset_wants_the_name_typed(
    client: Client, author: User, stage: Stage, root: Path
) -> None:
    query = _query(
        stage,
        root,
        sources=[{"name": "f", "format": "json", "options": {"path": f"{root}-in"}}],
    )
    write_checkpoint(root, batches=range(5))
    put(Path(f"{root}-in/a.json"), "{}")
    client.force_login(author)
    assert "Earliest" in Page(client, "/queries/delays/reset/").text
    text = Page(client, "/queries/delays/reset/?to=latest").text
    assert "files that arrive from now on" in text
    refused = client.post("/queries/delays/reset/", {"to": "latest", "typed": "delay"})
    assert b"Type delays to confirm" in refused.content
    assert not Operation.objects.exists()
    client.post("/queries/delays/reset/", {"to": "latest", "typed": "delays"})
    _work(stage)
    assert ".reset-" in Checkpoint.objects.get(query=query, retired_at=None).location


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("to=time&at=noon", "is not a valid time"),
        ("to=offsets&offsets=12", "is not a JSON object"),
        ("to=offsets&offsets={", "is not JSON"),
        ('to=offsets&offsets={"a":1}', "is not a valid set of offsets"),
    ],
)
def test_a_reset_to_nonsense_names_the_field(
    client: Client, author: User, stage: Stage, root: Path, asked: str, said: str
) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(5))
    client.force_login(author)
    answer = client.get(f"/queries/delays/reset/?{asked}")
    assert answer.status_code == 422
    assert said in answer.content.decode()


@pytest.mark.sql("queries.views.checkpoints.checkpoint_actions._suggested_sink")
def test_a_clone_is_made_from_the_form_and_its_faults_are_shown_there(
    client: Client, author: User, stage: Stage, root: Path
) -> None:
    query = _query(stage, root)
    write_checkpoint(root, batches=range(5))
    snapshot.request_snapshot(query=query, actor="otto", now=stage.now)
    _work(stage)
    client.force_login(author)
    assert "snapshot of batch 4" in Page(client, "/queries/delays/clone/").text
    bad = client.post("/queries/delays/clone/", {"name": "delays", "sink": '{"format": "noop"}'})
    assert bad.status_code == 422
    client.post(
        "/queries/delays/clone/",
        {
            "name": "delays-two",
            "sink": json.dumps({"format": "noop"}),
            "snapshot": Snapshot.objects.get().pk,
        },
    )
    _work(stage)
    assert Query.objects.get(name="delays-two").desired == "STOPPED"


def test_an_operator_may_not_rewind(
    client: Client, operator: User, stage: Stage, root: Path
) -> None:
    _query(stage, root)
    write_checkpoint(root, batches=range(5))
    client.force_login(operator)
    for act in ("rewind", "reset", "clone"):
        assert client.get(f"/queries/delays/{act}/").status_code == 403
        assert client.post(f"/queries/delays/{act}/", {"batch": "2"}).status_code == 403
    assert not Operation.objects.exists()
