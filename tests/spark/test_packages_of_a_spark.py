"""Spark 3.5 comes with its own NumPy and pandas, which every Python of its drivers imports."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queries.domain.hosts import Mode
from queries.domain.protocol import TMP, RunState, Want
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = pytest.mark.spark

USERS_CODE = """
import json
import tempfile

import numpy
import pandas
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StringType


def where(module):
    return f"{module.__file__} {module.__version__}"


@f.pandas_udf(StringType())
def of_numpy(values: pandas.Series) -> pandas.Series:
    return values.map(lambda _: where(numpy))


def counts(key, frames, state):
    rows = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((rows,))
    yield pandas.DataFrame({"key": [key[0]], "rows": [rows], "pandas": [where(pandas)]})


def stream(spark, params):
    frame = spark.readStream.format("rate").option("rowsPerSecond", "5").load()
    frame = frame.select((f.col("value") % 2).alias("key"), of_numpy("value").alias("numpy"))
    grouped = frame.groupBy("key", "numpy")
    frame = grouped.applyInPandasWithState(
        counts, "key LONG, rows LONG, pandas STRING", "rows LONG", "update",
        GroupStateTimeout.NoTimeout,
    )

    def write(batch, number):
        rows = [row.asDict() for row in batch.collect()]
        with open(f"{tempfile.gettempdir()}/seen.jsonl", "a") as seen:
            for row in rows:
                seen.write(json.dumps({**row, "driver": where(numpy)}) + "\\n")

    return frame.writeStream.outputMode("update").foreachBatch(write)
"""


def _driver(home: Path, walls: Mode) -> DriverUnderTest:
    code = home / "code-root"
    code.mkdir()
    (code / "users_code.py").write_text(USERS_CODE)
    driver = DriverUnderTest(home, walls=walls)
    roots, digest = driver.launcher.freeze_code((str(code),))
    driver.launch(
        code_roots=roots,
        code_sha256=digest,
        own_folders=(f"file://{home}",),
        checkpoints=(f"file://{home}/checkpoints/q1",),
    )
    driver.ready()
    return driver


@pytest.fixture(params=[Mode.NEITHER, pytest.param(Mode.BUBBLEWRAP, marks=pytest.mark.walls)])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DriverUnderTest]:
    one = _driver(tmp_path, request.param)
    yield one
    one.end()


def _expected(module: str) -> str:
    """Return the place and version of a module, in a Python that finds the version's folder."""
    program = f"import {module} as it; print(it.__file__, it.__version__)"
    command = [sys.executable, "-P", "-c", program]
    env = {"PATH": "/usr/bin:/bin", **pieces.of_spark()}
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    return found.stdout.strip()


def test_functions_on_pandas_run_with_the_packages_of_their_spark(driver: DriverUnderTest) -> None:
    at = driver.directory / "own" / TMP / "seen.jsonl"
    driver.start(10, {"kind": "python", "function": "users_code:stream"})
    driver.wait_run(10, RunState.RUNNING)

    def counted() -> dict[str, Any] | None:
        rows = [json.loads(line) for line in at.read_text().splitlines()] if at.exists() else []
        return next((row for row in rows if row["rows"] > 5), None)

    row = wait_for(counted, "the state has counted")
    assert row["pandas"] == _expected("pandas")
    assert row["driver"] == _expected("numpy")
    if pieces.spark_version() == "3.5":
        assert row["pandas"].startswith(f"{pieces.spark()}/pandas/")
        assert row["driver"].split()[1].startswith("1.")
    driver.request_end(10, Want.STOP)
    driver.wait_run(10, RunState.ENDED)
