"""The trigger of a query on its page: cost, curve, suggestions, limits, outgrown cores."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from listeners.models import Latest, Progress, SlowBatch
from queries.domain.protocol import WarningCode
from queries.domain.triggers.batch_cost import FILE_MANAGER
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from tests.scenarios.stage import Stage
from tests.web.batches import batches
from tests.web.browserless import Page

ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
KAFKA: dict[str, Any] = {"kafka.bootstrap.servers": "h:9092"}


def kafka(**changes: Any) -> dict[str, Any]:
    return {
        "sources": [{"name": "ticks", "format": "kafka", "options": {**KAFKA, "subscribe": "in"}}],
        "sql": "SELECT key, value FROM ticks",
        "sink": {
            "format": "kafka",
            "output_mode": "update",
            "options": {**KAFKA, "topic": "out"},
        },
        **changes,
    }


def measured(stage: Stage, name: str, count: int = 30, *, every_s: float = 5) -> None:
    """Store batches of 100 ms and 0.1 ms a row whose sizes swing."""
    for number in range(count):
        rows = 2000 + 900 * ((number % 5) - 2)
        batches(
            stage.run(name),
            1,
            first=number,
            until=stage.now - timedelta(seconds=every_s * (count - number)),
            rows=rows // 2,
            duration_ms=100 + rows // 20,
        )


def slow(stage: Stage, name: str) -> None:
    """Store two slow batches, the shorter one with the driver's evidence."""
    run, now = stage.run(name), timezone.now()
    batches(run, 1, first=100, until=now, duration_ms=41_000)
    batches(run, 1, first=101, until=now, duration_ms=12_000)
    start = round(now.timestamp()) * 1_000
    times = {"submitted": start, "first_task": start + 8_000, "ended": start + 11_800}
    times |= {"longest_ms": 3_700, "median_ms": 3_600}
    SlowBatch.objects.create(
        driver=run.driver_id,
        seq=1,
        query=run.query_id,
        run=run.pk,
        batch=101,
        took_ms=12_000,
        at=now,
        body={
            "stages": [
                {"tasks": 4, "run_ms": 14_000, "longest_ms": 3_700, "median_ms": 3_600, **times}
            ],
            "cores": 4,
            "median_ms": 900,
        },
    )


@pytest.fixture
def delays(stage: Stage) -> Query:
    stage.application("kafkas", master="local[4]", connectors=["kafka"])
    query = stage.query("delays", "kafkas", **kafka())
    stage.up("delays", "kafkas")
    return query


def see(client: Client, person: User, name: str = "delays", *, form: str = "") -> Page:
    client.force_login(person)
    return Page(client, f"/queries/{name}/trigger/", form=form)


def test_it_shows_the_cost_the_curve_and_the_checkpoint_tax(
    client: Client, viewer: User, stage: Stage, delays: Query
) -> None:
    measured(stage, "delays")
    page = see(client, viewer)
    assert "29 batches of revision 1" in page.text
    assert "100 ms" in page.text
    assert "Checkpoint overhead" in page.text
    assert "advice-curve" in page.html
    assert "A shorter interval: 500 milliseconds" in page.text
    assert "Async progress tracking" in page.text
    for name in ("Processing time", "Once", "Continuous", "Real time"):
        assert name in page.text


@pytest.mark.parametrize(
    ("conf", "warnings", "says"),
    [
        ({}, [], "With an interval of 2 seconds it would be 5%"),
        ({FILE_MANAGER: ABORTABLE}, [], f"{FILE_MANAGER} is {ABORTABLE}."),
        (
            {},
            [WarningCode.NOT_FENCED.text("its classes are missing")],
            "Spark's file manager may write them.",
        ),
    ],
)
def test_log_entries_on_a_storage_that_cost_much_are_told_with_what_would_help(
    client: Client, viewer: User, stage: Stage, conf: Any, warnings: list[str], says: str
) -> None:
    stage.application("kafkas", master="local[4]", connectors=["kafka"], conf=conf)
    trigger = {"kind": "processing_time", "interval": "1 second"}
    stage.query("delays", "kafkas", **kafka(trigger=trigger))
    stage.up("delays", "kafkas")
    measured(stage, "delays", every_s=1)
    assert "log entries of a batch" not in see(client, viewer).text
    Checkpoint.objects.update(location="s3a://flights/delays")
    Run.objects.update(warnings=warnings)
    text = see(client, viewer).text
    assert "The log entries of a batch take 100 ms, 10% of the time." in text
    assert says in text


