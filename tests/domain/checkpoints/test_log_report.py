"""A driver's report on a checkpoint's logs: what it leaves out, and what is not accepted as one."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from queries.domain.checkpoints.logs import (
    MOST_ENTRIES,
    MOST_OF_REPORT,
    MOST_OFFSETS,
    LogEntry,
    LogReport,
    parse,
    read_offsets,
    report_file,
    shortened,
    within_limit,
)

PLACE = "s3a://flights/checkpoints/delays"
AT = "2026-07-01T12:00:00+00:00"
LOG = 'v1\n{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"a":"b"}}\n{"flights":{"0":1}}\n-'


def said(**changes: Any) -> str:
    report = LogReport(PLACE, AT, offsets=(LogEntry(1, 8, LOG, 7),), commits=(LogEntry(1, 9),))
    return json.dumps(asdict(report) | changes)


def test_a_report_is_read_as_it_was_written() -> None:
    found = parse(said(), PLACE)
    assert (found.at, found.ended) == (AT, False)
    assert found.offsets == (LogEntry(1, 8, LOG, 7),)
    assert found.commits == (LogEntry(1, 9),)
    assert found.seen_at is not None


def test_two_checkpoints_of_a_driver_have_two_files() -> None:
    assert report_file(PLACE) != report_file(f"{PLACE}2")
    assert "/" not in report_file(PLACE)


def test_the_pinned_configuration_is_left_out_and_the_rest_can_be_read() -> None:
    text, began = shortened(1, LOG)
    assert (began, "conf" in (text or "")) == (7, False)
    found, whole = read_offsets(1, text or ""), read_offsets(1, LOG)
    assert (found.sources, found.watermark_ms) == (whole.sources, whole.watermark_ms)
    epoch, none = shortened(1, "v2\n\nflights:{}")
    assert (epoch, none) == ("v2\n{}\nflights:{}", None)


def test_a_file_that_is_no_offset_log_is_left_out() -> None:
    assert shortened(1, "anything") == (None, None)


def test_the_newest_offsets_are_kept_if_there_are_too_many() -> None:
    long = "x" * (MOST_OFFSETS // 2)
    found = within_limit(tuple(LogEntry(number, 1, long, 5) for number in range(4)))
    assert [one.text is None for one in found] == [True, True, False, False]
    assert [one.began_ms for one in found] == [5] * 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "[" * 100_000,
        "1" * 10_000,
        " " * (MOST_OF_REPORT + 1),
        said(location="s3a://other"),
        said(at=None),
        said(at="yesterday"),
        said(at=5),
        said(offsets=None),
        said(offsets={"1": 2}),
        said(offsets=[None]),
        said(offsets=[{"batch": -1, "written_ms": 1}]),
        said(offsets=[{"batch": 2**70, "written_ms": 1}]),
        said(offsets=[{"batch": True, "written_ms": 1}]),
        said(offsets=[{"batch": 1, "written_ms": "1"}]),
        said(offsets=[{"batch": 1, "written_ms": 2**62}]),
        said(offsets=[{"batch": 1, "written_ms": 1, "text": ["v1"]}]),
        said(offsets=[{"batch": 1, "written_ms": 1, "began_ms": 2**62}]),
        said(offsets=[{"batch": 1, "written_ms": 1, "began_ms": "x"}]),
        said(commits=[{"batch": 2, "written_ms": 1}, {"batch": 1, "written_ms": 1}]),
        said(commits=[{"batch": 1, "written_ms": 1}, {"batch": 1, "written_ms": 1}]),
        said(commits=[{"batch": n, "written_ms": 1} for n in range(MOST_ENTRIES + 1)]),
    ],
)
def test_whatever_else_a_driver_writes_is_not_a_report(text: str) -> None:
    with pytest.raises(ValueError, match=r".|\n"):
        parse(text, PLACE)


def test_only_true_means_that_the_query_had_ended() -> None:
    assert parse(said(ended=True), PLACE).ended
    assert not parse(said(ended="yes"), PLACE).ended
