"""What a crash now would replay under async progress tracking, and what one did replay."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from listeners.models import Event, Latest, Progress
from queries.checkpoints.logs import CheckpointLogs
from queries.domain.errors import NotAllowed
from queries.domain.triggers.async_progress import REAL_TIME_DEFAULT
from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from queries.models.history import Failure
from queries.selectors.triggers.replays import exposure, gap_of, replayed_by, replays_of
from queries.services.triggers import request_async_off
from tests.scenarios.async_logs import AsyncQuery
from tests.scenarios.stage import BROKEN_PIPE, Stage
from tests.web.batches import batches


def offsets(number: int) -> dict[str, dict[str, int]]:
    """Return a Kafka source's offsets after a batch: 10 records in each of two partitions."""
    return {"flights": {"0": number * 10, "1": number * 10}}


def report(run: Run, first: int, count: int, *, until: datetime, kafka: bool = True) -> None:
    """Store what a driver has reported of a run's batches, a second apart."""
    every = {"every_s": 1.0, "duration_ms": 500, "rows": 20, "seq_after": run.pk * 1000}
    for row in batches(run, count, until=until, first=first, **every):  # type: ignore[arg-type]
        if kafka:
            begin, end = offsets(row.batch), offsets(row.batch + 1)
            row.body["sources"] = [{"startOffset": begin, "endOffset": end}]
            row.save()


@pytest.fixture
def flights(stage: Stage, tmp_path: Path) -> AsyncQuery:
    found = AsyncQuery(stage, tmp_path)
    found.up()
    return found


def keep(flights: AsyncQuery, batch: int, at: datetime, *, committed: bool = True) -> None:
    """Let the log's last batch be this one, kept at that moment, with its Kafka offsets."""
    flights.log(batch, committed=None if committed else (0,))
    log = flights.root / "offsets" / str(batch)
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:2], str(offsets(batch + 1)).replace("'", '"')]))
    if committed:
        os.utime(flights.root / "commits" / str(batch), (at.timestamp(), at.timestamp()))


def test_nothing_is_said_of_a_query_without_it(stage: Stage) -> None:
    stage.query("plain")
    assert exposure(stage.row("plain"), now=stage.now) is None


def test_a_crash_now_would_do_again_what_has_run_since_the_last_kept_batch(
    flights: AsyncQuery, stage: Stage
) -> None:
    keep(flights, 112, stage.now - timedelta(seconds=8.5))
    report(stage.run("flights"), 110, 11, until=stage.now - timedelta(seconds=1))
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert (found.interval_ms, found.kept, found.missing) == (1000, 112, 111)
    assert (found.newest, found.running) == (120, 121)
    assert (found.batches, found.rows, found.rows_from) == (9, 180, "offsets")
    assert found.rows_in_flight == 20  # as the largest before it: no event tells of it yet
    assert found.seconds == pytest.approx(8.5)


def test_a_batch_that_was_begun_and_not_committed_is_done_again_from_the_one_before(
    flights: AsyncQuery, stage: Stage
) -> None:
    keep(flights, 118, stage.now, committed=False)
    report(stage.run("flights"), 110, 8, until=stage.now)
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert (found.kept, found.newest, found.running, found.batches) == (112, 117, 118, 6)
    assert found.rows_in_flight == 20  # its offsets are in the log


def test_rows_are_those_reported_where_offsets_cannot_be_counted(
    flights: AsyncQuery, stage: Stage
) -> None:
    report(stage.run("flights"), 110, 11, until=stage.now, kafka=False)
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert (found.batches, found.rows, found.rows_from) == (9, 180, "progress")


def test_where_every_batch_is_kept_a_crash_replays_the_one_in_flight(
    flights: AsyncQuery, stage: Stage
) -> None:
    keep(flights, 119, stage.now)
    keep(flights, 120, stage.now)
    report(stage.run("flights"), 110, 11, until=stage.now)
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert (found.missing, found.batches, found.rows, found.seconds) == (None, 1, 20, 0.0)


def test_while_there_is_nothing_to_read_no_batch_is_in_flight(
    flights: AsyncQuery, stage: Stage
) -> None:
    keep(flights, 120, stage.now)
    run = stage.run("flights")
    report(run, 110, 11, until=stage.now)
    Latest.objects.filter(query=flights.query.pk).update(idle_at=stage.now + timedelta(seconds=9))
    found = exposure(flights.query, now=stage.now + timedelta(seconds=10))
    assert found is not None
    assert (found.running, found.batches, found.rows, found.rows_in_flight) == (None, 0, 0, 0)


