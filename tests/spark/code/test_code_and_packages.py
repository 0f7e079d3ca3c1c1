"""A real driver imports uploaded code and installed packages, and so do Spark's Python workers."""

from pathlib import Path

import pyarrow.parquet
import pytest

from queries.domain.protocol import RunState, Want
from queries.services.code.uploads import Unpacked
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = pytest.mark.spark


def test_a_query_of_uploaded_code_uses_its_packages_in_driver_and_workers(
    driver: DriverUnderTest, upload: Unpacked, code_dir: Path, tmp_path: Path
) -> None:
    assert driver.spec.code_sha256 == upload.sha256
    # It lies where it is run from.
    assert driver.spec.code_roots == (str(code_dir / upload.sha256 / "0"),)
    out = tmp_path / "out"
    driver.start(10, {"kind": "python", "function": "job:build", "params": {"out": str(out)}})
    running = driver.wait_run(10, RunState.RUNNING, RunState.FAILED)
    assert running.state is RunState.RUNNING, running.error

    wait_for(lambda: (run := driver.run(10)) and (run.last_batch or 0) >= 2, "two batches")
    driver.request_end(10, Want.DRAIN)
    driver.wait_run(10, RunState.ENDED, RunState.FAILED)
    found = pyarrow.parquet.read_table(out).to_pylist()
    assert found[0]["vectorized"].startswith("dark ")
    assert found[0]["plain"] == f"so {found[0]['vectorized']} packaging"
