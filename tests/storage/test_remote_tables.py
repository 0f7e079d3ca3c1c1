"""The log of a table on S3 and on HDFS is read through the application's storage JVM."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queries.domain.tables.metadata import checksum_name, commit_name
from queries.models.definitions import Query
from queries.models.schedules import PlannedRun, ScheduleState
from queries.selectors.kafka.lag import lag_of
from queries.services import tables
from queries.services.arrivals import look_at_folders
from queries.services.checkpoints import preview
from queries.services.checkpoints.remote import NotReadYet
from queries.services.schedules import ticks
from tests.domain.tables.logs import TABLE, add, checksum, commit
from tests.storage.bench import Bench, bench

pytestmark = pytest.mark.django_db

__all__ = ["bench"]


@pytest.fixture
def table(bench: Bench) -> str:
    """A Delta table with the versions 0 to 3 on the storage."""
    place = bench.store.place("table")
    for version in range(4):
        write_version(bench, place, version)
    return place


def write_version(bench: Bench, place: str, version: int, txns: Any = ()) -> None:
    text = commit(timezone.now(), add(str(version), 1000))
    bench.jvm.storage.write(place, f"_delta_log/{commit_name(version)}", text)
    bench.jvm.storage.write(place, f"_delta_log/{checksum_name(version)}", checksum(txns=txns))


def define(bench: Bench, place: str) -> Query:
    """Define a query that has read the table's versions 0 and 1, and writes to it as well."""
    query = bench.define(local=True)
    part = {"format": "delta", "options": {"path": place}}
    revision = query.revisions.get()
    revision.spec |= {"sources": [{"name": "t", **part}], "sink": part}
    revision.save()
    offset = {"sourceVersion": 1, "reservoirId": TABLE, "reservoirVersion": 2, "index": -1}
    log = Path(bench.mine) / "offsets" / "9"
    lines = log.read_text().split("\n")
    log.write_text("\n".join([*lines[:2], json.dumps({**offset, "isStartingVersion": False})]))
    return query


def look(bench: Bench, query: Query, **more: Any) -> None:
    tables.look_at_tables(launcher=bench.stage.launcher, **{"now": timezone.now(), **more})


def test_the_lag_is_read_now_and_then_and_at_once_when_somebody_looks(
    bench: Bench, table: str
) -> None:
    query = define(bench, table)
    look(bench, query)
    (line,) = lag_of(query, now=timezone.now()).tables
    assert (line.lag.versions, line.lag.files, line.lag.bytes) == (2, 2, 2000)
    write_version(bench, table, 4)
    look(bench, query)
    assert lag_of(query, now=timezone.now()).tables[0].lag.versions == 2
    look(bench, query, query_ids=[query.pk])
    assert lag_of(query, now=timezone.now()).tables[0].lag.versions == 3
    write_version(bench, table, 5)
    look(bench, query, now=timezone.now() + timedelta(minutes=11))
    assert lag_of(query, now=timezone.now()).tables[0].lag.versions == 4


def test_a_preview_waits_for_the_worker_and_names_the_batches_in_the_table(
    bench: Bench, table: str
) -> None:
    query = define(bench, table)
    identity = json.loads((Path(bench.mine) / "metadata").read_text())["id"]
    write_version(bench, table, 4, [(identity, 9)])
    with pytest.raises(NotReadYet, match="is being read"):
        preview.preview_rewind(query, 6)
    bench.read_sink()
    said = preview.preview_rewind(query, 6).sink[0]
    assert "has the batches of this query up to 9. Batches 7 to 9 will run again" in said


def test_files_that_arrive_on_a_storage_start_a_query(bench: Bench) -> None:
    inbox = bench.store.place("inbox")
    ending: dict[str, Any] = {"trigger": {"kind": "available_now"}}
    query = bench.stage.query("orders", **ending, schedule={"files": inbox, "quiet_period_s": 10})
    ticks.follow_schedule(query.revisions.get())
    now = timezone.now()

    def totals() -> dict[str, Any]:
        look_at_folders(launcher=bench.stage.launcher, now=now)
        state = ScheduleState.objects.get()
        assert state.problem == ""
        found: dict[str, Any] = state.totals
        return found

    assert totals()["files"] == 0
    for name in ("a.json", "_spark_metadata/0", "day=1/b.json"):
        bench.jvm.storage.write(inbox, name, b"{}")
    now += timedelta(seconds=61)
    assert (totals()["files"], totals()["bytes"]) == (2, 4)
    ticks.run_schedules(now=now + timedelta(seconds=9))
    assert not PlannedRun.objects.exists()
    ticks.run_schedules(now=now + timedelta(seconds=11))
    assert PlannedRun.objects.get().state == "STARTED"
