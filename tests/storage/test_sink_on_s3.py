"""A real driver, its checkpoint and file sink on S3: after a rewind, every row is there once."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queries.checkpoints.file_sink import is_part
from queries.domain.protocol import RunState
from queries.models.definitions import Checkpoint, Query
from queries.services.checkpoints import rewind_and_reset
from queries.storage.remote_sink import RemoteSink
from tests.spark.driver_under_test import DriverUnderTest, write_rows
from tests.storage.bench import Bench, bench
from tests.storage.fenced_drivers import launched
from tests.storage.stores import Store
from tests.storage.test_fence import S3

pytestmark = [pytest.mark.spark, pytest.mark.django_db]

__all__ = ["bench"]

FILES = 12  # one a batch: the log is compacted once, at batch 9


@pytest.fixture
def driver(tmp_path: Path, s3: Store) -> Iterator[DriverUnderTest]:
    made = launched(tmp_path / "driver", s3)
    try:
        made.ready()
        yield made
    finally:
        made.end()


@pytest.mark.parametrize("bench", [S3], indirect=True)
def test_after_a_rewind_spark_writes_the_batches_that_run_again_and_every_row_is_there_once(
    bench: Bench, driver: DriverUnderTest, tmp_path: Path
) -> None:
    out = bench.store.place("out")
    for number in range(FILES):
        write_rows(tmp_path / "in", f"f{number:02}.json", [{"v": number}])
        os.utime(tmp_path / "in" / f"f{number:02}.json", (number + 1, number + 1))  # in this order
    source = {
        "name": "numbers",
        "format": "json",
        "schema": "v INT",
        "options": {"path": str(tmp_path / "in"), "maxFilesPerTrigger": "1"},
    }
    spec: dict[str, Any] = {
        "kind": "sql",
        "sources": [source],
        "sql": "SELECT v FROM numbers",
        "sink": {"format": "json", "options": {"path": out}},
        "trigger": {"kind": "available_now"},
    }
    query = bench.stage.query("delays", **spec)
    Checkpoint.objects.filter(query=query).update(location=bench.location)
    run(driver, 11, query, spec)
    everything = Counter(range(FILES))
    assert (listed(bench, out), lying(bench, out)) == (everything, everything)

    bench.read()
    operation = rewind_and_reset.request_rewind(
        query=query, batch=6, actor="aude", now=timezone.now()
    )
    bench.done(operation)
    assert (listed(bench, out), lying(bench, out)) == (Counter(range(7)), Counter(range(7)))

    run(driver, 12, query, spec)
    assert (listed(bench, out), lying(bench, out)) == (everything, everything)
    aside = bench.files_in(f"{out}/_headgate/{operation.uuid}")
    assert len([name for name in aside if name.startswith("part-")]) == FILES - 7


def run(driver: DriverUnderTest, number: int, query: Query, spec: dict[str, Any]) -> None:
    """Run the query to the end of what there is."""
    location = Checkpoint.objects.get(query=query, retired_at=None).location
    driver.start(number, spec, checkpoint=location)
    ended = driver.wait_run(number, RunState.ENDED, RunState.FAILED)
    assert ended.state is RunState.ENDED, ended.error
    driver.drop(number)


def listed(bench: Bench, out: str) -> Counter[int]:
    """Return the values that a reader of the sink's log reads."""
    sink = RemoteSink(bench.jvm.storage, out, bench.jvm.socket.parent / "tmp")
    with sink.copied_log() as log:
        assert log is not None
        return values(bench, out, list(log.files()))


def lying(bench: Bench, out: str) -> Counter[int]:
    """Return the values that a reader reads who ignores the log."""
    return values(bench, out, [name for name in bench.files_in(out) if is_part(name)])


def values(bench: Bench, out: str, files: list[str]) -> Counter[int]:
    found = bench.jvm.storage.read(out, files, most=10_000)
    lines = (line for one in found.values() for line in one.data.decode().splitlines())
    return Counter(json.loads(line)["v"] for line in lines)
