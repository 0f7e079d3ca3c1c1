"""Buckets sum up what arrived, whenever it arrived; what is too old goes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError
from django.db.models import QuerySet

from listeners import models, retention, rollups
from listeners.loops.backlogs import RETENTION, ROLLUPS, backlogs
from queries.services.system.backlogs import backlog_part
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


def test_what_has_passed_its_time_goes_and_the_rest_stays() -> None:
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


def test_rotten_rows_leave_out_themselves_and_stop_nothing() -> None:
    for batch, told in enumerate(({"addBatch": 800}, ["addBatch"], {"addBatch": "soon"})):
        store_batch(batch, body={"batchId": batch, "durationMs": told})
    store_batch(3, body=["no progress"])
    assert rollups.roll_up() == 4
    assert (bucket(10).batches, bucket(10).phases_ms_sum) == (4, {"addBatch": 800})
    assert rollups.roll_up() == 0


def test_a_bucket_that_cannot_be_stored_is_set_aside_and_the_others_are_there() -> None:
    for batch in (0, 1):
        store_batch(batch, num_input_rows=2**62)  # together more than a column holds
    store_batch(7200)
    assert rollups.roll_up() == 3
    assert bucket(10, START + timedelta(hours=2)).batches == 1
    assert not models.Rollup.objects.filter(start=START).exists()
    found = models.Trouble.objects.values_list("loop", "about", "set_aside")
    assert ("rollups", "10 s from 2026-03-01 12:00:00 of query 42", True) in found
    assert rollups.roll_up() == 0


def test_a_call_that_ran_out_of_time_is_gone_on_with() -> None:
    for batch in range(5):
        store_batch(batch)
    assert rollups.roll_up(limit_s=0) == 0
    assert [(one.rows, one.since) for one in backlogs() if one.name == ROLLUPS] == [(5, START)]
    assert rollups.roll_up() == 5
    assert [(one.rows, one.since) for one in backlogs() if one.name == ROLLUPS] == [(0, None)]


def test_a_table_that_cannot_be_cleared_keeps_the_others_from_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store_batch(1)
    standing()
    models.Event.objects.create(
        driver=1, epoch=7, seq=9, at=START, received_at=START, kind="started"
    )
    models.Gap.objects.create(kind="batch", driver=1, first=1, last=1, missing=1, noticed_at=START)
    real = QuerySet.delete

    def delete(rows: "QuerySet[Any]") -> Any:
        if rows.model is models.Event:
            raise IntegrityError("a table is damaged")
        return real(rows)

    monkeypatch.setattr(QuerySet, "delete", delete)
    retention.expire(now=START + timedelta(days=800), raw_days=7, history_days=90)
    counts = [one.objects.count() for one in (models.Progress, models.Event, models.Gap)]
    assert counts == [0, 1, 0]
    assert "retention: skipped events" in caplog.text


def test_what_retention_had_no_time_for_is_told_and_due_at_once() -> None:
    store_batch(1)
    standing()
    later = START + timedelta(days=9, seconds=1)
    assert retention.is_due(now=later)
    retention.expire(now=later, raw_days=7, history_days=90, limit_s=0)
    [left] = [one for one in backlogs() if one.name == RETENTION]
    assert (left.rows, left.since) == (1, START + timedelta(days=7, seconds=1))
    assert not backlog_part([left], later).ok
    assert retention.is_due(now=datetime.now(UTC))
    retention.expire(now=later, raw_days=7, history_days=90)
    assert not retention.is_due(now=datetime.now(UTC))
    assert retention.is_due(now=datetime.now(UTC) + timedelta(hours=2))
