"""What a look at tables writes: rows and risk; one table that cannot be read holds no other."""

import json
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from listeners.models import Latest
from queries.domain.kafka.retention import span
from queries.domain.tables.metadata import checksum_name, commit_name
from queries.models.applications import Application
from queries.models.checkpoints import TABLE, SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.selectors.kafka.lag import lag_lines, lag_of
from queries.selectors.kafka.sources import ReportedOffsets
from queries.services import tables
from queries.services.checkpoints.storage_jvms import storage_of_table
from queries.services.kafka.lag import look_at_sources
from queries.services.kafka.lag_rows import write_reported
from queries.services.tables import look_at_tables
from queries.storage import table_logs
from queries.storage.hadoop import StorageFailed
from tests.conftest_brokers import Brokers, brokers, said
from tests.domain.tables.logs import TABLE as TABLE_ID
from tests.domain.tables.logs import add, checksum, commit, iceberg, snapshot
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

__all__ = ["brokers"]

pytestmark = pytest.mark.django_db

#: Real time, which the rates of two looks and the pages use.
NOW = timezone.now().replace(microsecond=0)
HOUR = timedelta(hours=1)

Make = Callable[..., Query]


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BEGAN", "_DELTA", "_ICEBERG", "_TRIED"):
        monkeypatch.setattr(tables, name, {})
    monkeypatch.setattr(tables, "_WAITING", set())


@pytest.fixture
def make(tmp_path: Path, stage: Stage) -> Make:
    """Make queries over sources whose checkpoints have committed the offsets given."""

    def query(name: str, *offsets: Any, sources: list[dict[str, Any]], **spec: Any) -> Query:
        named = [{"name": f"s{number}", **one} for number, one in enumerate(sources)]
        row = stage.query(name, sources=named, **spec)
        place = tmp_path / "checkpoints" / name
        Checkpoint.objects.filter(query=row).update(location=place.as_uri())
        if offsets:
            write_batch(place, 0, *offsets)
        return row

    return query


