"""One driver with code and packages of users, and a connector: each of its tests uses a part."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import override_settings

from queries.code_roots import stored_root
from queries.domain.definitions.spec import ApplicationSpec
from queries.selectors.code import packages_folder
from queries.services.code import packages
from queries.services.code.uploads import Unpacked, unpack
from tests.pieces import avro_jar
from tests.services.code.archives import packed
from tests.services.code.wheels import wheel
from tests.spark.driver_under_test import DriverUnderTest

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


@pytest.fixture(scope="session")
def code_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where uploads are kept: the driver's launcher looks there."""
    return tmp_path_factory.mktemp("driver") / "code"


@pytest.fixture(scope="session")
def upload(code_dir: Path) -> Unpacked:
    """Upload the job and the module that it shares."""
    with override_settings(CODE_DIR=code_dir):
        return unpack(io.BytesIO(packed({"job.py": JOB, "shared/words.py": "PREFIX = 'so'\n"})))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package that the job uses; return its folder."""
    home = tmp_path_factory.mktemp("packages")
    wheel(
        home / "shelf",
        "hgcolours",
        "2.1",
        {
            "hgcolours/__init__.py": "def shade(value): return f'dark {value}'\n",
            # Modules that drivers have already stay theirs.
            "packaging/__init__.py": "raise ImportError('of the package')\n",
            "pyspark/__init__.py": "raise ImportError('of the package')\n",
        },
    )
    spec = ApplicationSpec(packages="hgcolours")
    with pytest.MonkeyPatch.context() as patch, override_settings(PACKAGES_DIR=home / "packages"):
        patch.setenv("UV_NO_INDEX", "1")
        patch.setenv("UV_FIND_LINKS", str(home / "shelf"))
        packages.install(spec)
        folder = packages_folder(spec)
    assert folder is not None
    return folder


@pytest.fixture(scope="session")
def code_driver(code_dir: Path, upload: Unpacked, installed: Path) -> Iterator[DriverUnderTest]:
    """Return the session's driver; it has the connector avro where that is installed."""
    driver = DriverUnderTest(code_dir.parent)
    roots, digest = driver.launcher.freeze_code((str(stored_root(code_dir, upload.sha256)),))
    jar = avro_jar()
    try:
        driver.launch(
            code_roots=roots,
            code_sha256=digest,
            packages=str(installed),
            jars=(str(jar),) if jar is not None else (),
        )
        driver.ready()
        yield driver
    finally:
        driver.end()


@pytest.fixture
def driver(code_driver: DriverUnderTest) -> Iterator[DriverUnderTest]:
    """Return the session's driver; at the end of a test nothing runs in it."""
    yield code_driver
    code_driver.rest()