def test_a_batch_in_flight_of_which_nobody_can_know_is_said_to_be(
    flights: AsyncQuery, stage: Stage
) -> None:
    flights.log(121, committed=(112,))
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert (found.running, found.batches, found.rows_in_flight) == (121, 1, None)


def test_a_query_that_has_never_run_exposes_nothing(stage: Stage, tmp_path: Path) -> None:
    found = exposure(AsyncQuery(stage, tmp_path, "fresh").query, now=stage.now)
    assert found is not None
    assert (found.kept, found.newest, found.running, found.batches) == (None, None, None, 0)


def test_it_is_still_told_where_the_newest_revision_has_it_off_and_the_log_a_gap(
    flights: AsyncQuery, stage: Stage
) -> None:
    plain = {**flights.spec(), "sink": {"format": "noop", "options": {}}}
    flights.query.revisions.create(
        number=2, kind="sql", spec=plain, author="ines", created_at=stage.now
    )
    stage.stop("flights")
    stage.launcher.end_run(stage.run("flights").pk)
    stage.look()
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert found.missing == 111
    flights.log(111)
    assert exposure(flights.query, now=stage.now) is None


def test_a_checkpoint_elsewhere_is_not_guessed_at(flights: AsyncQuery, stage: Stage) -> None:
    Checkpoint.objects.filter(query=flights.query).update(location="s3a://bucket/flights")
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert "only its driver can read it" in found.unreadable
    assert gap_of("s3a://bucket/flights") is None


