"""Queries in one real driver: started, stopped, failed and refused without their neighbours.

They share a driver (`streams_driver`): a cold start costs several seconds.
"""

import json
import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate_ground import spool
from headgate_ground.files import lock_holder
from headgate_ground.wire import EventKind, HeartbeatBody, WireEvent
from queries.domain.protocol import RunState, Want
from queries.domain.sparks import has_trigger
from queries.domain.supervision.health.watermarks import Delay, waiting
from tests import pieces
from tests.spark.driver_under_test import (
    DriverUnderTest,
    holder,
    rate_query,
    wait_for,
    write_rows,
)

pytestmark = pytest.mark.spark


def _python(function: str, **changes: object) -> dict[str, object]:
    return {"kind": "python", "function": f"users_code:{function}", **changes}


def _forget(driver: DriverUnderTest, *runs: int) -> None:
    """Drop runs from the assignment, and see the driver forget them."""
    for run in runs:
        driver.drop(run)
    wait_for(lambda: not any(driver.run(run) for run in runs), f"runs {runs} are forgotten")


def test_files_of_users_code_have_the_installations_umask_and_folders_of_ours_are_private(
    driver: DriverUnderTest,
) -> None:
    status = driver.sight().status
    assert status is not None
    assert "Umask:\t0027" in Path(f"/proc/{status.jvm_pid}/status").read_text()
    # Whatever a driver writes beside its log, nobody else gets to it.
    assert stat.S_IMODE(driver.directory.stat().st_mode) == 0o700


@pytest.mark.promise
def test_a_query_runs_from_its_first_commit_and_drains_after_a_batch(
    driver: DriverUnderTest,
) -> None:
    # Seconds apart, so that no batch begins at the very moment of the stop: Spark interrupts it.
    seldom = {"kind": "processing_time", "interval": "5 seconds"}
    driver.start(10, rate_query(trigger=seldom), pool="light")
    running = driver.wait_run(10, RunState.RUNNING, RunState.FAILED)
    assert running.state is RunState.RUNNING
    assert running.spark_run_id
    assert running.started_at
    assert running.first_commit_at
    checkpoint = driver.home / "checkpoints/q1"
    status = driver.sight().status
    assert status is not None
    assert holder(f"file://{checkpoint}") == status.jvm_pid
    driver.request_end(10, Want.DRAIN)
    ended = driver.wait_run(10, RunState.ENDED, RunState.FAILED)
    assert ended.state is RunState.ENDED
    assert ended.asked_for is Want.DRAIN
    assert ended.error is None
    # Free as soon as it is said to have ended, and every batch that was begun has committed.
    assert holder(f"file://{checkpoint}") is None
    assert _last(checkpoint / "offsets") == _last(checkpoint / "commits") == ended.last_batch
    _forget(driver, 10)


def test_one_query_stops_and_starts_again_and_its_neighbour_does_not_notice(
    driver: DriverUnderTest,
) -> None:
    driver.start(20, rate_query())
    driver.start(30, rate_query())
    neighbour = driver.wait_run(20, RunState.RUNNING)
    driver.wait_run(30, RunState.RUNNING)
    driver.request_end(30, Want.STOP)
    driver.wait_run(30, RunState.ENDED)
    driver.drop(30)
    driver.start(31, rate_query())
    driver.wait_run(31, RunState.RUNNING)
    again = wait_for(
        lambda: line if (line := driver.run(31)) and line.first_commit_at else None,
        "a batch commits after the restart",
    )
    assert again.last_batch is not None
    assert again.last_batch > 0  # it went on from the checkpoint
    now = driver.run(20)
    assert now is not None
    assert (now.state, now.spark_run_id) == (RunState.RUNNING, neighbour.spark_run_id)
    wait_for(
        lambda: (line := driver.run(20)) and line.last_batch != now.last_batch,
        "the neighbour commits on",
    )
    driver.request_end(20, Want.STOP)
    driver.request_end(31, Want.STOP)
    driver.wait_run(20, RunState.ENDED)
    driver.wait_run(31, RunState.ENDED)
    _forget(driver, 20, 31)


