"""The latest line, the newest heartbeat and the rises of drop counters move forward only."""

from datetime import timedelta

import pytest

from headgate_ground.wire import EventKind, WireEvent
from listeners import models
from listeners.store import EventBatch, store
from tests.listeners.events import event, heartbeat, progress
from tests.listeners.rows import START

pytestmark = pytest.mark.django_db


def arrive(*events: WireEvent) -> None:
    batch = EventBatch(START)
    for one in events:
        batch.add(one)
    store(batch)


def line() -> tuple[int, int, int, int | None]:
    row = models.Latest.objects.get(query=42)
    return row.epoch, row.seq, row.run, row.batch


def test_a_line_follows_the_newest_event() -> None:
    arrive(progress(2, 8), progress(3, 9))
    arrive(event(EventKind.IDLE, 4, body={}))
    row = models.Latest.objects.get(query=42)
    assert line() == (7, 4, 5, 9)
    assert row.idle_at == START + timedelta(seconds=4)
    assert row.progress_at == START + timedelta(seconds=3)


def test_an_older_event_that_comes_late_changes_nothing_newer() -> None:
    arrive(progress(9, 12))
    arrive(progress(3, 8))
    assert line() == (7, 9, 5, 12)


def test_a_batch_from_memory_is_not_the_newest_although_its_number_is() -> None:
    arrive(progress(5, 12))
    arrive(progress(6, 10, repaired=True))
    assert line() == (7, 6, 5, 12)


def test_a_later_run_that_begins_lower_is_newer() -> None:
    arrive(progress(5, 12))
    arrive(progress(1, 3, epoch=8, driver=2, run=6))
    assert line() == (8, 1, 6, 3)


def test_an_earlier_epochs_straggler_does_not_turn_the_line_back() -> None:
    arrive(progress(1, 13, epoch=8, driver=2, run=6))
    arrive(progress(99, 12))
    assert line() == (8, 1, 6, 13)


def test_a_rise_of_a_drop_counter_is_a_row_with_its_time() -> None:
    arrive(heartbeat(1), heartbeat(2, streams=3), heartbeat(3, streams=3, outbox=2))
    arrive(heartbeat(5, streams=10, ours=None))
    rises = models.DroppedEvents.objects.order_by("until", "queue")
    assert [(rise.queue, rise.count, rise.total) for rise in rises] == [
        ("streams", 3, 3),
        ("outbox", 2, 2),
        ("streams", 7, 10),
    ]
    assert rises[0].since == START + timedelta(seconds=1)
    assert rises[0].until == START + timedelta(seconds=2)


def test_heartbeats_twice_or_late_raise_nothing() -> None:
    arrive(heartbeat(2, streams=5))
    arrive(heartbeat(1, streams=1), heartbeat(2, streams=5))
    assert models.Heartbeat.objects.get().seq == 2
    assert models.DroppedEvents.objects.get().count == 5
