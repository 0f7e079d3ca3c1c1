"""Runs that do not end when they should, in one real driver with neighbours.

A checkpoint stays locked until nothing of the run is left that could write, whatever was asked.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from queries.domain.checkpoints.ownership import lock_file
from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import classify
from queries.domain.protocol import Hangs, RunState, RunStatus, Want
from tests.spark.driver_under_test import DriverUnderTest, holder, rate_query, wait_for

pytestmark = pytest.mark.spark

USERS_CODE = """
import sys
import time
from pathlib import Path


def _wait(params, limit_s=240):
    folder = Path(params["folder"])
    (folder / "waiting").touch()
    end = time.monotonic() + limit_s
    while not (folder / "go-on").exists() and time.monotonic() < end:
        time.sleep(0.05)
    (folder / "written").touch()


def _rows(spark):
    return spark.readStream.format("rate").option("rowsPerSecond", "5").load()


def waits_in_batch(spark, params):
    return _rows(spark).writeStream.foreachBatch(lambda batch, number: _wait(params))


def waits_while_built(spark, params):
    _wait(params)
    return _rows(spark)


def leaves(spark, params):
    sys.exit(3)


def interrupted(spark, params):
    raise KeyboardInterrupt


def leaves_in_batch(spark, params):
    def take(batch, number):
        sys.exit("no more")

    return _rows(spark).writeStream.foreachBatch(take)


def interrupted_in_batch(spark, params):
    def take(batch, number):
        raise KeyboardInterrupt

    return _rows(spark).writeStream.foreachBatch(take)
"""
LEAVES_AT_IMPORT = """
import sys

sys.exit(0)


def writer(spark, params):
    return None