@pytest.mark.promise
def test_a_failure_names_its_class_its_cause_its_batch_and_its_offsets(
    driver: DriverUnderTest,
) -> None:
    driver.start(40, rate_query(sql="SELECT 1 / (value % 1) AS boom FROM numbers"))
    failed = driver.wait_run(40, RunState.FAILED)
    assert failed.error is not None
    assert failed.error.error_class == "DIVIDE_BY_ZERO"
    assert failed.error.type_name == "org.apache.spark.SparkArithmeticException"
    assert "Division by zero" in failed.error.root_cause
    assert failed.error.unknown_batch is False
    checkpoint = driver.home / "checkpoints/q4"
    assert failed.failed_batch == _last(checkpoint / "offsets")
    assert set(failed.failed_offsets) == {"0"}
    assert failed.failed_offsets["0"]["end"] is not None
    assert holder(f"file://{checkpoint}") is None
    assert "DIVIDE_BY_ZERO" in driver.launcher.log_tail(driver.application, driver.epoch)
    _forget(driver, 40)


@pytest.mark.parametrize(
    "text",
    [
        "DROP VIEW numbers",
        "SET spark.sql.ansi.enabled = false",
        "CREATE TABLE t (a INT) USING parquet",
        "WITH a AS (SELECT 1 AS value) INSERT INTO numbers SELECT * FROM a",
        "FROM numbers INSERT INTO a SELECT value INSERT INTO b SELECT value",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "BEGIN SELECT 1; END",
        "CACHE TABLE numbers",
        "SELECT TRANSFORM(value) USING 'cat' AS (a) FROM numbers",
        "SELECT 1 AS value",
    ],
)
def test_a_text_that_is_no_query_over_a_stream_is_refused(
    driver: DriverUnderTest, text: str
) -> None:
    run = 500
    driver.start(run, rate_query(sql=text))
    failed = driver.wait_run(run, RunState.FAILED, RunState.RUNNING)
    assert failed.error is not None
    if text.startswith(("BEGIN", "EXECUTE")) and pieces.spark_version() == "3.5":  # not in its SQL
        assert failed.error.error_class == "PARSE_SYNTAX_ERROR"
    elif text.startswith("BEGIN") and pieces.spark_version() == "4.0":  # off by default there
        assert failed.error.error_class == "UNSUPPORTED_FEATURE.SQL_SCRIPTING"
    else:
        assert failed.error.error_class == "HEADGATE_CONFIGURATION"
        assert failed.error.root_cause.startswith("sql: the SQL ")
    assert failed.started_at is None
    _forget(driver, run)


def test_with_and_watermark_and_static_tables_are_let_through(driver: DriverUnderTest) -> None:
    folder = driver.home / "in"
    write_rows(folder, "a.json", [{"at": "2024-01-01T00:00:00Z", "key": "a"}])
    write_rows(driver.home / "names", "n.json", [{"key": "a", "name": "Anna"}])
    spec = rate_query(
        sql="WITH named AS (SELECT r.at, n.name FROM rows r JOIN names n ON r.key = n.key) "
        "SELECT window(at, '1 minute') AS minute, name, count(*) AS n FROM named GROUP BY 1, 2",
        sources=[
            {
                "name": "rows",
                "format": "json",
                "schema": "at TIMESTAMP, key STRING",
                "options": {"path": str(folder)},
                "watermark": {"column": "at", "delay": "1 minute"},
            }
        ],
        tables=[
            {
                "name": "names",
                "format": "json",
                "schema": "key STRING, name STRING",
                "options": {"path": str(driver.home / "names")},
            }
        ],
        sink={
            "format": "json",
            "output_mode": "append",
            "options": {"path": str(driver.home / "out")},
        },
        trigger={"kind": "available_now"},
        conf={"spark.sql.shuffle.partitions": "1"},
    )
    driver.start(60, spec)
    ended = driver.wait_run(60, RunState.ENDED, RunState.FAILED)
    assert ended.error is None
    assert ended.asked_for is Want.RUN  # it finished by itself
    assert ended.last_batch is not None
    # Its only row is in a window that no later event has closed.
    told = [one for one in _events(driver) if one.run == 60 and one.kind is EventKind.PROGRESS]
    held = waiting(told[-1].body, appends=True, delay=Delay("at", timedelta(minutes=1)))
    assert str(held) == (
        "Its watermark is at 2023-12-31 23:59:00 UTC; 1 state row waits for it to pass the end "
        "of its window. It is waiting for a row whose at is later than 2024-01-01 00:00:00 UTC."
    )
    _forget(driver, 60)


