"""A query on a standalone cluster: its code goes along, and a lost worker costs a moment only."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import markupsafe._speedups
import pyarrow.parquet
import pytest
from django.test import override_settings

from installation.machine.cluster import Cluster
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.protocol import ExecutorSeen, ExecutorsWanted, RunState, Want
from queries.domain.supervision.observation import missing_executors
from queries.domain.triggers.batch_cost import FILE_MANAGER, OUR_FILES
from queries.jvm.compiled import our_jar
from queries.selectors.code import packages_folder
from queries.services.code import packages
from tests.pieces import free_port
from tests.services.code.wheels import wheel
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.faults]

USERS_CODE = """
from pyspark.sql.functions import udf

import parity


def by_parity(spark, params):
    named = udf(lambda value: parity.name(value), "string")
    numbers = spark.readStream.format("rate").option("rowsPerSecond", "20").load()
    return numbers.groupBy(named("value").alias("parity")).count()
"""
PARITY = """
def name(value):
    return "odd" if value % 2 else "even"
"""
STATEFUL = {
    "kind": "python",
    "function": "users_code:by_parity",
    "params": {},
    "sink": {"format": "noop", "output_mode": "update"},
    "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
}


PACKAGES_CODE = """
from pyspark.sql.functions import udf


def build(spark, params):
    @udf("string")
    def where(value):
        import hgnative, packaging, pyspark
        assert hgnative.escaped("<") == "&lt;" and packaging.__name__ and pyspark.__version__
        return hgnative.PLACE

    rows = spark.readStream.format("rate").option("rowsPerSecond", "20").load()
    return rows.select(where("value").alias("place")).writeStream.format("parquet").option(
        "path", params["out"]
    )
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Cluster]:
    cluster = Cluster(home / "cluster", free_port(), free_port())
    cluster.start()
    yield cluster
    cluster.stop()
    assert cluster.running() == []


@pytest.fixture(scope="module")
def installed(home: Path, cluster: Cluster) -> Path:
    """Install a package whose native code is at hand; return its folder.

    No Python on this machine can import it under its name.
    """
    native = Path(markupsafe._speedups.__file__)
    files: dict[str, str | bytes] = {
        f"hgnative/{native.name}": native.read_bytes(),
        "hgnative/__init__.py": "from hgnative._speedups import _escape_inner as escaped\n"
        "from hgnative._speedups import __file__ as PLACE\n",
        # What executors have already stays theirs.
        "packaging/__init__.py": "raise ImportError('of the package')\n",
        "pyspark/__init__.py": "raise ImportError('of the package')\n",
    }
    wheel(home / "shelf", "hgnative", "1.0", files)
    spec = ApplicationSpec(packages="hgnative", master=cluster.master)
    with pytest.MonkeyPatch.context() as patch, override_settings(PACKAGES_DIR=home / "packages"):
        patch.setenv("UV_NO_INDEX", "1")
        patch.setenv("UV_FIND_LINKS", str(home / "shelf"))
        packages.install(spec)
        folder = packages_folder(spec)
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def one_driver(home: Path, cluster: Cluster, installed: Path) -> Iterator[DriverUnderTest]:
    """Return the driver of the tests whose queries are executed."""
    code = home / "root"
    code.mkdir()
    (code / "users_code.py").write_text(USERS_CODE)
    (code / "parity.py").write_text(PARITY)
    (code / "job.py").write_text(PACKAGES_CODE)
    driver = DriverUnderTest(home)
    roots, digest = driver.launcher.freeze_code((str(code),))
    driver.launch(
        master=cluster.master,
        code_roots=roots,
        code_sha256=digest,
        packages=str(installed),
        # As every driver: the state's files on the executors are written through our class, too.
        jars=(str(our_jar(home / "classes")),),
        conf={
            FILE_MANAGER: OUR_FILES,
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.memory": "512m",
        },
    )
    try:
        yield driver
    finally:
        driver.end()


@pytest.fixture
def driver(one_driver: DriverUnderTest) -> Iterator[DriverUnderTest]:
    """Return the module's driver; at the end of a test nothing runs in it."""
    yield one_driver
    one_driver.rest()


