"""The recipe of the connector avro: its jar reads and writes Avro in Spark 4.3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queries.domain.protocol import RunState
from tests.pieces import avro_jar
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = pytest.mark.spark


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverUnderTest]:
    jar = avro_jar()
    if jar is None:
        pytest.skip("the connector avro is missing; get it with `make connector ARGS=avro`")
    driver = DriverUnderTest(tmp_path)
    driver.launch(jars=(str(jar),))
    driver.ready()
    yield driver
    driver.end()


def _query(source: dict[str, Any], sink: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [{"name": "rows", **source}],
        "sql": "SELECT value FROM rows",
        "sink": sink,
        "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
    }


def test_a_stream_is_written_as_avro_and_read_again(driver: DriverUnderTest) -> None:
    first, second = driver.home / "first", driver.home / "second"
    first.mkdir()
    rate = {"format": "rate", "options": {"rowsPerSecond": "5"}}
    avro = {"format": "avro", "options": {"path": str(first)}}
    driver.start(10, _query(rate, avro))
    again = {**avro, "schema": "value BIGINT"}
    parquet = {"format": "parquet", "options": {"path": str(second)}}
    driver.start(20, _query(again, parquet))
    for run in (10, 20):
        running = driver.wait_run(run, RunState.RUNNING, RunState.FAILED)
        assert running.state is RunState.RUNNING, running.error
    wait_for(lambda: (run := driver.run(20)) and (run.last_batch or 0) >= 1, "two batches read")
    assert [path for path in first.glob("*.avro") if path.stat().st_size]