"""

STOP_TIMEOUT_S = 3
START_DEADLINE_S = 25  # generous for the starts that do not hang


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverUnderTest]:
    home = tmp_path_factory.mktemp("driver")
    code = home / "code-root"
    code.mkdir()
    (code / "users_code.py").write_text(USERS_CODE)
    (code / "leaves_at_import.py").write_text(LEAVES_AT_IMPORT)
    driver = DriverUnderTest(home)
    roots, digest = driver.launcher.freeze_code((str(code),))
    try:
        driver.launch(
            code_roots=roots,
            code_sha256=digest,
            stop_timeout_s=STOP_TIMEOUT_S,
            start_deadline_s=START_DEADLINE_S,
        )
        driver.ready()
        yield driver
    finally:
        driver.end()


def _waiting(function: str, folder: Path) -> dict[str, object]:
    folder.mkdir()
    spec = {"kind": "python", "function": f"users_code:{function}"}
    sink = {"sink": {"format": "noop"}} if function == "waits_while_built" else {}
    return {**spec, **sink, "params": {"folder": str(folder)}}


def _hangs_or_ends(driver: DriverUnderTest, run: int) -> RunStatus:
    ends = (RunState.ENDED, RunState.FAILED, RunState.REFUSED)

    def look() -> RunStatus | None:
        found = driver.run(run)
        return found if found and (found.hangs or found.state in ends) else None

    return wait_for(look, f"run {run} hangs, or ends")


def _takes_the_lock(location: str) -> bool:
    """Whether this process, which is none of the driver's, can have the checkpoint's lock."""
    path = lock_file(location)
    assert path is not None
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _goes_on(driver: DriverUnderTest, run: int) -> None:
    before = driver.wait_run(run, RunState.RUNNING).last_batch or 0

    def look() -> bool:
        found = driver.run(run)
        return found is not None and (found.last_batch or 0) > before

    wait_for(look, f"run {run} commits another batch")


def test_a_checkpoint_stays_locked_while_a_batch_outlives_its_stop(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    folder = tmp_path / "batch"
    place = f"file://{driver.home}/checkpoints/q1"
    driver.start(20, rate_query())
    driver.start(10, _waiting("waits_in_batch", folder))
    wait_for((folder / "waiting").exists, "its batch is being written")
    driver.request_end(10, Want.STOP)
    stuck = _hangs_or_ends(driver, 10)
    assert (stuck.state, stuck.hangs, stuck.ended_at) == (RunState.STOPPING, Hangs.STOP, None)
    assert holder(place) == driver.ident().jvm_pid
    assert not _takes_the_lock(place)
    driver.start(11, _waiting("waits_in_batch", tmp_path / "next"))
    refused = driver.wait_run(11, RunState.REFUSED, RunState.RUNNING, RunState.FAILED)
    assert (refused.state, refused.error and refused.error.refused) == (RunState.REFUSED, "own")
    assert holder(place) == driver.ident().jvm_pid
    _goes_on(driver, 20)
    assert not (folder / "written").exists()
    (folder / "go-on").touch()
    ended = driver.wait_run(10, RunState.ENDED, RunState.FAILED)
    assert (ended.state, ended.hangs) == (RunState.ENDED, Hangs.NOTHING)
    assert (folder / "written").exists()
    assert _takes_the_lock(place)
    driver.request_end(20, Want.STOP)
    driver.wait_run(20, RunState.ENDED)


def test_a_start_that_does_not_return_keeps_its_lock_and_is_named_by_the_next_one(
    driver: DriverUnderTest, tmp_path: Path
) -> None:
    folder = tmp_path / "build"
    place = f"file://{driver.home}/checkpoints/q3"
    driver.start(30, _waiting("waits_while_built", folder))
    failed = driver.wait_run(30, RunState.FAILED)
    assert (failed.hangs, failed.error and failed.error.type_name) == (
        Hangs.START,
        "StartTimedOut",
    )
    assert not _takes_the_lock(place)
    driver.start(31, rate_query())
    refused = driver.wait_run(31, RunState.REFUSED, RunState.RUNNING, RunState.FAILED)
    assert refused.error is not None
    assert (refused.state, refused.error.refused) == (RunState.REFUSED, "own")
    assert "does not end" in refused.error.message
    (folder / "go-on").touch()
    wait_for(lambda: _takes_the_lock(place), "its lock is free")
    wait_for(lambda: not (driver.run(30) or failed).hangs, "nothing of it hangs")
    driver.start(32, rate_query())
    driver.wait_run(32, RunState.RUNNING)
    driver.request_end(32, Want.STOP)
    driver.wait_run(32, RunState.ENDED)


@pytest.mark.parametrize(
    ("function", "type_name", "said"),
    [
        ("leaves_at_import:writer", "SystemExit", "leaves_at_import.py, line 4"),
        ("users_code:leaves", "SystemExit", "users_code.py, line 30"),
        ("users_code:interrupted", "KeyboardInterrupt", "users_code.py, line 34"),
        ("users_code:leaves_in_batch", "SystemExit", "users_code.py, line 39"),
        ("users_code:interrupted_in_batch", "KeyboardInterrupt", "users_code.py, line 46"),
    ],
)
def test_an_exit_in_users_code_is_named_at_once_with_its_line(
    driver: DriverUnderTest, function: str, type_name: str, said: str
) -> None:
    run = 400 + 10 * sum(map(ord, function)) % 500
    driver.start(run, {"kind": "python", "function": function})
    failed = driver.wait_run(run, RunState.FAILED, RunState.ENDED)
    error = failed.error
    assert failed.state is RunState.FAILED
    assert error is not None
    assert error.type_name.endswith("ExitInUsersCode"), error
    assert error.root_cause.endswith(f"was raised in {said}")
    assert type_name in error.root_cause
    found = classify(
        error_class=error.error_class,
        type_name=error.type_name,
        root_cause=error.root_cause,
        message=error.message,
    )
    assert found.category is Category.USER_CODE
    assert holder(f"file://{driver.home}/checkpoints/q{run // 10}") is None
    driver.drop(run)
