"""The clock of retention: when unread records go, and when that is worth a warning."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.kafka.lag import PartitionLook
from queries.domain.kafka.retention import (
    DeletionDeadline,
    Retention,
    RetentionLimit,
    clock,
    read_retention,
    risk,
    span,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR_MS = 3_600_000
DAY = timedelta(days=1)


def look(**fields: Any) -> PartitionLook:
    known = {"committed": 100, "earliest": 0, "latest": 1100, **fields}
    return PartitionLook(topic="flights", partition=2, at=NOW, **known)


@pytest.mark.parametrize(
    ("config", "retention"),
    [
        ({}, Retention()),
        ({"retention.ms": "604800000", "retention.bytes": "-1"}, Retention(ms=604800000)),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, Retention(bytes=1000)),
        ({"cleanup.policy": "compact"}, Retention(deletes=False, compacts=True)),
        ({"cleanup.policy": "compact, delete"}, Retention(compacts=True)),
        ({"retention.ms": "soon"}, Retention()),
    ],
)
def test_a_topics_configuration_is_read_as_limits(
    config: dict[str, str], retention: Retention
) -> None:
    assert read_retention(config) == retention


def test_a_record_goes_when_its_age_reaches_the_topics_limit() -> None:
    at = clock(
        look(record_at=NOW - timedelta(minutes=45)),
        Retention(ms=HOUR_MS),
        record_bytes=None,
        now=NOW,
    )
    assert at == DeletionDeadline(NOW + timedelta(minutes=15), RetentionLimit.AGE, 0.75)


def test_a_record_goes_when_what_comes_after_it_fills_the_partition() -> None:
    one = look(arrival_rate=10.0)
    at = clock(one, Retention(bytes=160_000), record_bytes=100, now=NOW)
    assert at == DeletionDeadline(NOW + timedelta(seconds=60), RetentionLimit.SIZE, 0.625)


def test_the_earlier_of_both_limits_counts() -> None:
    one = look(arrival_rate=10.0, record_at=NOW)
    at = clock(one, Retention(ms=HOUR_MS, bytes=160_000), record_bytes=100, now=NOW)
    assert at is not None
    assert at.cause is RetentionLimit.SIZE
    at = clock(one, Retention(ms=1000, bytes=160_000), record_bytes=100, now=NOW)
    assert at is not None
    assert at.cause is RetentionLimit.AGE


@pytest.mark.parametrize(
    ("fields", "retention", "record_bytes"),
    [
        ({"latest": 100, "record_at": NOW}, Retention(ms=1), None),  # all is read
        ({"committed": None, "record_at": NOW}, Retention(ms=1), None),
        ({"record_at": NOW}, Retention(ms=1, deletes=False, compacts=True), None),
        ({"record_at": None}, Retention(ms=1), None),
        ({"record_at": NOW}, Retention(), None),
        ({"arrival_rate": 10.0}, Retention(bytes=160_000), None),  # no size of a record is known
        ({"arrival_rate": None}, Retention(bytes=160_000), 100),  # nothing arrives
        ({"arrival_rate": 0.0}, Retention(bytes=160_000), 100),
        ({"arrival_rate": 1e-9}, Retention(bytes=10**15), 100),  # beyond any calendar
        ({"record_at": NOW}, Retention(ms=2**62), None),  # "forever", as some set it
    ],
)
def test_no_clock_runs_where_nothing_is_deleted(
    fields: dict[str, Any], retention: Retention, record_bytes: float | None
) -> None:
    assert clock(look(**fields), retention, record_bytes=record_bytes, now=NOW) is None


@pytest.mark.parametrize("retention", [Retention(bytes=50_000), Retention(bytes=0)])
def test_a_partition_that_is_full_may_delete_at_any_moment(retention: Retention) -> None:
    one = clock(look(arrival_rate=None), retention, record_bytes=100, now=NOW)
    assert one == DeletionDeadline(NOW, RetentionLimit.SIZE, 1.0)


def test_a_retention_of_nothing_uses_up_a_record_at_once() -> None:
    one = clock(look(record_at=NOW), Retention(ms=0), record_bytes=None, now=NOW)
    assert one == DeletionDeadline(NOW, RetentionLimit.AGE, 1.0)


@given(age=st.integers(-(10**6), 10**9), ms=st.integers(1, 10**10))
def test_the_clock_by_age_is_the_records_time_and_the_limit(age: int, ms: int) -> None:
    record_at = NOW - timedelta(milliseconds=age)
    one = clock(look(record_at=record_at), Retention(ms=ms), record_bytes=None, now=NOW)
    assert one is not None
    assert one.at == record_at + timedelta(milliseconds=ms)
    assert 0.0 <= one.used <= 1.0


def test_a_stopped_query_that_will_lose_data_is_at_risk_with_the_time_left() -> None:
    due = DeletionDeadline(NOW + timedelta(hours=3, minutes=10), RetentionLimit.AGE, 0.9)
    later = DeletionDeadline(NOW + timedelta(hours=5), RetentionLimit.SIZE, 0.9)
    parts = [(look(), due), (replace(look(), partition=4), later)]
    found = risk(parts, running=False, may_have_read=False, within=DAY, now=NOW)
    assert found is not None
    assert found.at == due.at
    assert found.sentence == (
        "Will lose data in 3 h 10 min unless the query runs: unread records of flights-2 and 1 "
        "more will be deleted because of their age (retention.ms)."
    )


def test_a_full_partition_puts_a_running_query_at_risk_unless_it_gets_faster() -> None:
    found = risk(
        [(look(), DeletionDeadline(NOW, RetentionLimit.SIZE, 1.0))],
        running=True,
        may_have_read=True,
        within=DAY,
        now=NOW,
    )
    assert found is not None
    assert found.sentence == (
        "Will lose data any moment now unless the query gets faster: unread records of flights-2 "
        "will be deleted because of the partition's size (retention.bytes)."
    )


@pytest.mark.parametrize(
    ("used", "left", "running"),
    [
        (0.1, timedelta(hours=1), True),  # a few seconds behind on a short retention
        (0.9, timedelta(days=2), False),
        (0.9, timedelta(days=2), True),
    ],
)
def test_no_risk_where_there_is_time(used: float, left: timedelta, running: bool) -> None:
    parts = [(look(), DeletionDeadline(NOW + left, RetentionLimit.AGE, used)), (look(), None)]
    assert risk(parts, running=running, may_have_read=running, within=DAY, now=NOW) is None


def test_a_stopped_query_is_at_risk_from_the_first_record_on() -> None:
    parts = [(look(), DeletionDeadline(NOW + timedelta(hours=1), RetentionLimit.AGE, 0.01))]
    assert risk(parts, running=False, may_have_read=False, within=DAY, now=NOW) is not None


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        (
            1,
            "Has lost data: 1,204 offsets of flights-0 were deleted before they were read.",
        ),
        (
            4,
            "Has lost data: 4,816 offsets of flights-0, flights-1, flights-2 and 1 more were "
            "deleted before they were read.",
        ),
    ],
)
def test_what_is_lost_already_comes_before_what_will_be(lost: int, sentence: str) -> None:
    parts: list[tuple[PartitionLook, DeletionDeadline | None]] = [
        (replace(look(earliest=1304), partition=number), None) for number in range(lost)
    ]
    parts.append((look(), DeletionDeadline(NOW, RetentionLimit.AGE, 1.0)))
    found = risk(parts, running=False, may_have_read=False, within=DAY, now=NOW)
    assert found is not None
    assert (found.at, found.sentence) == (NOW, sentence)


def test_what_an_open_run_may_have_fetched_is_at_risk_and_not_lost() -> None:
    parts = [(look(earliest=1304), None), (look(), DeletionDeadline(NOW, RetentionLimit.AGE, 1.0))]
    for running in (True, False):  # it may be in its first batch
        found = risk(parts, running=running, may_have_read=True, within=DAY, now=NOW)
        assert found is not None
        assert (found.at, found.sentence) == (
            NOW,
            "May lose data: 1,204 offsets of flights-2 were deleted before a batch committed "
            "them. They are lost unless the run has already fetched them.",
        )


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (0, "0 min"),
        (59, "59 min"),
        (60, "1 h"),
        (190, "3 h 10 min"),
        (24 * 60, "1 d"),
        (52 * 60 + 59, "2 d 4 h"),
    ],
)
def test_time_left_is_told_in_two_units_at_most(minutes: int, text: str) -> None:
    assert span(timedelta(minutes=minutes)) == text
    assert span(timedelta(minutes=-5)) == "0 min"


@pytest.mark.parametrize(
    ("changes", "replaced"),
    [({"replaced": True}, ()), ({"committed": 5_000}, ()), ({}, ("flights",))],
)
def test_a_topic_that_was_created_again_comes_before_all_other_risks(
    changes: dict[str, Any], replaced: tuple[str, ...]
) -> None:
    part = replace(look(), earliest=0, **changes)
    found = risk(
        [(part, None)], running=True, may_have_read=True, within=DAY, now=NOW, replaced=replaced
    )
    assert found is not None
    assert found.at == NOW
    assert found.sentence.startswith("Topic flights was deleted and recreated")
