"""Buckets sum up what arrived, whenever it arrived; what is too old goes."""

from datetime import datetime, timedelta

import pytest

from listeners import models, retention, rollups
from tests.listeners.rows import START, store_batch

pytestmark = pytest.mark.django_db


def bucket(width_s: int, start: datetime = START) -> models.Rollup:
    return models.Rollup.objects.get(query=42, width_s=width_s, start=start)


def standing() -> None:
    models.Latest.objects.create(query=42, driver=1, epoch=7, seq=1, run=5, at=START)


def test_batches_are_summed_up_in_three_widths() -> None:
    for batch in range(25):
        store_batch(batch, input_rows_per_second=float(batch), state_rows=batch)
    assert rollups.roll_up() == 25
    assert [bucket(10).batches, bucket(60).batches, bucket(3600).batches] == [10, 25, 25]
    hour = bucket(3600)
    assert (hour.rows, hour.duration_ms_min, hour.duration_ms_max) == (250, 1000, 1024)
    assert hour.duration_ms_sum == sum(1000 + batch for batch in range(25))
    assert (hour.input_rate_max, hour.processed_rate_max, hour.state_rows_max) == (24, None, 24)
    assert hour.phases_ms_sum == {"addBatch": 25 * 800, "walCommit": 25 * 20}


def test_a_batch_that_comes_late_finds_its_buckets() -> None:
    store_batch(1)
    store_batch(7200)
    rollups.roll_up()
    store_batch(2, num_input_rows=5, watermark=START - timedelta(seconds=58))
    assert rollups.roll_up() == 1
    assert (bucket(10).batches, bucket(10).rows) == (2, 15)
    assert (bucket(3600).rows, bucket(3600).watermark_delay_s_max) == (15, 60)
    assert bucket(3600, START + timedelta(hours=2)).rows == 10


def test_nothing_new_is_nothing_to_do() -> None:
    store_batch(1)
    rollups.roll_up()
    assert rollups.roll_up() == 0
    assert bucket(10).batches == 1


def test_what_has_passed_its_time_goes_and_the_rest_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "ROWS_AT_ONCE", 3)
    for batch in range(10):
        store_batch(batch)
    standing()
    rollups.roll_up()
    for number, (kind, at) in enumerate((("idle", START), ("started", START))):
        models.Event.objects.create(
            driver=1, epoch=7, seq=100 + number, at=at, received_at=at, kind=kind
        )
    models.Gap.objects.create(kind="batch", driver=1, first=1, last=1, missing=1, noticed_at=START)
    after_eight_days = START + timedelta(days=8, seconds=5)
    store_batch(99, at=after_eight_days, seq=500)
    retention.expire(now=after_eight_days, raw_days=7, history_days=90)
    assert list(models.Progress.objects.values_list("batch", flat=True)) == [99]
    assert list(models.Event.objects.values_list("kind", flat=True)) == ["started"]
    assert sorted(models.Rollup.objects.values_list("width_s", flat=True)) == [60, 3600]
    assert models.Gap.objects.count() == 1
    retention.expire(now=START + timedelta(days=91), raw_days=7, history_days=90)
    assert [models.Rollup.objects.count(), models.Gap.objects.count()] == [0, 0]


def test_a_call_without_time_left_removes_nothing() -> None:
    store_batch(1)
    standing()
    later = START + timedelta(days=800)
    assert retention.expire(now=later, raw_days=7, history_days=90, limit_s=0) == 0
    assert models.Progress.objects.count() == 1
