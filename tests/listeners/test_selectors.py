"""What pages and API read of drivers' telemetry."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from headgate_ground.wire import HeartbeatBody, ListenerTimes, QueueCounters
from listeners import models, selectors
from tests.listeners.rows import START, store_batch

pytestmark = pytest.mark.django_db


def test_the_latest_line_of_a_query_that_never_spoke_is_absent() -> None:
    models.Latest.objects.create(
        query=42, driver=1, epoch=7, seq=3, run=5, at=START, progress_at=START, batch=9, progress={}
    )
    lines = selectors.latest([42, 43])
    assert list(lines) == [42]
    assert (lines[42].batch, lines[42].idle_at) == (9, None)


def test_bars_are_the_last_batches_oldest_first_with_the_holes_of_their_run() -> None:
    for batch in (1, 2, 5):
        store_batch(batch)
    store_batch(9, run=6, seq=20)  # a later run: its first batch follows nothing of its own
    store_batch(3, query=43, run=8, seq=30)
    bars = selectors.heartbeat_bars([42, 43, 44], count=3)
    assert [(bar.batch, bar.missing_before) for bar in bars[42]] == [(2, 0), (5, 2), (9, 0)]
    assert [bar.batch for bar in bars[43]] == [3]
    assert 44 not in bars


def test_bars_of_two_hundred_queries_take_one_statement() -> None:
    for query in range(200):
        store_batch(1, query=query, run=query, seq=query + 1, spark_run_id=str(query))
    with CaptureQueriesContext(
        connection,
    ) as statements:
        bars = selectors.heartbeat_bars(range(200), count=40)
    assert len(bars) == 200
    assert len(statements) == 1


def test_pages_of_progress_follow_each_other_without_a_row_twice() -> None:
    for batch in range(7):
        store_batch(batch)
    store_batch(7, seq=99, at=START + timedelta(seconds=3.5))  # repaired late, belongs inside
    first = selectors.progress_page(42, limit=3)
    rest = selectors.progress_page(42, before=first[-1]["id"], limit=10)
    assert [row["batch"] for row in first + rest] == [6, 5, 4, 7, 3, 2, 1, 0]
    assert first[0]["progress"]["batchId"] == 6


def test_a_page_after_a_row_that_is_gone_is_empty() -> None:
    store_batch(1)
    assert selectors.progress_page(42, before=10**6) == []


def test_progress_can_be_read_of_one_run_only() -> None:
    store_batch(1)
    store_batch(2, run=6, seq=9)
    assert [row["run"] for row in selectors.progress_page(42, run=6)] == [6]


def test_a_series_has_columns_of_equal_length_and_a_break_between_runs() -> None:
    store_batch(1, watermark=START - timedelta(seconds=9), state_rows=4)
    store_batch(2, run=6, seq=9)
    chart = selectors.series(42, since=START, until=START + timedelta(hours=1))
    assert chart.batches == [1, None, 2]
    assert chart.columns["watermark_delay_s"] == [10.0, None, None]
    assert chart.columns["state_rows"] == [4, None, None]
    assert chart.columns["phase_addBatch"] == [800, None, 800]
    assert {len(column) for column in chart.columns.values()} == {len(chart.at)} == {3}


def test_a_long_series_keeps_its_peak() -> None:
    for batch in range(400):
        store_batch(batch, batch_duration_ms=90_000 if batch == 217 else 1000 + batch % 7)
    chart = selectors.series(42, since=START, until=START + timedelta(hours=1), points=60)
    assert len(chart.at) <= 80
    assert max(value or 0 for value in chart.columns["batch_duration_ms"]) == 90_000


def test_before_the_oldest_raw_batch_a_series_is_drawn_from_rollups() -> None:
    models.Rollup.objects.create(
        query=42,
        width_s=10,
        start=START - timedelta(minutes=5),
        batches=4,
        rows=40,
        duration_ms_min=1,
        duration_ms_max=9,
        duration_ms_sum=20,
        add_batch_ms=12,
    )
    store_batch(1)
    chart = selectors.series(42, since=START - timedelta(minutes=10), until=START + timedelta(1))
    assert chart.batches == [None, 1]
    assert chart.columns["batch_duration_ms"] == [9, 1001]
    assert chart.columns["phase_addBatch"] == [3, 800]


def test_a_series_too_long_for_raw_rows_is_drawn_from_rollups(monkeypatch: Any) -> None:
    monkeypatch.setattr("listeners.series.RAW_LIMIT", 5)
    for batch in range(10):
        store_batch(batch)
    assert selectors.series(42, since=START, until=START + timedelta(hours=1)).at == []


def test_a_series_of_no_query_is_empty() -> None:
    chart = selectors.series(1, since=START, until=START)
    assert (chart.at, chart.batches) == ([], [])


def _rise(driver: int, queue: str, count: int, total: int, minute: int) -> None:
    models.DroppedEvents.objects.create(
        driver=driver,
        queue=queue,
        count=count,
        total=total,
        since=START + timedelta(minutes=minute),
        until=START + timedelta(minutes=minute + 1),
    )


def test_losses_are_those_of_the_present_driver_and_count_what_came_back() -> None:
    _rise(1, "streams", 5, 5, 0)
    _rise(1, "streams", 7, 12, 3)
    _rise(1, "outbox", 2, 2, 1)
    _rise(9, "streams", 1000, 1000, 0)  # an earlier driver
    store_batch(1, repaired=True)
    store_batch(2)
    models.Gap.objects.create(
        kind="batch",
        driver=1,
        query=42,
        run=5,
        first=3,
        last=6,
        missing=4,
        repaired=1,
        noticed_at=START,
    )
    losses = selectors.dropped([42, 43], drivers={42: 1})
    assert losses[42] == selectors.Dropped(
        bus=12,
        outbox=2,
        missing_batches=4,
        repaired=1,
        since=START,
        until=START + timedelta(minutes=4),
    )
    assert losses[43] == selectors.Dropped(0, 0, 0, 0, None, None)


def test_rises_of_the_drop_counter_can_be_read_for_the_banner() -> None:
    _rise(1, "streams", 5, 5, 0)
    _rise(2, "ours", 1, 1, 30)
    rises = selectors.drops_since(START + timedelta(minutes=10))
    assert [(rise["driver"], rise["queue"], rise["count"]) for rise in rises] == [(2, "ours", 1)]


def test_telemetry_is_the_newest_heartbeat_as_the_driver_wrote_it() -> None:
    heartbeat = HeartbeatBody(
        mode="private",
        streams=QueueCounters(dropped=3, size=0, capacity=5, processing_p95_ms=1.5),
        ours=None,
        listeners=(ListenerTimes("mine:Slow", 4, 1, "ValueError: no", 3000, 3100, True),),
        last_seq=9,
        unsent=0,
        outbox_dropped=0,
        missing_batches=0,
        repaired=0,
    )
    models.Heartbeat.objects.create(
        driver=1, epoch=7, seq=9, at=START, received_at=START, body=heartbeat.body()
    )
    assert selectors.telemetry([1, 2])[1].heartbeat == heartbeat


def test_a_run_is_summed_up_and_a_run_without_batches_is_none() -> None:
    store_batch(3)
    store_batch(4, repaired=True)
    assert selectors.run_summary(5) == {
        "first": 3,
        "last": 4,
        "batches": 2,
        "rows": 20,
        "repaired": 1,
    }
    assert selectors.run_summary(6) is None


@pytest.mark.sql
def test_rows_of_runs_are_added_up_and_an_unknown_count_makes_a_sum_unknown() -> None:
    store_batch(1, body={"sink": {"numOutputRows": 7}})
    store_batch(2, body={"sink": {"numOutputRows": 0}})
    store_batch(1, run=6, seq=20, body={"sink": {"numOutputRows": 7}})
    store_batch(2, run=6, seq=21, body={"sink": {}})
    assert selectors.run_rows([5, 6, 7]) == {5: (20, 7), 6: (20, None)}