def executors(driver: DriverUnderTest, *, active: bool) -> list[ExecutorSeen]:
    status = driver.sight().status
    return [one for one in status.executors if one.active is active] if status else []


def committed(driver: DriverUnderTest, number: int, after: int) -> int | None:
    run = driver.run(number)
    return run.last_batch if run and run.last_batch is not None and run.last_batch > after else None


def test_a_cluster_without_a_worker_large_enough_is_said_within_a_minute(
    tmp_path: Path, cluster: Cluster
) -> None:
    driver = DriverUnderTest(tmp_path)
    driver.launch(master=cluster.master, conf={"spark.executor.memory": "8g"})
    try:
        driver.ready()
        begun = time.monotonic()

        def told() -> ExecutorsWanted | None:
            status = driver.sight().status
            wanted = status.wanted if status else None
            return wanted if wanted is not None and wanted.workers else None

        wanted = wait_for(told, "what no worker can give")
        assert time.monotonic() - begun < 60
        assert (wanted.memory_mb, wanted.cores) == (8192, 1)
        assert wanted.workers == ((1, 1536), (1, 1536))
        assert "Set spark.executor.memory to at most 1536m" in missing_executors(wanted)
        assert executors(driver, active=True) == []
    finally:
        driver.end()


@pytest.mark.promise
def test_a_killed_worker_is_lost_and_found_again_while_batches_go_on(
    cluster: Cluster, driver: DriverUnderTest
) -> None:
    pid = driver.ready().jvm_pid
    driver.start(11, STATEFUL)
    # The module that the UDF imports lies in no folder that an executor sees.
    driver.wait_run(11, RunState.RUNNING)
    wait_for(lambda: len(executors(driver, active=True)) == 2, "both workers gave an executor")
    assert cluster.workers() == 2

    worker = next(one for one in cluster.running() if one.name == "worker-1")
    os.kill(worker.pid, signal.SIGKILL)

    lost = wait_for(lambda: executors(driver, active=False), "the lost executor is told")
    assert lost[0].reason
    assert lost[0].removed_at is not None
    before = committed(driver, 11, -1) or 0
    wait_for(lambda: committed(driver, 11, before + 2), "batches go on")
    wait_for(lambda: len(executors(driver, active=True)) == 2, "a new executor was found")
    assert driver.wait_run(11, RunState.RUNNING).spark_run_id
    seen = driver.sight().status
    assert seen is not None
    assert seen.jvm_pid == pid


def test_executors_are_sent_the_packages_native_code_included(
    driver: DriverUnderTest, installed: Path, tmp_path: Path
) -> None:
    native = Path(markupsafe._speedups.__file__)
    out = tmp_path / "out"
    driver.start(21, {"kind": "python", "function": "job:build", "params": {"out": str(out)}})
    seen = driver.wait_run(21, RunState.RUNNING, RunState.FAILED)
    assert seen.state is RunState.RUNNING, seen.error
    wait_for(lambda: committed(driver, 21, 1), "batches commit")
    # A batch under way has opened its file already, and nothing is in it yet.
    driver.request_end(21, Want.DRAIN)
    ended = driver.wait_run(21, RunState.ENDED, RunState.FAILED)
    assert ended.state is RunState.ENDED, ended.error
    places = {row["place"] for row in pyarrow.parquet.read_table(out).to_pylist()}
    assert places
    for place in places:  # unpacked where the executor works, and not the folder of this host
        assert f"/headgate_packages/packages/hgnative/{native.name}" in place
        assert not place.startswith(str(installed))


def test_a_master_that_does_not_answer_is_named(tmp_path: Path) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    driver = DriverUnderTest(tmp_path / "driver").launch(master=master)
    try:
        driver.wait_exit()  # Spark tries for a minute
        status = driver.sight().status
        assert status is not None
        assert status.error is not None
        assert f"The master {master} did not accept this driver" in status.error.root_cause
    finally:
        driver.end()
