"""A driver whose checkpoint was taken over ends, whatever it is doing: real drivers on S3."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.flights import s3_definitions
from installation.machine import trial_servers
from queries.domain.checkpoints.ownership import owners_folder, silence_s
from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import classify
from queries.domain.protocol import RunState, Want
from queries.domain.states import Policy
from queries.domain.supervision.observation import Liveness
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, rate_query, wait_for
from tests.storage.fenced_drivers import WATCH_S, exits, launched, take_over, writers
from tests.storage.stores import HadoopJvm, S3Store, Store

pytestmark = pytest.mark.spark

S3, HDFS = pytest.param("s3", marks=pytest.mark.s3), pytest.param("hdfs", marks=pytest.mark.hdfs)


@pytest.fixture(params=[S3])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found


#: Holds each batch until the file `go` exists; the file `held` contains the batch's number.
_HOLDING = """
import time
from pathlib import Path
from typing import Any

def rows(spark, params):
    folder = Path(params["folder"])

    def hold(frame, batch):
        while not (folder / "go").exists():
            (folder / "new").write_text(str(batch))
            (folder / "new").rename(folder / "held")
            time.sleep(0.1)

    return spark.readStream.format("rate").load().writeStream.foreachBatch(hold)
"""


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, DriverUnderTest]]:
    """Yield the last driver of each store, and leave none behind."""
    found: dict[str, DriverUnderTest] = {}
    yield found
    for driver in found.values():
        driver.end()


@pytest.fixture
def driver(
    living: dict[str, DriverUnderTest], tmp_path_factory: pytest.TempPathFactory, store: Store
) -> Iterator[DriverUnderTest]:
    """Return a driver that a test may halt.

    One that a test has put to rest is the next test's.
    """
    made = living.get(store.root)
    if made is None or not made.idle():
        home = tmp_path_factory.mktemp("driver")
        (home / "code").mkdir()
        (home / "code" / "holding.py").write_text(_HOLDING)
        made = living[store.root] = launched(home, store, code_roots=(str(home / "code"),))
    try:
        made.ready()
        yield made
    finally:
        if made.entries:
            made.end()


def running(driver: DriverUnderTest, store: Store) -> str:
    """Start a query on a new checkpoint; return its location once it has committed."""
    location = store.place("fence")
    driver.start(11, rate_query(), checkpoint=location)
    driver.wait_run(11, RunState.RUNNING)
    return location


@pytest.mark.parametrize("store", [S3, HDFS], indirect=True)
def test_a_conflict_before_the_first_commit_is_the_previous_owners_and_a_later_one_a_strangers(
    driver: DriverUnderTest, store: Store, hadoop_jvm: HadoopJvm, tmp_path: Path
) -> None:
    spec = {
        "kind": "python",
        "function": "holding:rows",
        "params": {"folder": str(tmp_path)},
        "trigger": rate_query()["trigger"],
    }
    location, go, held = store.place("fence"), tmp_path / "go", tmp_path / "held"
    files = hadoop_jvm.files(store)

    def commit_by_another() -> Any:
        wait_for(held.exists, "a batch is held")
        entry = hadoop_jvm.path(f"{location}/commits/{held.read_text()}")
        files.create(entry, False).close()
        go.touch()
        return entry

    try:
        driver.start(11, spec, checkpoint=location)
        entry = commit_by_another()
        assert _classified(driver, 11) == (Category.FENCED, Policy.RETRY)
        files.delete(entry, False)
        driver.start(12, spec, checkpoint=location, query=1)
        driver.wait_run(12, RunState.RUNNING)
        held.unlink()
        go.unlink()
        commit_by_another()
        assert _classified(driver, 12) == (Category.OWNERSHIP, Policy.FATAL)
    finally:
        files.close()
    driver.rest()


def _classified(driver: DriverUnderTest, run: int) -> tuple[Category, Policy]:
    error = driver.wait_run(run, RunState.FAILED).error
    assert error is not None
    told = classify(
        error_class=error.error_class,
        type_name=error.type_name,
        root_cause=error.root_cause,
        message=error.message,
    )
    return told.category, told.policy


@pytest.mark.guarantee("G-FENCE-3")
@pytest.mark.promise
@pytest.mark.parametrize("store", [S3, HDFS], indirect=True)
def test_a_driver_halts_its_jvm_once_a_later_start_owns_the_checkpoint(
    driver: DriverUnderTest, store: Store, hadoop_jvm: HadoopJvm
) -> None:
    location = running(driver, store)
    status = driver.run(11)
    assert status is not None
    assert status.warnings == ()
    take_over(store, hadoop_jvm, location, epoch=500)
    assert exits(driver) == ("71", "76")
    log = driver.launcher.log_tail(driver.application, driver.epoch)
    assert f"a later start has taken over the checkpoint: {owners_folder(location)}" in log
    status = driver.run(11)
    assert status is not None
    assert status.error is None  # the query's code has not failed


@pytest.mark.guarantee("G-FENCE-3")
def test_a_python_process_that_is_stopped_does_not_save_its_jvm(
    driver: DriverUnderTest, store: Store, hadoop_jvm: HadoopJvm
) -> None:
    location = running(driver, store)
    driver.kill_python(signal.SIGSTOP)
    take_over(store, hadoop_jvm, location, epoch=500)
    assert exits(driver) == ("SIGKILL", "76")


@pytest.mark.faults
def test_a_jvm_that_was_paused_for_longer_than_the_fence_goes_on_if_nobody_took_over(
    driver: DriverUnderTest, store: Store
) -> None:
    running(driver, store)
    jvm = driver.ident().jvm_pid
    assert jvm is not None
    os.kill(jvm, signal.SIGSTOP)  # as a full garbage collection does; the worker is silent, too
    time.sleep(1.5 * silence_s(WATCH_S))
    paused = driver.run(11)
    os.kill(jvm, signal.SIGCONT)
    assert paused is not None
    before = paused.last_batch
    assert before is not None

    def beyond() -> bool:
        now = driver.run(11)
        assert driver.sight().exit is None
        return now is not None and (now.last_batch or 0) > before + 5

    wait_for(beyond, "it goes on for some questions")
    driver.rest()


@pytest.mark.s3
@pytest.mark.faults
def test_a_driver_without_its_store_ends_only_if_the_control_plane_is_silent_too(
    tmp_path: Path,
) -> None:
    gateway = trial_servers.Gateway(tmp_path / "s3", program=pieces.versitygw(), usual_port=None)
    gateway.start(pieces.java().home)
    address = gateway.address()
    conf = s3_definitions.store(gateway.place, address.access_key, address.secret_key)
    store = S3Store(f"s3a://{trial_servers.BUCKET}", gateway, conf)
    driver = launched(tmp_path, store)
    try:
        driver.ready()
        # A query that waits for its source needs no store meanwhile, so only the fence can end it.
        spec = rate_query(trigger={"kind": "processing_time", "interval": "1 hour"})
        driver.start(11, spec, checkpoint=store.place("fence"))
        driver.wait_run(11, RunState.RUNNING)
        gateway.stop()
        end = time.monotonic() + 1.5 * silence_s(WATCH_S)
        while time.monotonic() < end:
            driver.launcher.show_heartbeat([(driver.application, driver.epoch)])
            time.sleep(0.5)
        assert driver.sight().liveness is Liveness.ALIVE
        assert exits(driver) == ("71", "77")
    finally:
        driver.end()
        gateway.stop()


def test_a_machine_that_wakes_after_a_takeover_commits_nothing(
    driver: DriverUnderTest, store: Store, hadoop_jvm: HadoopJvm, tmp_path: Path
) -> None:
    location = running(driver, store)
    ident, files = driver.ident(), hadoop_jvm.files(store)
    assert ident.jvm_pid is not None
    for pid in (ident.pid, ident.jvm_pid):
        os.kill(pid, signal.SIGSTOP)
    second = launched(tmp_path / "second", store)
    try:
        second.ready()
        second.start(21, rate_query(), checkpoint=location)
        second.wait_run(21, RunState.RUNNING)
        taken = writers(files, hadoop_jvm, location)
        for pid in (ident.jvm_pid, ident.pid):
            os.kill(pid, signal.SIGCONT)
        assert exits(driver)[1] == "76"
        wait_for(lambda: len(writers(files, hadoop_jvm, location)) > len(taken) + 2, "it goes on")
        # One writer until the takeover, the other one from then on.
        found = list(writers(files, hadoop_jvm, location).values())
        first, last = found[0], found[-1]
        assert first != last
        assert found == sorted(found, key=lambda one: one == last)
        status = second.run(21)
        assert status is not None
        assert (status.state, status.error) == (RunState.RUNNING, None)
    finally:
        second.end()
        files.close()


def test_a_takeover_from_another_installation_waits_until_the_driver_there_has_halted(
    driver: DriverUnderTest, store: Store, hadoop_jvm: HadoopJvm, tmp_path: Path
) -> None:
    location, files = running(driver, store), hadoop_jvm.files(store)
    second = launched(tmp_path / "second", store, installation="there", fence_watch_s=5)
    try:
        second.ready()
        second.start(21, rate_query(), checkpoint=location, takeover=True)
        wait_for(lambda: (run := second.run(21)) and run.waits_until, "it waits")
        waiting = second.run(21)
        assert waiting is not None
        assert waiting.waits_until is not None
        second.request_end(21, Want.STOP)
        assert second.wait_run(21, RunState.ENDED).started_at is None
        second.drop(21)
        second.start(22, rate_query(), checkpoint=location)  # what is left of the wait
        status = second.wait_run(22, RunState.RUNNING)
        assert status.started_at is not None
        assert status.started_at > waiting.waits_until
        assert exits(driver)[1] == "76"
        found = list(writers(files, hadoop_jvm, location).values())
        assert found == sorted(found, key=lambda one: one == found[-1])
        assert len(set(found)) == 2
    finally:
        second.end()
        files.close()
