"""Bulk work leaves the database to others between its slices, and to one worker at a time."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DataError, OperationalError, connection

from listeners import models
from listeners.loops import slices
from listeners.loops.slices import LEASE, Lease, Leases, bulk_work
from listeners.models import Cursor

#: Far longer than any of this takes: only a defect is cut off here. Seconds.
LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def _sizes_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_sizes", {})


def write(some: Sequence[int]) -> None:
    models.DeadLetter.objects.bulk_create(
        models.DeadLetter(
            entry=str(one), received_at=datetime.now(UTC), reason=str(10 // one), data=b""
        )
        for one in some
    )


def stored() -> list[str]:
    return list(models.DeadLetter.objects.order_by("pk").values_list("entry", flat=True))


def nobody(row: int, error: Exception) -> None:
    raise AssertionError(f"{row} was refused") from error


@pytest.mark.usefixtures("bulk_work_pauses")
@pytest.mark.django_db(transaction=True)
def test_another_writer_gets_the_database_between_two_slices() -> None:
    written = threading.Event()

    def other() -> None:
        try:
            Cursor.objects.create(name="another writer")
            written.set()
        finally:
            connection.close()

    with bulk_work("w", limit_s=LIMIT_S) as work:
        assert work is not None
        with work.slice():
            thread = threading.Thread(target=other)
            thread.start()  # finds the database taken
            write([1])
        slices_after = 0
        while not written.is_set() and work.has_time:
            with work.slice():
                write([slices_after + 2])
            slices_after += 1
    thread.join(LIMIT_S)
    assert written.is_set()
    assert slices_after < 10  # one would do, if no other process wanted the cores


@pytest.mark.django_db
def test_one_worker_does_a_kind_of_work_at_a_time() -> None:
    with bulk_work("w", limit_s=LIMIT_S) as first, bulk_work("w", limit_s=LIMIT_S) as second:
        assert first is not None
        assert second is None
    with bulk_work("w", limit_s=LIMIT_S) as again:
        assert again is not None


@pytest.mark.django_db
def test_the_work_of_a_dead_worker_is_taken_over_and_should_it_wake_it_writes_nothing() -> None:
    with bulk_work("w", limit_s=LIMIT_S) as frozen:
        assert frozen is not None
        Cursor.objects.filter(name="w").update(leased_until=datetime.now(UTC) - LEASE)
        with bulk_work("w", limit_s=LIMIT_S) as successor:
            assert successor is not None
            with successor.slice():
                write([1])
        with frozen.slice():
            write([2])
        raise AssertionError("the frozen worker went on")
    assert stored() == ["1"]


@pytest.mark.django_db
def test_a_clock_that_was_set_back_does_not_keep_the_work_for_ever() -> None:
    Cursor.objects.create(name="w", leased_until=datetime.now(UTC) + timedelta(days=400))
    with bulk_work("w", limit_s=LIMIT_S) as work:
        assert work is not None


@pytest.mark.django_db
def test_a_slice_is_cut_to_what_the_last_ones_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "AIM_S", 1000.0)  # every slice is fast
    with bulk_work("w", limit_s=LIMIT_S) as work:
        assert work is not None
        assert work.size() == slices.FIRST_ROWS
        with work.slice(10):  # too few to conclude anything
            pass
        assert work.size() == slices.FIRST_ROWS
        for _ in range(20):
            with work.slice(work.size()):
                pass
        assert work.size() == slices.MOST_ROWS
        assert work.size("of another kind") == slices.FIRST_ROWS
        monkeypatch.setattr(slices, "AIM_S", 1e-9)  # and now every one is slow
        for _ in range(20):
            with work.slice(work.size()):
                pass
        assert work.size() == 1


@pytest.mark.django_db
def test_a_row_that_cannot_be_stored_is_refused_alone() -> None:
    refused: list[tuple[int, str]] = []
    with bulk_work("w", limit_s=LIMIT_S) as work:
        assert work is not None
        whole = work.write(
            [5, 0, 2], write, lambda row, error: refused.append((row, type(error).__name__))
        )
    assert whole
    assert stored() == ["5", "2"]
    assert refused == [(0, "ZeroDivisionError")]


@pytest.mark.django_db
def test_a_database_that_does_not_answer_blames_no_row() -> None:
    def locked(_: object) -> None:
        raise OperationalError("database is locked")

    def work_off() -> None:
        with bulk_work("w", limit_s=LIMIT_S) as work:
            assert work is not None
            work.write([1], locked, nobody)

    with pytest.raises(OperationalError):
        work_off()
    assert Cursor.objects.get(name="w").leased_until is None  # given back


@pytest.mark.django_db
def test_what_there_is_no_time_for_is_left() -> None:
    with bulk_work("w", limit_s=0) as work:
        assert work is not None
        assert not work.write([1], write, nobody)
        work.left(7, datetime(2026, 3, 1, tzinfo=UTC))
    row = Cursor.objects.get(name="w")
    assert (row.left_rows, row.left_since) == (7, datetime(2026, 3, 1, tzinfo=UTC))
    assert row.ran_at is not None


def test_errors_of_a_row_are_told_from_those_of_the_database() -> None:
    assert slices.lies_in_the_row(DataError())
    assert slices.lies_in_the_row(TypeError())
    assert not slices.lies_in_the_row(OperationalError())
    assert not slices.lies_in_the_row(slices.LeaseLost())


@pytest.mark.django_db(transaction=True)
def test_a_lease_is_renewed_after_the_database_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = Cursor.objects.create(name="leased")
    lease = Leases(timedelta(seconds=0.6)).take(
        Cursor.objects.all(), cursor.pk, now=datetime.now(UTC)
    )
    assert lease is not None
    first, renew, renewed = lease.until, Lease.renew, threading.Event()
    errors: list[OperationalError] = []

    def busy_once(lease: Lease, now: datetime) -> datetime:
        if not errors:
            errors.append(OperationalError("database is locked"))
            raise errors[0]
        until = renew(lease, now)
        renewed.set()
        return until

    monkeypatch.setattr(Lease, "renew", busy_once)
    with lease.renewed():
        assert renewed.wait(LIMIT_S)
    assert errors
    assert lease.until > first
    cursor.refresh_from_db()
    assert cursor.leased_until is None