def test_a_checkpoint_that_may_not_be_read_is_said_to_be(
    flights: AsyncQuery, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(logs: CheckpointLogs) -> list[int]:
        raise PermissionError(13, "Permission denied", str(logs.root))

    monkeypatch.setattr(CheckpointLogs, "begun", denied)
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert "Permission denied" in found.unreadable
    assert gap_of(f"file://{flights.root}") is None
    with pytest.raises(NotAllowed, match="Permission denied"):
        request_async_off(query=stage.row("flights"), actor="aude", now=stage.now)


def test_a_damaged_log_still_tells_what_was_reported(flights: AsyncQuery, stage: Stage) -> None:
    report(stage.run("flights"), 110, 11, until=stage.now)
    (flights.root / "offsets" / "112").write_text("not a log")
    found = exposure(flights.query, now=stage.now)
    assert found is not None
    assert (found.rows, found.rows_from) == (180, "progress")


# --- after a start ----------------------------------------------------------------------


def crash(flights: AsyncQuery, stage: Stage, *, resumed_at: int, kafka: bool = True) -> Run:
    """Report batches 110 to 120, fail, come back, and begin again at `resumed_at`."""
    report(stage.run("flights"), 110, 11, until=stage.now, kafka=kafka)
    stage.fail("flights", BROKEN_PIPE, batch=121)
    stage.look()
    run = stage.run("flights")
    stage.launcher.commit(run.pk, batch=resumed_at)
    stage.look()
    return stage.run("flights")


def test_what_was_replayed_is_measured_from_offsets_and_stored_with_the_run(
    flights: AsyncQuery, stage: Stage
) -> None:
    run = crash(flights, stage, resumed_at=113)
    assert run.replayed is None  # its first batch has not been heard of
    report(run, 113, 1, until=stage.now + timedelta(seconds=2))
    stage.look()
    run = stage.run("flights")
    assert run.replayed == {
        "batches": 9,
        "rows": 180,  # as many as the sink has twice: the interrupted batch had written, too
        "seconds": 8.0,
        "first": 113,
        "last": 121,
        "after": 112,
        "from_run": run.pk - 1,
        "rows_in_flight": 20,
    }


def test_the_interrupted_batch_has_written_no_more_than_was_read_again(
    flights: AsyncQuery, stage: Stage
) -> None:
    run = crash(flights, stage, resumed_at=113)
    report(run, 113, 1, until=stage.now + timedelta(seconds=2))
    first = Progress.objects.get(run=run.pk)
    first.body["sources"][0]["endOffset"] = {"flights": {"0": 1213, "1": 1214}}
    first.save()
    found = replayed_by(run)
    assert found is not None
    assert (found["batches"], found["rows"], found["rows_in_flight"]) == (9, 167, 7)


def test_a_failure_tells_what_was_replayed_after_it(flights: AsyncQuery, stage: Stage) -> None:
    run = crash(flights, stage, resumed_at=113)
    failure = Failure.objects.get()
    assert replays_of(failure) == []
    report(run, 113, 1, until=stage.now + timedelta(seconds=2))
    stage.look()
    assert [found.pk for found in replays_of(failure)] == [run.pk]
    failure.run = None  # as the death of the driver is recorded
    assert [found.pk for found in replays_of(failure)] == [run.pk]


def test_where_all_was_kept_the_interrupted_batch_alone_is_replayed(
    flights: AsyncQuery, stage: Stage
) -> None:
    run = crash(flights, stage, resumed_at=121)
    report(run, 121, 1, until=stage.now + timedelta(seconds=2))
    stage.look()
    found = stage.run("flights").replayed
    assert found is not None
    assert (found["batches"], found["rows"], found["seconds"]) == (1, 20, 0.0)
    assert (found["first"], found["last"], found["after"]) == (121, 121, 120)


@pytest.mark.parametrize("how", ["idle", "stopped"])
def test_nothing_replayed_is_stored_as_nothing(flights: AsyncQuery, stage: Stage, how: str) -> None:
    before = stage.run("flights")
    Event.objects.create(
        driver=before.driver_id, epoch=1, seq=9_000_000, kind="idle", run=before.pk,
        query=before.query_id, at=stage.now + timedelta(seconds=5), received_at=stage.now,
    )  # fmt: skip
    run = crash(flights, stage, resumed_at=121)
    if how == "stopped":
        Event.objects.all().delete()
        Run.objects.filter(pk=before.pk).update(outcome="STOPPED")
    report(run, 121, 1, until=stage.now + timedelta(seconds=2))
    stage.look()
    assert stage.run("flights").replayed == {"batches": 0, "rows": 0, "seconds": 0.0}
    assert replays_of(Failure.objects.get()) == []


def test_batches_are_counted_by_their_ids_where_offsets_are_not_told(
    flights: AsyncQuery, stage: Stage
) -> None:
    run = crash(flights, stage, resumed_at=113, kafka=False)
    report(run, 113, 1, until=stage.now + timedelta(seconds=2), kafka=False)
    found = replayed_by(run)
    assert found is not None
    assert (found["batches"], found["rows"], found["first"]) == (9, 180, 113)


def test_the_first_run_of_all_replays_nothing(flights: AsyncQuery, stage: Stage) -> None:
    report(stage.run("flights"), 0, 1, until=stage.now)
    stage.look()
    assert stage.run("flights").replayed == {}


def test_telemetry_that_never_comes_is_not_waited_for_for_ever(
    flights: AsyncQuery, stage: Stage
) -> None:
    crash(flights, stage, resumed_at=113)
    stage.wait(700)
    assert stage.run("flights").replayed == {}


def test_a_query_without_async_progress_is_not_measured(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.look()
    assert stage.run("delays").replayed is None


@pytest.mark.parametrize(
    ("log", "gap"),
    [((59, 74), (73, 74, 59)), ((7,), (6, 7, None)), ((111, 112), None), ((), None)],
)
def test_the_gap_at_the_logs_end_is_named(
    tmp_path: Path, stage: Stage, log: tuple[int, ...], gap: Any
) -> None:
    query = AsyncQuery(stage, tmp_path, "other")
    query.log(*log)
    found = gap_of(f"file://{query.root}")
    assert (found and (found.missing, found.newest, found.before)) == gap
    assert not Progress.objects.filter(query=query.query.pk).exists()


# --- on by Spark's default -----------------------------------------------------------------


@pytest.fixture
def real_time(stage: Stage, tmp_path: Path) -> AsyncQuery:
    """Return a query in real-time mode whose sink says nothing of async progress tracking."""
    found = AsyncQuery(
        stage,
        tmp_path,
        sink={"format": "noop", "output_mode": "update"},
        trigger={"kind": "real_time", "interval": "5 seconds"},
    )
    found.up()
    return found


def test_real_time_without_state_is_exposed_by_sparks_default(
    real_time: AsyncQuery, stage: Stage
) -> None:
    report(stage.run("flights"), 110, 11, until=stage.now)
    found = exposure(real_time.query, now=stage.now)
    assert found is not None
    assert (found.by_default, found.interval_ms, found.kept) == (True, 0, 112)
    assert found.batches == 9


def test_real_time_that_reports_state_is_not(real_time: AsyncQuery, stage: Stage) -> None:
    report(stage.run("flights"), 110, 1, until=stage.now)
    row = Progress.objects.get()
    row.body["stateOperators"] = [{"operatorName": "stateStoreSave"}]
    row.save()
    assert exposure(real_time.query, now=stage.now) is None


def test_an_application_that_turns_the_default_off_is_not(
    real_time: AsyncQuery, stage: Stage
) -> None:
    revision = stage.run("flights").driver.application_revision
    revision.spec = {**revision.spec, "conf": {REAL_TIME_DEFAULT: "false"}}
    type(revision).objects.filter(pk=revision.pk).update(spec=revision.spec)
    assert exposure(real_time.query, now=stage.now) is None