def test_parameters_have_the_types_that_the_docs_name_and_are_never_text_of_the_sql(
    driver: DriverUnderTest,
) -> None:
    write_rows(driver.home / "few", "a.json", [{"value": value} for value in range(4)])
    params = {"text": "it's :low", "low": 1, "large": 2**40, "share": 0.5, "all": True}
    columns = ", ".join(f"concat(typeof(:{name}), ' ', :{name}) AS {name}" for name in params)
    source = {"name": "numbers", "format": "json", "schema": "value INT"}
    spec = rate_query(
        sql=f"SELECT value, {columns}, CAST(:day AS DATE) + 1 AS next, typeof(:none) AS none "
        "FROM numbers WHERE value > :low",
        params={**params, "day": "2026-11-25", "none": None},
        sources=[{**source, "options": {"path": str(driver.home / "few")}}],
        sink={"format": "json", "options": {"path": str(driver.home / "bound")}},
        trigger={"kind": "available_now"},
    )
    driver.start(1300, spec)
    assert driver.wait_run(1300, RunState.ENDED, RunState.FAILED).error is None
    files = sorted((driver.home / "bound").glob("*.json"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [row.pop("value") for row in rows] == [2, 3]
    assert rows[0] == {
        "text": "string it's :low",
        "low": "int 1",
        "large": f"bigint {2**40}",
        "share": "double 0.5",
        "all": "boolean true",
        "next": "2026-11-26",
        "none": "void",
    }
    _forget(driver, 1300)


def test_an_idle_source_proves_a_query_without_a_commit(driver: DriverUnderTest) -> None:
    folder = driver.home / "empty"
    folder.mkdir()
    source = {
        "name": "numbers",
        "format": "json",
        "schema": "value INT",
        "options": {"path": str(folder)},
    }
    driver.start(70, rate_query(sources=[source]))
    running = driver.wait_run(70, RunState.RUNNING, RunState.FAILED)
    assert running.state is RunState.RUNNING
    assert running.first_idle_at
    assert running.first_commit_at is None
    # Nothing is in flight: a drain need not wait for any batch.
    driver.request_end(70, Want.DRAIN)
    driver.wait_run(70, RunState.ENDED)
    _forget(driver, 70)


def test_python_functions_return_a_writer_or_a_frame_and_start_nothing(
    driver: DriverUnderTest,
) -> None:
    driver.start(80, _python("writer"))
    driver.start(90, _python("frame", sink={"format": "noop"}))
    driver.start(1000, _python("starts", params={"at": str(driver.home / "stolen")}))
    driver.start(1010, _python("static", sink={"format": "noop"}))
    driver.wait_run(80, RunState.RUNNING)
    driver.wait_run(90, RunState.RUNNING)
    starts = driver.wait_run(1000, RunState.FAILED)
    assert starts.error is not None
    assert "calls start() itself" in starts.error.root_cause
    assert not (driver.home / "stolen").exists()
    static = driver.wait_run(1010, RunState.FAILED)
    assert static.error is not None
    assert "is not streaming" in static.error.root_cause
    for run in (80, 90):
        driver.request_end(run, Want.STOP)
        driver.wait_run(run, RunState.ENDED)
    _forget(driver, 80, 90, 1000, 1010)


def test_what_code_sets_and_the_definition_overrides_is_named(driver: DriverUnderTest) -> None:
    trigger = {"kind": "processing_time", "interval": "500 milliseconds"}
    theirs = {"at": f"{driver.home}/theirs", "every": "1 minute"}
    driver.start(1200, _python("sets", params=theirs, trigger=trigger))
    # What it gets anyway is not worth a word.
    same = {"at": f"{driver.home}/checkpoints/q121", "name": "q121", "every": "500 milliseconds"}
    driver.start(1210, _python("sets", params=same, trigger=trigger))
    driver.start(1220, _python("frame", sink={"format": "noop"}, trigger=trigger))
    told = driver.wait_run(1200, RunState.RUNNING).warnings
    assert told == (
        "The code sets queryName theirs; q120 is used instead, the query's name.",
        f"The code sets checkpointLocation {driver.home}/theirs; "
        f"file://{driver.home}/checkpoints/q120 is used instead, the query's checkpoint.",
        "The code sets trigger processing time 1 minute; processing time 500 milliseconds is used "
        "instead, the definition's trigger.",
    )
    assert not (driver.home / "theirs").exists()
    for run in (1210, 1220):
        assert driver.wait_run(run, RunState.RUNNING).warnings == ()
    for run in (1200, 1210, 1220):
        driver.request_end(run, Want.STOP)
        driver.wait_run(run, RunState.ENDED)
    _forget(driver, 1200, 1210, 1220)


def test_the_driver_runs_on_the_spark_that_was_asked_for(driver: DriverUnderTest) -> None:
    status = driver.sight().status
    assert status is not None
    assert status.spark_version.startswith(f"{pieces.spark_version()}.")
    log = driver.launcher.log_tail(driver.application, driver.epoch, lines=10_000)
    assert "telemetry is listening on a private queue" in log


def test_async_calls_are_refused_under_triggers_without_micro_batches(
    driver: DriverUnderTest,
) -> None:
    for run, kind in ((1020, "real_time"), (1030, "continuous")):
        if not has_trigger(pieces.spark_version(), kind):
            continue
        trigger = {"kind": kind, "interval": "5 seconds"}
        driver.start(run, _python("calls", sink={"format": "noop"}, trigger=trigger))
        refused = driver.wait_run(run, RunState.FAILED)
        assert refused.error is not None
        assert "map_async is not supported with the" in refused.error.root_cause
        assert "Use processing time" in refused.error.root_cause
        _forget(driver, run)


@pytest.mark.guarantee("G-STORE-2")
def test_a_query_does_not_start_on_a_log_of_files_that_emr_named(driver: DriverUnderTest) -> None:
    checkpoint = driver.home / "checkpoints/q140"
    (checkpoint / "sources/0").mkdir(parents=True)
    read = '{"path":"s3://lake/in/a.json","timestamp":1767225600000,"batchId":0}'
    (checkpoint / "sources/0/0").write_text(f"v1\n{read}")
    files = {
        "name": "files",
        "format": "json",
        "options": {"path": "s3a://lake/in"},
        "schema": "n INT",
    }
    driver.start(1400, rate_query(sources=[files], sql="SELECT n FROM files"))
    refused = driver.wait_run(1400, RunState.FAILED)
    assert refused.error is not None
    assert refused.error.error_class == "HEADGATE_CONFIGURATION"
    assert "contains s3://lake/in/a.json, a name that EMR wrote" in refused.error.root_cause
    assert "Reset the query" in refused.error.root_cause
    _forget(driver, 1400)


def test_an_error_of_users_code_is_named_without_the_secret_it_holds(
    driver: DriverUnderTest,
) -> None:
    driver.start(1100, _python("writer", params={"fail_at": 1}))
    failed = driver.wait_run(1100, RunState.FAILED)
    assert failed.error is not None
    named = "" if pieces.spark_version() == "3.5" else "FOREACH_BATCH_USER_FUNCTION_ERROR"
    assert failed.error.error_class == named
    assert failed.error.type_name == "ConnectionRefusedError"
    assert failed.error.root_cause.startswith("no answer to")
    assert "s3cr3t-value" not in failed.error.message
    assert failed.failed_batch == 1
    _forget(driver, 1100)


def test_what_cannot_be_built_says_which_part(driver: DriverUnderTest) -> None:
    source = {"name": "gone", "format": "no-such-format", "options": {}}
    driver.start(1200, rate_query(sources=[source]))
    failed = driver.wait_run(1200, RunState.FAILED)
    assert failed.error is not None
    assert failed.error.error_class == "DATA_SOURCE_NOT_FOUND"
    assert failed.error.message.startswith("source 'gone' (no-such-format):")
    driver.start(1210, rate_query(sink={"format": "noop", "options": {"key": "env:NOT_ALLOWED"}}))
    failed = driver.wait_run(1210, RunState.FAILED)
    assert failed.error is not None
    assert "env:NOT_ALLOWED was not passed to this process" in failed.error.root_cause
    driver.start(1220, rate_query(), refused="file:jaas is not granted to application a.")
    failed = driver.wait_run(1220, RunState.FAILED)
    assert failed.error is not None
    assert failed.error.error_class == "HEADGATE_CONFIGURATION"
    assert "file:jaas is not granted to application a." in failed.error.root_cause
    assert failed.started_at is None
    _forget(driver, 1200, 1210, 1220)


def _heartbeats(driver: DriverUnderTest) -> list[HeartbeatBody]:
    """Return the heartbeats that the driver has sent so far, oldest first."""
    return [
        HeartbeatBody.read(event.body)
        for event in _events(driver)
        if event.kind is EventKind.HEARTBEAT
    ]


def _events(driver: DriverUnderTest) -> list[WireEvent]:
    """Return what the driver has sent so far, oldest first."""
    folder = driver.directory / "own" / spool.FOLDER
    return [WireEvent.decode(data) for _, data in spool.read_from(folder, 1)]


def test_a_heartbeat_tells_living_queries_and_the_tasks_that_finish_within_a_batch(
    driver: DriverUnderTest,
) -> None:
    driver.start(180, _python("slow"))
    driver.start(190, rate_query(trigger={"kind": "processing_time", "interval": "1 hour"}))

    def tasks_finished() -> list[str]:
        pulses = [pulse for beat in _heartbeats(driver) for pulse in beat.queries]
        return sorted({pulse.task_at for pulse in pulses if pulse.run == 180 and pulse.task_at})

    # A batch takes six seconds, a heartbeat comes every two: several see its tasks advance.
    wait_for(lambda: len(tasks_finished()) >= 3, "tasks are seen to finish")
    driver.wait_run(190, RunState.RUNNING)

    def neighbour_waits() -> bool:
        """Tell whether the last heartbeat has a task of 180's that it does not count for 190."""
        task_at = {pulse.run: pulse.task_at for pulse in _heartbeats(driver)[-1].queries}
        if set(task_at) != {180, 190}:
            return False
        return task_at[180] is not None and (task_at[190] is None or task_at[190] < task_at[180])

    # Its own first batch may end in the moment of a task of its neighbour's: later ones do not.
    wait_for(
        neighbour_waits, "the neighbour's jobs do not count for one that waits for its trigger"
    )
    beat = _heartbeats(driver)[-1]
    assert beat.jvm_alive is True
    assert all(pulse.alive for pulse in beat.queries)
    driver.request_end(180, Want.STOP)
    driver.request_end(190, Want.STOP)
    driver.wait_run(180, RunState.ENDED, RunState.FAILED)
    driver.wait_run(190, RunState.ENDED)
    wait_for(lambda: not _heartbeats(driver)[-1].queries, "ended queries are told no more")
    _forget(driver, 180, 190)


def test_a_stop_before_the_start_ends_without_having_run(driver: DriverUnderTest) -> None:
    driver.start(1300, rate_query(), want=Want.STOP)
    ended = driver.wait_run(1300, RunState.ENDED)
    assert ended.started_at is None
    _forget(driver, 1300)


def test_a_drain_whose_deadline_has_passed_stops_at_once(driver: DriverUnderTest) -> None:
    slow = rate_query(sql="SELECT reflect('java.lang.Thread', 'sleep', 60000L) FROM numbers")
    driver.start(1400, slow)
    checkpoint = driver.home / "checkpoints/q140"

    def begun() -> str | None:
        """Return the first batch with rows: batch 0 if its start took longer than a second."""
        planned = sorted(checkpoint.glob("offsets/[0-9]*"), key=lambda path: int(path.name))
        reads = [path for path in planned if int(path.read_text().split("\n")[-1] or 0) > 0]
        return reads[0].name if reads else None

    batch = wait_for(begun, "a batch with rows has begun")
    driver.request_end(1400, Want.DRAIN, (datetime.now(UTC) - timedelta(seconds=1)).isoformat())
    ended = driver.wait_run(1400, RunState.ENDED)
    assert ended.asked_for is Want.DRAIN
    assert not (checkpoint / "commits" / batch).exists()
    _forget(driver, 1400)


@pytest.mark.promise
def test_two_runs_on_one_checkpoint_are_refused_and_the_lock_survives_it(
    driver: DriverUnderTest,
) -> None:
    driver.start(1500, rate_query())
    driver.wait_run(1500, RunState.RUNNING)
    driver.start(1600, rate_query(), checkpoint=f"file://{driver.home}/checkpoints/q150")
    refused = driver.wait_run(1600, RunState.REFUSED)
    status = driver.sight().status
    assert status is not None
    assert refused.error is not None
    assert (refused.error.refused, refused.error.holder_pid) == ("own", status.jvm_pid)
    assert "is held by run 1500 of the same driver" in refused.error.message
    lock = driver.home / "checkpoints/.headgate/q150.held/lock"
    assert lock_holder(lock) == status.jvm_pid
    driver.request_end(1500, Want.STOP)
    driver.wait_run(1500, RunState.ENDED)
    _forget(driver, 1500, 1600)


@pytest.mark.parametrize(
    ("owner", "refused"),
    [
        ('{"installation": "here", "epoch": 99999, "driver": 1, "host": "h"}', "fenced"),
        ('{"installation": "there", "epoch": 1, "driver": 1, "host": "h"}', "foreign"),
    ],
)
def test_a_checkpoint_with_another_owner_is_refused(
    driver: DriverUnderTest, owner: str, refused: str
) -> None:
    run = {"fenced": 1700, "foreign": 1800}[refused]
    folder = driver.home / f"checkpoints/.headgate/q{run // 10}.held"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "owner.json").write_text(owner)
    driver.start(run, rate_query())
    line = driver.wait_run(run, RunState.REFUSED, RunState.RUNNING)
    assert line.error is not None
    assert line.error.refused == refused
    assert lock_holder(folder / "lock") is None
    _forget(driver, run)
    if refused == "foreign":  # an author confirms the takeover
        driver.start(run + 1, rate_query(), takeover=True)
        driver.wait_run(run + 1, RunState.RUNNING)
        driver.request_end(run + 1, Want.STOP)
        driver.wait_run(run + 1, RunState.ENDED)
        _forget(driver, run + 1)


def test_a_start_that_follows_a_stop_waits_for_nobody(driver: DriverUnderTest) -> None:
    """A warm driver, an existing checkpoint: the time is printed for who wants to know."""
    driver.start(1900, rate_query())
    driver.wait_run(1900, RunState.RUNNING)
    driver.request_end(1900, Want.STOP)
    driver.wait_run(1900, RunState.ENDED)
    driver.drop(1900)
    began = time.monotonic()
    driver.start(1901, rate_query())
    wait_for(lambda: (line := driver.run(1901)) and line.first_commit_at, "the first commit")
    os.write(2, f"restart to first commit: {time.monotonic() - began:.2f} s\n".encode())
    driver.request_end(1901, Want.STOP)
    driver.wait_run(1901, RunState.ENDED)
    _forget(driver, 1901)


def _last(folder: Path) -> int | None:
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=None)
