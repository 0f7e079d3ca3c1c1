"""A real driver imports uploaded code and installed packages, and so do Spark's Python workers."""

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from pytest_django.fixtures import Settings

from queries.code_roots import kept_root
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.protocol import RunState, Want
from queries.selectors.code import packages_folder
from queries.services.code import packages
from queries.services.code.unpacking import unpack
from tests.services.code.archives import packed
from tests.services.code.wheels import wheel
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = pytest.mark.spark

JOB = """
import hgcolours
from pyspark.sql.functions import pandas_udf, udf

from shared.words import PREFIX


def build(spark, params):
    assert hgcolours.shade(1) == "dark 1"

    @udf("string")
    def plain(value):
        import hgcolours, packaging
        return f"{PREFIX} {hgcolours.shade(value)} {packaging.__name__}"

    @pandas_udf("string")
    def vectorized(values):
        import hgcolours
        return values.map(hgcolours.shade)

    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    rows = rows.select(plain("value").alias("plain"), vectorized("value").alias("vectorized"))
    return rows.writeStream.format("parquet").option("path", params["out"])
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverUnderTest]:
    driver = DriverUnderTest(tmp_path)
    yield driver
    driver.end()


def test_a_query_of_uploaded_code_uses_its_packages_in_driver_and_workers(
    driver: DriverUnderTest,
    tmp_path: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.CODE_DIR, settings.PACKAGES_DIR = tmp_path / "code", tmp_path / "packages"
    shelf = tmp_path / "shelf"
    wheel(
        shelf,
        "hgcolours",
        "2.1",
        {
            "hgcolours/__init__.py": "def shade(value): return f'dark {value}'\n",
            # Modules that drivers have already stay theirs.
            "packaging/__init__.py": "raise ImportError('of the package')\n",
            "pyspark/__init__.py": "raise ImportError('of the package')\n",
        },
    )
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(shelf))
    spec = ApplicationSpec(packages="hgcolours")
    packages.install(spec)
    upload = unpack(io.BytesIO(packed({"job.py": JOB, "shared/words.py": "PREFIX = 'so'\n"})))
    roots, digest = driver.launcher.freeze_code((str(kept_root(tmp_path / "code", upload.sha256)),))
    assert digest == upload.sha256
    assert roots == (str(tmp_path / "code" / digest / "0"),)  # it lies where it is run from
    driver.launch(code_roots=roots, code_sha256=digest, packages=str(packages_folder(spec)))
    driver.ready()
    out = tmp_path / "out"
    driver.start(10, {"kind": "python", "function": "job:build", "params": {"out": str(out)}})
    running = driver.wait_run(10, RunState.RUNNING, RunState.FAILED)
    assert running.state is RunState.RUNNING, running.error

    wait_for(lambda: (run := driver.run(10)) and (run.last_batch or 0) >= 2, "two batches")
    driver.ask(10, Want.DRAIN)
    driver.wait_run(10, RunState.ENDED, RunState.FAILED)
    found = pyarrow.parquet.read_table(out).to_pylist()
    assert found[0]["vectorized"].startswith("dark ")
    assert found[0]["plain"] == f"so {found[0]['vectorized']} packaging"