def write_batch(place: Path, batch: int, *offsets: Any) -> None:
    """Commit a batch that ends at these offsets."""
    for folder in ("offsets", "commits"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    lines = [
        "v1",
        '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}',
        *map(json.dumps, offsets),
    ]
    (place / "offsets" / str(batch)).write_text("\n".join(lines))
    (place / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def write_version(table: Path, version: int, *files: str, at: Any = NOW, **conf: str) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / commit_name(version)).write_bytes(commit(at, *(add(name, 1000) for name in files)))
    (log / checksum_name(version)).write_bytes(checksum(**conf))
    # Delta decides by the files' own times what it can remove.
    os.utime(log / commit_name(version), (NOW.timestamp(), NOW.timestamp()))


def delta(path: Path) -> dict[str, Any]:
    return {"format": "delta", "options": {"path": str(path)}}


def at(version: int, index: int = -1, table: str = TABLE_ID) -> dict[str, Any]:
    return {
        "sourceVersion": 1,
        "reservoirId": table,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": False,
    }


def look(stage: Stage, **more: Any) -> None:
    look_at_tables(launcher=stage.launcher, **{"now": NOW, **more})


def test_a_stopped_query_has_its_lag_in_versions_files_and_bytes(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    for version in range(4):
        write_version(tmp_path / "t", version, f"{version}a", f"{version}b", at=NOW - HOUR)
    query = make("delays", at(2, 0), sources=[delta(tmp_path / "t")])
    look(stage)
    (table,) = lag_of(query, now=NOW).tables
    assert (table.lag.versions, table.lag.files, table.lag.bytes) == (2, 3, 3000)
    assert (table.seconds, table.row.error) == (3600.0, "")
    # Delta removes whole days: what is 30 days old at a midnight.
    end = NOW + timedelta(days=31, microseconds=-1)
    midnight = end.replace(hour=0, minute=0, second=0, microsecond=0)
    assert table.expires.startswith(f"In {span(midnight - NOW)}, the commit of version 2 ")
    line = lag_lines([query.pk], now=NOW)[query.pk]
    assert (line.records, line.unit, line.seconds, line.current) == (2, "versions", 3600.0, True)


def test_the_rates_follow_from_two_looks(make: Make, stage: Stage, tmp_path: Path) -> None:
    write_version(tmp_path / "t", 0, "a")
    query = make("delays", at(0), sources=[delta(tmp_path / "t")])
    look(stage)
    for version in range(1, 11):
        write_version(tmp_path / "t", version, f"{version}")
    look(stage, now=NOW + timedelta(seconds=10))
    row = SourceLag.objects.get(query=query)
    assert (row.latest, row.arrival_rate) == (11, 1.0)


def at_risk(make: Make, stage: Stage, tmp_path: Path) -> Query:
    """Make and look at a query whose next version is older than the log's retention."""
    conf = {"delta.logRetentionDuration": "interval 2 days"}
    write_version(tmp_path / "t", 0, "a", at=NOW - timedelta(days=4), **conf)
    query = make("delays", at(0), sources=[delta(tmp_path / "t")])
    old = (NOW - timedelta(days=4)).timestamp()
    os.utime(tmp_path / "t" / "_delta_log" / commit_name(0), (old, old))
    look(stage)
    return query


def test_a_query_that_will_lose_a_version_is_at_risk(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    query = at_risk(make, stage, tmp_path)
    query.refresh_from_db()
    assert "From now on, the commit of version 0 can be removed from the table's log" in query.risk
    write_batch(tmp_path / "checkpoints" / "delays", 1, at(1))
    look(stage, now=NOW + timedelta(seconds=5))
    query.refresh_from_db()
    assert (query.risk, query.risk_at) == ("", None)


def test_versions_that_are_gone_are_a_loss_until_the_query_has_gone_on(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    for version in (5, 6):
        write_version(tmp_path / "t", version, f"{version}")
    query = make("delays", at(3), sources=[delta(tmp_path / "t")])
    (tmp_path / "t" / "_delta_log" / "_last_checkpoint").write_text('{"version":6,"size":3}')
    look(stage)
    query.refresh_from_db()
    assert "versions 3 to 4 were removed from the table's log before the query" in query.risk
    (table,) = lag_of(query, now=NOW).tables
    assert table.row.earliest == 5


def test_an_iceberg_table_is_found_by_its_catalog(make: Make, stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "db" / "flights" / "metadata"
    folder.mkdir(parents=True)
    rows = [snapshot(number, NOW - HOUR, size=500) for number in (1, 2, 3)]
    (folder / "v3.metadata.json").write_bytes(iceberg(*rows))
    (folder / "version-hint.text").write_text("3")
    offset = {"version": 1, "snapshot_id": 1_000_003, "position": 1, "scan_all_files": False}
    source = {"format": "iceberg", "options": {"table": "ice.db.flights"}}
    conf = {
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(tmp_path / "lake"),
    }
    query = make("delays", offset, sources=[source], conf=conf)
    look(stage)
    (table,) = lag_of(query, now=NOW).tables
    assert (table.row.source, table.lag.versions, table.lag.files, table.lag.bytes) == (
        "ice.db.flights",
        2,
        2,
        1000,
    )


def test_a_table_that_cannot_be_read_keeps_its_numbers_and_holds_no_other(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    write_version(tmp_path / "t", 0, "a")
    write_version(tmp_path / "u", 0, "a")
    query = make("delays", at(0), sources=[delta(tmp_path / "t")])
    other = make("arrivals", at(0), sources=[delta(tmp_path / "u")])
    look(stage)
    (tmp_path / "t" / "_delta_log").rename(tmp_path / "away")
    look(stage, now=NOW + HOUR)
    (table,) = lag_of(query, now=NOW).tables
    assert table.row.error == f"There is no Delta table at {(tmp_path / 't').as_uri()}."
    assert (table.lag.versions, table.row.seen_at) == (1, NOW)
    assert lag_of(other, now=NOW).tables[0].row.seen_at == NOW + HOUR


def test_numbers_that_do_not_change_are_written_now_and_then(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    write_version(tmp_path / "t", 0, "a")
    query = make("delays", at(0), sources=[delta(tmp_path / "t")])
    for seconds, seen in ((0, 0), (5, 0), (35, 35)):
        look(stage, now=NOW + timedelta(seconds=seconds))
        assert SourceLag.objects.get(query=query).seen_at == NOW + timedelta(seconds=seen)
    write_version(tmp_path / "t", 1, "b")
    look(stage, now=NOW + timedelta(seconds=40))
    assert SourceLag.objects.get(query=query).latest == 2


def test_before_the_first_batch_nothing_is_claimed(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    write_version(tmp_path / "t", 0, "a")
    query = make("delays", sources=[delta(tmp_path / "t")])
    look(stage)
    (table,) = lag_of(query, now=NOW).tables
    assert table.lag.versions is None
    assert table.row.error.startswith("No batch has committed yet")
    assert query.pk not in lag_lines([query.pk], now=NOW)


def test_a_table_outside_the_data_roots_is_not_read(
    make: Make, stage: Stage, tmp_path: Path, settings: Any
) -> None:
    settings.ALLOWED_PATHS = [str(tmp_path / "data")]
    write_version(tmp_path / "t", 0, "a")
    query = make("delays", at(0), sources=[delta(tmp_path / "t")])
    look(stage)
    (table,) = lag_of(query, now=NOW).tables
    assert "is outside the allowed paths" in table.row.error
    assert table.lag.latest is None


def test_of_two_tables_each_has_the_offset_that_names_it(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    for number, name in enumerate("tu"):
        log = tmp_path / name / "_delta_log"
        log.mkdir(parents=True)
        for version in range(3):
            (log / commit_name(version)).write_bytes(commit(NOW, add(f"{version}")))
        text = checksum().replace(TABLE_ID.encode(), f"table-{number}".encode())
        (log / checksum_name(2)).write_bytes(text)
    sources = [delta(tmp_path / "t"), delta(tmp_path / "u")]
    offsets = at(3, table="table-1"), at(1, table="table-0")
    query = make("delays", *offsets, sources=sources)
    look(stage)
    assert [one.lag.versions for one in lag_of(query, now=NOW).tables] == [2, 0]


def test_the_lags_of_topics_and_tables_of_one_query_leave_each_other_alone(
    make: Make, stage: Stage, tmp_path: Path, brokers: Brokers, settings: Any
) -> None:
    settings.BROKER_HOSTS = ["*"]
    write_version(tmp_path / "t", 0, "a", at=NOW - HOUR)
    options = {"kafka.bootstrap.servers": "one:9092", "subscribe": "flights"}
    query = make(
        "delays",
        {"flights": {"0": 100}},
        at(0),
        sources=[{"format": "kafka", "options": options}, delta(tmp_path / "t")],
    )
    brokers.said["one:9092"] = said({0: (0, 150)}, written=NOW - timedelta(minutes=20))
    for seconds in (0, 5):
        look(stage, now=NOW + timedelta(seconds=seconds))
        look_at_sources(now=NOW + timedelta(seconds=seconds), readers=brokers)
    assert SourceLag.objects.filter(query=query).count() == 2
    line = lag_lines([query.pk], now=NOW)[query.pk]
    assert (line.records, line.unit, line.seconds) == (50, "records", 3600.0)
    assert line.tables is not None
    assert line.tables.versions == 1
    query.refresh_from_db()
    assert "unread records of flights-0" in query.risk


def test_a_query_that_no_longer_reads_a_table_has_no_lag(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    write_version(tmp_path / "t", 0, "a")
    query = make("delays", at(0), sources=[delta(tmp_path / "t")])
    look(stage)
    look_at_sources(now=NOW, readers=Brokers())
    assert SourceLag.objects.filter(query=query, partition=TABLE).exists()
    stage.query("others")
    query.revisions.update(spec={"kind": "sql", "sources": []})
    look(stage)
    assert not SourceLag.objects.exists()


def test_a_definition_that_cannot_be_read_keeps_its_row_and_leaves_the_others_theirs(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    write_version(tmp_path / "t", 0, "a")
    query = make("delays", at(0), sources=[delta(tmp_path / "t")])
    other = make("arrivals", at(0), sources=[delta(tmp_path / "t")])
    look(stage)
    query.revisions.update(spec={"kind": "sql", "sources": [{"format": "delta", "options": 5}]})
    look(stage, now=NOW + HOUR)
    assert SourceLag.objects.get(query=query).seen_at == NOW
    assert SourceLag.objects.get(query=other).seen_at == NOW + HOUR


def test_a_table_that_only_code_knows_is_named_by_its_progress(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    write_version(tmp_path / "t", 0, "a")
    query = make("by-code", at(0), sources=[], kind="python", function="m:f", sink=None)
    query.revisions.update(kind="python")
    stage.up("by-code")
    run = stage.run("by-code")
    source = {"description": f"DeltaSource[{(tmp_path / 't').as_uri()}]", "endOffset": at(0)}
    Latest.objects.create(
        query=query.pk,
        driver=run.driver_id,
        epoch=run.epoch,
        seq=1,
        run=run.pk,
        at=NOW,
        progress={"runId": run.spark_run_id, "batchId": 0, "sources": [source]},
        progress_run=run.pk,
    )
    look(stage)
    assert lag_of(query, now=NOW).tables[0].lag.versions == 1
    stage.stop("by-code")
    Query.objects.filter(pk=query.pk).update(phase="STOPPED")
    Latest.objects.all().delete()
    write_version(tmp_path / "t", 1, "b")
    look(stage, now=NOW + HOUR)
    assert lag_of(query, now=NOW).tables[0].lag.versions == 2


def test_the_page_and_rest_show_the_lag_of_tables(
    client: Client, viewer: User, make: Make, stage: Stage, tmp_path: Path
) -> None:
    for version in range(3):
        write_version(tmp_path / "t", version, f"{version}", at=NOW - HOUR)
    make("delays", at(1), sources=[delta(tmp_path / "t")])
    look(stage)
    client.force_login(viewer)
    page = Page(client, "/queries/delays/lag/")
    for words in (str(tmp_path / "t"), "Versions behind", "2.0 KB", "delta.logRetentionDuration"):
        assert words in page.text, words
    (table,) = client.get("/api/v1/queries/delays/lag/").json()["tables"]
    assert (table["versions"], table["files"], table["bytes"]) == (2, 2, 2000)
    assert (table["table_format"], table["committed"], table["latest"]) == ("delta", 1, 3)
    told = client.get("/api/v1/queries/delays/").json()["lag"]
    assert (told["unit"], told["tables"]["files"]) == ("versions", 2)


def test_a_table_that_cannot_be_read_makes_the_whole_lag_unknown_not_zero(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    write_version(tmp_path / "t", 0, "a")
    sources = [delta(tmp_path / "t"), delta(tmp_path / "missing")]
    query = make("delays", at(0, 0), sources=sources)
    look(stage)
    line = lag_lines([query.pk], now=NOW)[query.pk]
    assert (line.records, line.seconds) == (None, None)


def test_a_table_whose_storage_does_not_answer_does_not_keep_others_from_being_read(
    make: Make, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        write_version(tmp_path / name, 0, "a")
        make(name, at(0), sources=[delta(tmp_path / name)])
    look(stage)
    clock, real = Clock(), storage_of_table

    def slow(place: Any, *more: Any, **named: Any) -> Any:
        if place.location.endswith("/a"):
            clock.at += 60
            raise StorageFailed("timeout")
        return real(place, *more, **named)

    monkeypatch.setattr(tables, "time", clock)
    monkeypatch.setattr(tables, "storage_of_table", slow)
    for minute in (1, 2, 3):
        look(stage, now=NOW + timedelta(minutes=minute))
    assert SourceLag.objects.get(query__name="b").seen_at >= NOW + timedelta(minutes=2)


class Clock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at


def test_only_the_host_of_a_query_reads_its_tables(
    make: Make, stage: Stage, tmp_path: Path, settings: Any
) -> None:
    write_version(tmp_path / "t", 0, "a")
    query = make("delays", at(0), sources=[delta(tmp_path / "t")])
    stage.up("delays")
    Application.objects.update(host="b")
    settings.HEADGATE_HOST = "b"
    look(stage)
    settings.HEADGATE_HOST = "a"
    shutil.rmtree(tmp_path / "t")
    look(stage, query_ids=[query.pk], now=NOW + HOUR)
    row = SourceLag.objects.get(query=query)
    assert (row.error, row.seen_at) == ("", NOW)


def test_a_pass_over_kafka_keeps_the_risk_that_a_table_has(
    make: Make, stage: Stage, tmp_path: Path
) -> None:
    query = at_risk(make, stage, tmp_path)
    write_reported(ReportedOffsets(query=query, committed={"x": {0: 1}}, latest={"x": {0: 5}}), NOW)
    query.refresh_from_db()
    assert "the commit of version 0" in query.risk


def test_two_queries_of_one_table_both_know_their_whole_backlog(
    make: Make, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_logs, "COMMITS_PER_PASS", 20)
    for version in range(60):
        write_version(tmp_path / "t", version, "a")
    behind = make("behind", at(0, 0), sources=[delta(tmp_path / "t")])
    make("ahead", at(59, 0), sources=[delta(tmp_path / "t")])
    for second in range(6):
        look(stage, now=NOW + timedelta(seconds=second))
    tables = lag_lines([behind.pk], now=NOW)[behind.pk].tables
    assert tables is not None
    assert tables.files == 59
