"""The loss ledger: late rows by day, skipped records from batches that came up short, once."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from listeners.loops.backlogs import LEDGER, backlogs, current
from listeners.models import Cursor, Progress
from queries.domain.kafka.losses import OffsetGap
from queries.domain.kafka.topic_ids import Remembered, as_json
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Run
from queries.selectors.kafka.lag import has_ranges, loss_totals
from queries.services.kafka.loss_ledger import keep_ledger, write_gaps
from queries.services.system.parts import backlog_part, loops_part
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def _running(name: str = "delays", *, fails: str = "false") -> tuple[Query, Run]:
    stage = Stage()
    options = {
        "kafka.bootstrap.servers": "one:9092",
        "subscribe": "flights",
        "failOnDataLoss": fails,
    }
    query = stage.query(name, sources=[{"name": "f", "format": "kafka", "options": options}])
    stage.start(name)
    return query, stage.run(name)


def _batch(
    run: Run,
    batch: int,
    *,
    rows: int = 0,
    start: int = 0,
    end: int = 0,
    late: Any = None,
    spark_run_id: str = "here",
) -> None:
    source = {
        "startOffset": {"flights": {"0": start}},
        "endOffset": {"flights": {"0": end}},
        "numInputRows": rows,
    }
    Progress.objects.create(
        driver=run.driver_id,
        epoch=run.epoch,
        seq=batch + 1,
        query=run.query_id,
        run=run.pk,
        spark_run_id=spark_run_id,
        batch=batch,
        at=NOW,
        received_at=NOW,
        num_input_rows=rows,
        batch_duration_ms=1000,
        body={"sources": [source], **(late or {})},
    )


def _seen(query: Query, earliest: int, at: datetime, **fields: Any) -> None:
    SourceLag.objects.update_or_create(
        query=query,
        source="flights",
        partition=0,
        defaults={"committed": 200, "earliest": earliest, "latest": 200, "seen_at": at, **fields},
    )


def test_late_rows_stand_there_by_day_and_operator() -> None:
    query, run = _running()
    late = {"stateOperators": [{"operatorName": "dedupe", "numRowsDroppedByWatermark": 7}]}
    _batch(run, 0, late=late)
    _batch(run, 1, late=late)
    assert keep_ledger(now=NOW) == 2
    _batch(run, 2, late=late)
    assert keep_ledger(now=NOW) == 1
    assert keep_ledger(now=NOW) == 0
    loss = Loss.objects.get()
    assert (loss.kind, loss.source, loss.records) == (LossKind.LATE, "dedupe 0", 21)
    assert loss.day == NOW.date()
    assert [(one.kind, one.records) for one in loss_totals(query)] == [(LossKind.LATE, 21)]


def test_a_batch_that_went_over_a_gap_is_found_by_its_rows() -> None:
    query, run = _running()
    _seen(query, 160, NOW + timedelta(seconds=5))
    _batch(run, 4, rows=40, start=100, end=200)
    keep_ledger(now=NOW + timedelta(seconds=6))
    loss = Loss.objects.get()
    assert (loss.kind, loss.batch) == (LossKind.SKIPPED, 4)
    assert (loss.from_offset, loss.to_offset, loss.offsets, loss.records) == (100, 160, 60, 60)


def test_it_waits_for_a_look_at_the_broker_but_not_for_ever() -> None:
    query, run = _running()
    _seen(query, 160, NOW - timedelta(seconds=5))
    _batch(run, 0, rows=100, start=0, end=100)
    _batch(run, 1, rows=40, start=100, end=200)
    assert keep_ledger(now=NOW + timedelta(seconds=6)) == 1
    assert not Loss.objects.exists()
    assert keep_ledger(now=NOW + timedelta(seconds=62)) == 1
    assert Loss.objects.get().records == 60


def test_what_fails_on_loss_has_lost_nothing_by_rows_that_are_missing() -> None:
    query, run = _running(fails="true")
    _seen(query, 160, NOW + timedelta(seconds=5))
    _batch(run, 1, rows=40, start=100, end=200)
    keep_ledger(now=NOW + timedelta(seconds=6))
    assert not Loss.objects.exists()
    assert SourceLag.objects.get().holes  # offsets are not records there: transactions


@pytest.mark.guarantee("G-LOSS-2")
def test_a_batch_that_spark_repeated_without_reading_it_lost_nothing() -> None:
    query, run = _running()
    _seen(query, 160, NOW + timedelta(seconds=5))
    times = {"durationMs": {"addBatch": 5, "triggerExecution": 9}, "numInputRows": 0}
    _batch(run, 4, rows=0, start=100, end=200, late=times)
    keep_ledger(now=NOW + timedelta(seconds=6))
    assert not Loss.objects.exists()
    assert not SourceLag.objects.get().holes


def test_a_gap_is_written_once_whoever_saw_it() -> None:
    query, run = _running()
    _seen(query, 160, NOW + timedelta(seconds=5))
    gap = OffsetGap("flights", 0, 100, 150)
    assert len(write_gaps(query=query, gaps=[gap], kind=LossKind.SKIPPED, now=NOW)) == 1
    assert write_gaps(query=query, gaps=[gap], kind=LossKind.RETENTION, now=NOW) == []
    _batch(run, 4, rows=40, start=100, end=200)
    keep_ledger(now=NOW + timedelta(seconds=6))
    rows = Loss.objects.order_by("from_offset").values_list("from_offset", "to_offset")
    assert list(rows) == [(100, 150), (150, 160)]


@pytest.mark.guarantee("G-LOSS-1")
def test_what_a_deleted_topic_has_lost_says_nothing_of_the_one_with_its_name() -> None:
    query, run = _running()
    ids = as_json({"f": {"flights": Remembered("new")}})
    Checkpoint.objects.filter(query=query).update(topic_ids=ids)
    _seen(query, 160, NOW + timedelta(seconds=5))
    old = OffsetGap("flights", 0, 0, 500)
    write_gaps(query=query, gaps=[old], kind=LossKind.RECREATED, now=NOW, topic_id="old")
    assert not has_ranges(query.pk)
    _batch(run, 4, rows=40, start=100, end=200)
    keep_ledger(now=NOW + timedelta(seconds=6))
    skipped = Loss.objects.filter(kind=LossKind.SKIPPED)
    assert list(skipped.values_list("from_offset", "to_offset", "topic_id")) == [(100, 160, "new")]
    assert has_ranges(query.pk)


def test_progress_of_a_query_that_is_gone_is_passed_over() -> None:
    Progress.objects.create(
        driver=1,
        epoch=1,
        seq=1,
        query=10**6,
        run=10**6,
        spark_run_id="x",
        batch=0,
        at=NOW,
        received_at=NOW,
        body={"stateOperators": [{"numRowsDroppedByWatermark": 4}]},
    )
    assert keep_ledger(now=NOW) == 1
    assert not Loss.objects.exists()


def test_a_rotten_row_is_set_aside_and_shown_and_the_ledger_goes_on() -> None:
    _query, run = _running()
    late = {"stateOperators": [{"operatorName": "dedupe", "numRowsDroppedByWatermark": 7}]}
    _batch(run, 0, late=late)
    _batch(run, 1)
    Progress.objects.filter(batch=1).update(body=[7])  # no progress
    _batch(run, 2, late=late)
    assert keep_ledger(now=NOW) == 3
    assert keep_ledger(now=NOW) == 0
    assert Loss.objects.get().records == 14
    [shown] = current(datetime.now(UTC))
    assert (shown.loop, shown.set_aside) == ("ledger", True)
    assert shown.about.startswith(f"batch 1 of run {run.pk} (progress row ")
    assert shown.cause.startswith("AttributeError")
    part = loops_part([shown])
    assert not part.ok
    assert "batch 1 of run" in part.sentence
    assert "Everything else is processed." in part.sentence


def test_a_count_that_no_database_can_store_is_unknown() -> None:
    _query, run = _running()
    for batch, rows in enumerate((7, 2**63, 7)):
        operator = {"operatorName": "dedupe", "numRowsDroppedByWatermark": rows}
        _batch(run, batch, late={"stateOperators": [operator]})
    assert keep_ledger(now=NOW) == 3
    assert Loss.objects.get().records == 14
    assert list(current(datetime.now(UTC))) == []


def test_the_batches_of_a_run_whose_definition_cannot_be_read_stop_no_other() -> None:
    _query, run = _running()
    _, other = _running("arrivals")
    QueryRevision.objects.filter(pk=run.revision_id).update(
        spec={"sources": [{"format": "kafka", "options": {"failOnDataLoss": 7}}]}
    )
    _batch(run, 0, rows=40, start=100, end=200)
    late = {"stateOperators": [{"operatorName": "dedupe", "numRowsDroppedByWatermark": 7}]}
    _batch(other, 0, late=late, spark_run_id="other")
    assert keep_ledger(now=NOW) == 2
    assert Loss.objects.get().query_id == other.query_id
    assert any(one.set_aside for one in current(datetime.now(UTC)))


#: Batches of a backlog that takes several slices.
BACKLOG = 60


@pytest.mark.usefixtures("bulk_work_pauses")
@pytest.mark.django_db(transaction=True)
def test_others_write_while_a_backlog_is_worked_off() -> None:
    """Before, a call held the write lock from its first batch to its last."""
    query, run = _running()
    _seen(query, 10**6, NOW + timedelta(seconds=5))
    for batch in range(BACKLOG):
        _batch(run, batch, rows=40, start=100 * batch, end=100 * batch + 100)
    first, last = Progress.objects.order_by("pk").values_list("pk", flat=True)[:: BACKLOG - 1]
    over = threading.Event()
    seen: set[int] = set()

    def write_beside() -> None:
        try:
            while not over.is_set():
                with transaction.atomic():  # as reconcile writes
                    Query.objects.filter(pk=query.pk).update(failures=0)
                    seen.update(Cursor.objects.values_list("position", flat=True))
                over.wait(0.005)
        finally:
            connection.close()

    thread = threading.Thread(target=write_beside)
    thread.start()
    try:
        judged, limit = 0, time.monotonic() + 60
        while judged < BACKLOG and time.monotonic() < limit:
            judged += keep_ledger(now=NOW + timedelta(seconds=6))
    finally:
        over.set()
        thread.join(30)
    assert judged == BACKLOG
    assert Loss.objects.count() == BACKLOG
    assert {position for position in seen if first <= position < last}, "nobody came between"


def test_a_call_without_time_left_says_how_far_behind_it_is() -> None:
    _query, run = _running()
    for batch in range(3):
        _batch(run, batch)
    assert keep_ledger(now=NOW, limit_s=0) == 0
    [ledger] = [one for one in backlogs() if one.name == LEDGER]
    assert (ledger.rows, ledger.since) == (3, NOW)
    part = backlog_part([ledger], NOW + timedelta(minutes=14))
    assert part.sentence == (
        "Loss ledger: 3 batches behind, the oldest by 14 min. It is processed in slices."
    )
    assert (part.ok, part.since) == (False, NOW)
    assert backlog_part([ledger], NOW + timedelta(seconds=90)).ok
    keep_ledger(now=NOW)
    assert backlog_part(backlogs(), NOW).sentence == "No background work is behind."
