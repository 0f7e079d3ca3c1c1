"""What `make try-containers` says about a sink: which rows are missing, which are there twice."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests import pieces

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).resolve().parents[2]
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
SQL = "SELECT timestamp, value, value % 2 = 0 AS even FROM ticks"


def _checkpoint(folder: Path) -> Path:
    """Return a checkpoint of `rate`: its second batch ends two seconds after it began."""
    began_ms = int(BEGAN.timestamp() * 1000)
    for name, text in {
        "sources/0/0": f"v1\n{began_ms}",
        "offsets/0": "v1\n{}\n1",
        "offsets/1": "v1\n{}\n2",
        "commits/0": "v1\n{}",
        "commits/1": "v1\n{}",
    }.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def _sink(folder: Path, values: list[int]) -> Path:
    folder.mkdir()
    rows = [
        {
            "timestamp": BEGAN + value * timedelta(milliseconds=100),
            "value": value,
            "even": value % 2 == 0,
        }
        for value in values
    ]
    table = pa.Table.from_pylist(rows)
    times = table["timestamp"].cast(pa.timestamp("us", tz="UTC"))
    parquet.write_table(table.set_column(0, "timestamp", times), folder / "part-0.parquet")
    return folder


@pytest.mark.parametrize(
    ("values", "missing", "too_many"),
    [
        (list(range(20)), 0, 0),
        ([*range(7), *range(8, 20), 12], 1, 1),
    ],
    ids=["whole", "one missing and one twice"],
)
def test_a_sink_is_compared_with_a_batch_over_the_same_input(
    tmp_path: Path, values: list[int], missing: int, too_many: int
) -> None:
    sink, checkpoint = _sink(tmp_path / "sink", values), _checkpoint(tmp_path / "checkpoint")
    done = subprocess.run(
        [sys.executable, "bootstrap/sink_check.py", str(sink), str(checkpoint), "10", SQL],
        cwd=REPOSITORY,
        env={**os.environ, "JAVA_HOME": str(pieces.java().home), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["batches"] == 2
    assert (found["rows"], found["expected"]) == (20, 20)
    assert (found["missing"], found["too_many"]) == (missing, too_many)
