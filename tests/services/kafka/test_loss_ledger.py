"""The loss ledger: late rows by day, skipped records from batches that came up short, once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from listeners.models import Progress
from queries.domain.kafka.losses import Gap
from queries.domain.states import LossKind
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors.kafka.loss_ledger import loss_totals
from queries.services.kafka.loss_ledger import keep_ledger, write_gaps
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
    run: Run, batch: int, *, rows: int = 0, start: int = 0, end: int = 0, late: Any = None
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
        spark_run_id="here",
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


def test_a_gap_is_written_once_whoever_saw_it() -> None:
    query, run = _running()
    _seen(query, 160, NOW + timedelta(seconds=5))
    gap = Gap("flights", 0, 100, 150)
    assert len(write_gaps(query=query, gaps=[gap], kind=LossKind.SKIPPED, now=NOW)) == 1
    assert write_gaps(query=query, gaps=[gap], kind=LossKind.RETENTION, now=NOW) == []
    _batch(run, 4, rows=40, start=100, end=200)
    keep_ledger(now=NOW + timedelta(seconds=6))
    rows = Loss.objects.order_by("from_offset").values_list("from_offset", "to_offset")
    assert list(rows) == [(100, 150), (150, 160)]


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
