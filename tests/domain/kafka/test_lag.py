"""How far a source is behind: records, seconds, rates, time to catch up, the skewed partition."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.kafka.lag import (
    Behind,
    OffsetUnit,
    PartitionLook,
    after,
    behind,
    catch_up_s,
    deleted_unread,
    further,
    kafka_offsets,
    merged,
    skewed,
    smoothed,
    total,
    unread,
    waiting,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def look(**fields: Any) -> PartitionLook:
    known = {"at": NOW, "committed": 100, "earliest": 0, "latest": 150, **fields}
    return PartitionLook(topic="flights", partition=0, **known)


def part(records: int | None, **fields: Any) -> Behind:
    rest = {"gone": 0, "seconds": None, "arrival_rate": None, "processing_rate": None}
    return Behind(**{"records": records, "catch_up_s": None, **rest, **fields})


@pytest.mark.parametrize(
    ("fields", "records", "lost"),
    [
        ({}, 50, 0),
        ({"latest": 100}, 0, 0),
        ({"latest": 90}, 90, 0),  # the topic was created again: all of it is unread
        ({"replaced": True}, 150, 0),  # by its id: the same
        ({"latest": 90, "earliest": None}, 0, 0),  # by progress alone: an older latest
        ({"earliest": 120}, 30, 20),  # 20 are gone, 30 are left
        ({"earliest": 150}, 0, 50),
        ({"committed": None}, None, 0),
        ({"latest": None}, None, 0),
        ({"earliest": None}, 50, 0),
    ],
)
def test_records_behind_are_those_that_can_still_be_read(
    fields: dict[str, Any], records: int | None, lost: int
) -> None:
    one = look(**fields)
    assert unread(one) == records
    assert deleted_unread(one.committed, one.earliest) == lost
    assert behind(one, now=NOW).records == records
    assert behind(one, now=NOW).gone == lost


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"record_at": NOW - timedelta(seconds=90)}, 90.0),
        ({"record_at": NOW + timedelta(seconds=5)}, 0.0),  # a producer's clock that runs ahead
        ({"record_at": None}, None),
        ({"latest": 100, "record_at": NOW - timedelta(days=1)}, 0.0),
        ({"committed": None, "record_at": NOW}, None),
    ],
)
def test_seconds_behind_are_the_age_of_the_record_that_is_read_next(
    fields: dict[str, Any], seconds: float | None
) -> None:
    assert behind(look(**fields), now=NOW).seconds == seconds


@pytest.mark.parametrize(
    ("records", "arrival", "processing", "seconds"),
    [
        (0, None, None, 0.0),
        (1000, 100.0, 300.0, 5.0),
        (1000, 0.0, 100.0, 10.0),
        (1000, 300.0, 300.0, None),
        (1000, 300.0, 100.0, None),
        (1000, None, 100.0, None),
        (1000, 1.0, None, None),
        (None, 1.0, 2.0, None),
    ],
)
def test_time_to_catch_up_is_told_only_where_more_is_worked_off_than_arrives(
    records: int | None, arrival: float | None, processing: float | None, seconds: float | None
) -> None:
    assert catch_up_s(records, arrival, processing) == seconds


def test_rates_are_told_from_two_looks_and_smoothed() -> None:
    first = after(look(at=NOW), None, running=True)
    assert (first.arrival_rate, first.processing_rate) == (None, None)
    later = look(at=NOW + timedelta(seconds=5), committed=150, latest=250)
    second = after(later, first, running=True)
    assert (second.arrival_rate, second.processing_rate) == (20.0, 10.0)
    much_later = look(at=NOW + timedelta(seconds=35), committed=150, latest=250)
    third = after(much_later, second, running=True)
    assert third.arrival_rate == pytest.approx(10.0)  # half of it after one half-life
    assert third.processing_rate == pytest.approx(5.0)


@pytest.mark.parametrize("was", [{"latest": 900}, {"latest": None}])
def test_offsets_that_went_back_tell_no_rate(was: dict[str, Any]) -> None:
    before = replace(look(at=NOW, arrival_rate=7.0), **was)
    assert after(look(at=NOW + timedelta(seconds=5)), before, running=True).arrival_rate is None


def test_a_query_that_does_not_run_works_nothing_off() -> None:
    before = look(at=NOW, processing_rate=50.0)
    assert after(look(at=NOW + timedelta(seconds=5)), before, running=False).processing_rate == 0.0


def test_no_time_between_two_looks_changes_no_rate() -> None:
    assert smoothed(12.0, 500, 0.0) == 12.0
    assert smoothed(None, 500, -1.0) is None


@given(
    before=st.floats(0, 1e6),
    moved=st.integers(0, 10**9),
    seconds=st.floats(0.001, 1e5),
)
def test_a_smoothed_rate_lies_between_the_old_and_the_new(
    before: float, moved: int, seconds: float
) -> None:
    rate = smoothed(before, moved, seconds)
    low, high = sorted((before, moved / seconds))
    assert rate is not None
    assert low * (1 - 1e-9) - 1e-9 <= rate <= high * (1 + 1e-9) + 1e-9


def test_the_whole_is_the_sum_of_its_parts_and_as_old_as_the_oldest() -> None:
    parts = [
        part(100, seconds=5.0, arrival_rate=10.0, processing_rate=20.0),
        part(300, seconds=50.0, arrival_rate=10.0, processing_rate=40.0, gone=7),
        part(None),
    ]
    whole = total(parts)
    assert (whole.records, whole.gone, whole.seconds) == (400, 7, 50.0)
    assert (whole.arrival_rate, whole.processing_rate, whole.catch_up_s) == (20.0, 60.0, 10.0)


def test_of_nothing_known_nothing_is_said() -> None:
    assert total([part(None)]) == part(None)
    assert total([]) == part(None)


@pytest.mark.parametrize(
    ("records", "worst"),
    [
        ([1000, 10, 10], 0),
        ([10, 5000, 1000, 500], 1),
        ([999, 0, 0], None),  # too few to speak of
        ([3000, 1001, 1001], None),  # less than three times the others
        ([3003, 1001, 1001], 0),
        ([5000], None),  # one partition is skewed against nothing
        ([5000, None], None),
        ([2000, 2000], None),
    ],
)
def test_the_skewed_partition_is_named_by_one_rule(
    records: list[int | None], worst: int | None
) -> None:
    parts = {number: part(count) for number, count in enumerate(records)}
    assert skewed(parts) == worst


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 10**7), max_size=12))
def test_a_skewed_partition_is_always_the_one_furthest_behind(counts: dict[int, int]) -> None:
    worst = skewed({number: part(count) for number, count in counts.items()})
    if worst is not None:
        assert counts[worst] == max(counts.values()) >= 1000


@pytest.mark.parametrize(
    ("value", "offsets"),
    [
        ({"flights": {"0": 12, "1": 7}}, {"flights": {0: 12, 1: 7}}),
        ({"logOffset": 3}, {}),  # a file source's
        (17, {}),  # a rate source's
        (None, {}),
        ({}, {}),
        ({"flights": {"0": None}}, {}),
        ({"flights": {"zero": 1}}, {}),
    ],
)
def test_only_kafkas_offsets_are_read_as_such(value: Any, offsets: Any) -> None:
    assert kafka_offsets(value) == offsets


def test_two_sources_on_a_partition_count_as_the_one_that_is_behind() -> None:
    assert merged([{"a": {0: 5, 1: 9}}, {"a": {0: 3}, "b": {0: 1}}]) == {
        "a": {0: 3, 1: 9},
        "b": {0: 1},
    }


def test_the_fresher_of_log_and_progress_counts() -> None:
    assert further({"a": {0: 5, 1: 9}}, {"a": {0: 8, 1: 2}, "b": {0: 1}}) == {
        "a": {0: 8, 1: 9},
        "b": {0: 1},
    }


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 0),  # it reads uncommitted records too
        ({"stable": 150}, 0),
        ({"stable": 120}, 30),
        ({"stable": 90}, 50),
        ({"stable": 90, "earliest": 130}, 20),
        ({"stable": 120, "committed": None}, 0),
        ({"stable": 120, "latest": None}, 0),
        ({"stable": 120, "earliest": None}, 30),
    ],
)
def test_what_is_behind_an_open_transaction_waits(fields: dict[str, Any], count: int) -> None:
    one = look(**fields)
    assert waiting(one) == count
    assert behind(one, now=NOW).waiting == count
    assert total([behind(one, now=NOW), part(5, waiting=2)]).waiting == count + 2


def test_offsets_are_called_records_only_where_all_of_them_are_known_to_be() -> None:
    plain, other = behind(look(plain=True), now=NOW), behind(look(), now=NOW)
    assert (plain.unit, other.unit) == (OffsetUnit.RECORDS, OffsetUnit.OFFSETS)
    assert total([plain, plain]).unit is OffsetUnit.RECORDS
    assert total([plain, other]).unit is OffsetUnit.OFFSETS
    assert total([]).unit is OffsetUnit.OFFSETS


def test_what_is_unread_is_so_since_the_first_look_that_saw_it() -> None:
    first = after(look(), None, running=True)
    assert first.unread_since == NOW
    later = NOW + timedelta(seconds=5)
    still = after(look(at=later, latest=170), first, running=True)
    assert still.unread_since == NOW
    assert after(look(at=later, committed=110), first, running=True).unread_since == later
    assert after(look(at=later, committed=150), first, running=True).unread_since is None
    assert after(look(at=later, latest=None), first, running=True).unread_since is None
    held = after(look(at=later, stable=100), first, running=True)
    assert held.unread_since is None
    assert after(look(at=later), replace(first, unread_since=None), running=True).unread_since == (
        later
    )
