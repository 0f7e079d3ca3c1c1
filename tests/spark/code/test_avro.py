"""The recipe of the connector avro: its jar reads and writes Avro in the Spark under test."""

from pathlib import Path
from typing import Any

import pytest

from queries.domain.protocol import RunState
from tests.pieces import missing_connector, spark_version
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = pytest.mark.spark


def _query(source: dict[str, Any], sink: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [{"name": "rows", **source}],
        "sql": "SELECT value FROM rows",
        "sink": sink,
        "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
    }


def test_a_stream_is_written_as_avro_and_read_again(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    if missing := missing_connector("avro", spark_version()):
        pytest.skip(missing)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    rate = {"format": "rate", "options": {"rowsPerSecond": "5"}}
    avro = {"format": "avro", "options": {"path": str(first)}}
    driver.start(110, _query(rate, avro))
    again = {**avro, "schema": "value BIGINT"}
    parquet = {"format": "parquet", "options": {"path": str(second)}}
    driver.start(120, _query(again, parquet))
    for run in (110, 120):
        running = driver.wait_run(run, RunState.RUNNING, RunState.FAILED)
        assert running.state is RunState.RUNNING, running.error
    wait_for(lambda: (run := driver.run(120)) and (run.last_batch or 0) >= 1, "two batches read")
    assert [path for path in first.glob("*.avro") if path.stat().st_size]
