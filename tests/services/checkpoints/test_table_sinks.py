"""What a rewind, reset, clone or go-on will do to a query's table is said before, with numbers."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.errors import NotAllowed
from queries.domain.tables.metadata import checksum_name, commit_name
from queries.models.definitions import Checkpoint, Query
from queries.services.checkpoints.preview import (
    on_go_on,
    preview_clone,
    preview_reset,
    preview_rewind,
)
from queries.services.checkpoints.rewind_and_reset import request_reset, request_rewind
from queries.services.checkpoints.source_starts import WantedStart
from tests.domain.tables.logs import ICEBERG_QUERY, QUERY, add, checksum, commit, iceberg, snapshot
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db


@pytest.fixture
def delays(stage: Stage, tmp_path: Path) -> Query:
    """A query with the batches 0 to 4 in its checkpoint and 0 to 5 in its Delta table."""
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    for batch in range(6):
        (log / commit_name(batch)).write_bytes(commit(timezone.now(), add(str(batch)), batch=batch))
    (log / checksum_name(5)).write_bytes(checksum(txns=[(QUERY, 5)]))
    return made(
        stage, tmp_path, QUERY, {"format": "delta", "options": {"path": str(tmp_path / "t")}}
    )


def made(stage: Stage, tmp_path: Path, identity: str, sink: dict[str, Any], **spec: Any) -> Query:
    """Make a query over the source `rate` that has begun batch 5."""
    query = stage.query("delays", sink=sink, **spec)
    place = tmp_path / "checkpoint"
    Checkpoint.objects.filter(query=query).update(location=place.as_uri())
    place.mkdir()
    (place / "metadata").write_text(json.dumps({"id": identity}))
    for folder, last in (("offsets", 5), ("commits", 4)):
        (place / folder).mkdir()
        for batch in range(last + 1):
            text = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n7'
            commits = 'v1\n{"nextBatchWatermarkMs":0}'
            (place / folder / str(batch)).write_text(text if folder == "offsets" else commits)
    return query


def test_a_rewind_names_the_batches_that_the_table_skips(delays: Query) -> None:
    first, second = preview_rewind(delays, 2).sink
    assert "has the batches of this query up to 5. Batches 3 to 5 will run again" in first
    assert "batch 3 reads all that its source offers now" in second


@pytest.mark.guarantee("G-STORE-3")
def test_no_state_is_led_past_batches_that_a_delta_table_does_not_compute(
    delays: Query, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint" / "state" / "0").mkdir(parents=True)
    refusal = preview_rewind(delays, 2).refusal
    assert "would skip batches 3 to 5 without computing them" in refusal
    assert "batch 6 would fail" in refusal
    now = timezone.now()
    with pytest.raises(NotAllowed, match="batches 3 to 5") as refused:
        request_rewind(query=delays, batch=2, actor="aude", now=now)
    assert "Clone the query to a new table" in refused.value.way_out
    with pytest.raises(NotAllowed, match="batches 0 to 5"):
        request_reset(query=delays, wish=WantedStart("earliest"), actor="aude", now=now)
    (tmp_path / "t" / "_delta_log").rename(tmp_path / "gone")
    assert preview_rewind(delays, 2).refusal == ""
    assert "is unknown" in preview_rewind(delays, 2).sink[0]


def test_a_reset_of_a_stateless_query_goes_on_with_its_numbers(delays: Query) -> None:
    (said,) = preview_reset(delays, WantedStart("earliest")).sink
    assert "The next batch is 6, so nothing is skipped" in said


def test_a_reset_of_a_stateful_query_is_skipped(delays: Query, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "state" / "0").mkdir(parents=True)
    (said,) = preview_reset(delays, WantedStart("earliest")).sink
    assert "the table skips batches 0 to 5, whatever they contain" in said


def test_a_clone_is_never_skipped(delays: Query) -> None:
    (said,) = preview_clone(delays, same_sink=True).sink
    assert "rows that are written under both IDs are in the table twice" in said
    (said,) = preview_clone(delays, same_sink=False).sink
    assert "has a new ID" in said


def test_going_on_names_the_batch_that_was_written_before_it_could_commit(delays: Query) -> None:
    (said,) = on_go_on(delays)
    assert "Batch 5 was written before Spark could commit it, so the table skips it" in said


def test_an_iceberg_table_is_read_by_its_snapshots(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "db" / "t" / "metadata"
    folder.mkdir(parents=True)
    rows = [snapshot(number, timezone.now(), batch=number + 2) for number in (1, 2)]
    (folder / "v2.metadata.json").write_bytes(iceberg(*rows))
    (folder / "version-hint.text").write_text("2")
    conf = {
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(tmp_path / "lake"),
    }
    sink = {"format": "iceberg", "options": {"table": "ice.db.t"}}
    query = made(stage, tmp_path, ICEBERG_QUERY, sink, conf=conf)
    said = preview_rewind(query, 2).sink
    assert said[0].startswith("Table ice.db.t has the batches of this query up to 4.")
    assert said[-1] == "Batch 5 will be added: the table has no batch with that number."


def test_a_table_that_cannot_be_read_hides_no_preview(
    delays: Query, tmp_path: Path, settings: Any
) -> None:
    (tmp_path / "t" / "_delta_log").rename(tmp_path / "away")
    (said,) = preview_rewind(delays, 2).sink
    assert "is unknown: There is no Delta table at" in said
    settings.ALLOWED_PATHS = [str(tmp_path / "data")]
    (said,) = preview_rewind(delays, 2).sink
    assert "is outside the allowed paths" in said
    (tmp_path / "checkpoint" / "metadata").write_text("{half")
    settings.ALLOWED_PATHS = ["/"]
    (said,) = preview_rewind(delays, 2).sink
    assert "the query's ID is not in its checkpoint" in said


def test_without_checksums_the_newest_commits_are_searched(delays: Query, tmp_path: Path) -> None:
    (tmp_path / "t" / "_delta_log" / checksum_name(5)).unlink()
    assert "up to 5" in preview_rewind(delays, 2).sink[0]


def test_batches_are_found_although_older_commits_were_removed(
    delays: Query, tmp_path: Path
) -> None:
    log = tmp_path / "t" / "_delta_log"
    (log / checksum_name(5)).unlink()
    (log / commit_name(6)).write_bytes(commit(timezone.now(), add("of another writer")))
    for version in range(4):
        (log / commit_name(version)).unlink()
    assert "up to 5" in preview_rewind(delays, 2).sink[0]


def test_the_pages_and_rest_say_it(client: Client, author: User, delays: Query) -> None:
    client.force_login(author)
    assert "Batches 3 to 5 will run again" in Page(client, "/queries/delays/rewind/?batch=2").text
    reset = Page(client, "/queries/delays/reset/?to=earliest").text
    assert "The next batch is 6" in reset
    assert "A Delta table does not skip these rows" in Page(client, "/queries/delays/clone/").text
    url, post = "/api/v1/queries/delays/", partial(client.post, content_type="application/json")
    told = post(f"{url}rewind/", {"batch": 2, "dry_run": True}).json()
    assert "Batches 3 to 5" in told["sink"][0]
    clone = {"name": "again", "same_sink": True, "dry_run": True}
    told = post(f"{url}clone/", clone).json()
    assert (told["verb"], "twice" in told["sink"][0]) == ("clone", True)
    told = post(f"{url}go-on/", {"offsets": 1, "dry_run": True}).json()
    assert "Batch 5 was written" in told["sink"][0]
