"""Buckets sum up what arrived, whenever it arrived; what is too old goes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError
from django.db.models import QuerySet

from headgate_ground.wire import WireEvent
from listeners import models, retention
from listeners.loops.backlogs import RETENTION, backlogs
from listeners.store import EventBatch, store
from queries.services.system.parts import backlog_part
from tests.listeners.events import progress
from tests.listeners.rows import START, store_batch

pytestmark = pytest.mark.django_db


def bucket(width_s: int, start: datetime = START) -> models.Rollup:
    return models.Rollup.objects.get(query=42, width_s=width_s, start=start)


def standing() -> None:
    models.Latest.objects.create(query=42, driver=1, epoch=7, seq=1, run=5, at=START)


def arrive(*events: WireEvent) -> None:
    batch = EventBatch(START)
    for one in events:
        batch.add(one)
    store(batch)


def batch_event(batch: int, **body: Any) -> WireEvent:
    """Return the event of one batch, one second after the last one."""
    one = progress(batch + 1, batch)
    at = START + timedelta(seconds=batch)
    return replace(one, body={**one.body, "timestamp": at.isoformat(), **body})


def test_batches_are_summed_up_in_three_widths() -> None:
    arrive(*(batch_event(number, batchDuration=1000 + number) for number in range(12)))
    arrive(*(batch_event(number, batchDuration=1000 + number) for number in range(12, 25)))
    assert [bucket(10).batches, bucket(60).batches, bucket(3600).batches] == [10, 25, 25]
    hour = bucket(3600)
    assert (hour.rows, hour.duration_ms_min, hour.duration_ms_max) == (250, 1000, 1024)
    assert hour.duration_ms_sum == sum(1000 + number for number in range(25))
    assert (hour.input_rate_max, hour.processed_rate_max, hour.state_rows_max) == (10.5, 12.5, 7)
    assert (hour.add_batch_ms, hour.wal_commit_ms) == (25 * 700, None)


def test_a_batch_that_comes_late_is_added_although_the_raw_rows_are_gone() -> None:
    arrive(batch_event(1), batch_event(7200))
    models.Progress.objects.all().delete()
    watermark = {"watermark": (START - timedelta(seconds=58)).isoformat()}
    arrive(batch_event(2, numInputRows=5, eventTime=watermark, durationMs={"walCommit": 3}))
    assert (bucket(10).batches, bucket(10).rows) == (2, 15)
    assert (bucket(3600).rows, bucket(3600).add_batch_ms, bucket(3600).wal_commit_ms) == (
        15,
        700,
        3,
    )
    assert bucket(3600, START + timedelta(hours=2)).rows == 10


def test_a_batch_that_comes_twice_or_from_memory_counts_once() -> None:
    arrive(batch_event(1), batch_event(1))
    arrive(batch_event(1), batch_event(2), replace(batch_event(1), seq=9, repaired=True))
    assert (bucket(10).batches, bucket(10).rows) == (2, 20)


def test_what_has_passed_its_time_goes_and_the_rest_stays() -> None:
    arrive(*map(batch_event, range(10)))
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


def test_of_two_batches_with_one_number_the_stored_one_counts() -> None:
    arrive(batch_event(1))
    taken = replace(batch_event(1, numInputRows=999), seq=5)  # its batch id is stored already
    arrive(taken, replace(batch_event(2, numInputRows=7), seq=5))
    assert (bucket(10).batches, bucket(10).rows) == (2, 17)


def test_a_sum_beyond_a_column_stays_at_its_end_and_the_batches_are_stored() -> None:
    for number in range(2):
        arrive(*(batch_event(2 * number + one, numInputRows=2**62) for one in range(2)))
    assert (bucket(10).batches, bucket(10).rows) == (4, 2**63 - 1)
    assert models.Progress.objects.count() == 4


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