@pytest.mark.sql("queries.selectors.triggers.advice.slow_batches")
def test_slow_batches_have_a_sentence_and_missing_evidence_is_said(
    client: Client, viewer: User, stage: Stage, delays: Query
) -> None:
    batches(stage.run("delays"), 1, until=timezone.now(), duration_ms=900)
    assert "No batch of the last day took 1 s or more." in see(client, viewer).text
    slow(stage, "delays")
    text = see(client, viewer).text
    assert "there is no stage data for this batch" in text
    assert "Batch 101 took 12 s (median 900 ms): its tasks waited 8.1 s for one of 4 cores" in text
    assert "waiting for cores" in text


def test_a_query_that_never_ran_says_what_is_missing(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.query("rates")
    page = see(client, viewer, "rates")
    assert "0 batches with rows are known; at least 12" in page.text
    assert "A rate source cannot be read by a real-time trigger." in page.text
    assert "Suggestions" not in page.text


def test_only_an_author_is_offered_the_revision(
    client: Client, operator: User, author: User, stage: Stage, delays: Query
) -> None:
    measured(stage, "delays")
    assert "Save the revision" not in see(client, operator).text
    assert "Save the revision" in see(client, author).text


def change(client: Client, person: User, **fields: Any) -> Any:
    client.force_login(person)
    return client.post("/queries/delays/trigger/change/", fields, follow=True)


def offered(client: Client, person: User, key: str) -> str:
    """Return what the form of a suggestion sends."""
    html = see(client, person).html
    [choice] = re.findall(rf'name="suggestion" value="({key}-[0-9a-f]{{12}})"', html)
    return str(choice)


def test_one_click_makes_the_revision_and_says_when_it_takes_effect(
    client: Client, author: User, stage: Stage, delays: Query
) -> None:
    measured(stage, "delays")
    answer = change(client, author, suggestion=offered(client, author, "interval"), revision="1")
    assert "Revision 2 was saved" in answer.content.decode()
    assert "next restart" in answer.content.decode()
    newest = delays.revisions.order_by("-number")[0]
    assert newest.author == author.username
    assert newest.spec["trigger"]["interval"] == "500 milliseconds"
    assert stage.run("delays").revision.number == 1  # nothing runs differently unasked


def test_a_change_from_an_old_page_is_refused(
    client: Client, author: User, stage: Stage, delays: Query
) -> None:
    measured(stage, "delays")
    change(client, author, suggestion=offered(client, author, "interval"), revision="1")
    other = offered(client, author, "async_progress")
    stale = change(client, author, suggestion=other, revision="1")
    assert "revision 2 is the newest" in stale.content.decode()
    gone = change(client, author, suggestion="interval-of-9-hours", revision="2")
    assert "The advice has changed because of newer batches" in gone.content.decode()
    assert delays.revisions.count() == 2


def test_a_continuous_query_s_epochs_are_no_measure(
    client: Client, viewer: User, stage: Stage, delays: Query
) -> None:
    measured(stage, "delays")
    for row in Progress.objects.all():
        row.body["derived"] = "from the checkpoint"
        row.save()
    assert "0 batches with rows are known" in see(client, viewer).text


def lag(query: Query, partitions: int, topic: str = "in") -> None:
    for number in range(partitions):
        SourceLag.objects.create(
            query=query, source=topic, partition=number, latest=9, seen_at="2026-01-05T03:00Z"
        )


def test_partitions_that_outgrow_the_cores_are_named_in_the_head(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.application("small", master="local[4]", connectors=["kafka"])
    trigger = {"kind": "continuous", "interval": "1 second"}
    query = stage.query("grown", "small", **kafka(trigger=trigger))
    stage.up("grown", "small")
    lag(query, 4)
    lag(query, 3, topic="another")
    client.force_login(viewer)
    assert "core per source partition: in has" not in Page(client, "/queries/grown/").text
    SourceLag.objects.filter(source="in").delete()
    lag(query, 6)
    page = Page(client, "/queries/grown/")
    assert "in has 6; the application has 4 cores" in page.text
    assert "local[6]" in page.text


def test_partitions_of_the_newest_progress_are_seen_without_the_broker(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.application("small", master="local[1]", connectors=["kafka"])
    query = stage.query(
        "grown", "small", **kafka(trigger={"kind": "real_time", "interval": "5 seconds"})
    )
    stage.up("grown", "small")
    batches(stage.run("grown"), 1, until=stage.now)
    latest = Latest.objects.get(query=query.pk)
    ends = {"in": {"0": 4, "1": 5}}
    latest.progress = {**(latest.progress or {}), "sources": [{"endOffset": ends}]}
    latest.save()
    client.force_login(viewer)
    assert "in has 2; the application has 1 core." in Page(client, "/queries/grown/").text


def test_a_definition_that_nobody_can_read_any_more_says_so(
    client: Client, viewer: User, stage: Stage, delays: Query
) -> None:
    delays.revisions.update(spec={"kind": "sql", "gone": True})
    assert "can no longer be read" in see(client, viewer).text
