"""Numbers and times of other programs: one strange value is one unknown, and never an error."""

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_ground.packages import OURS
from headgate_ground.tolerant import (
    at_ms,
    at_s,
    count,
    duration_ms,
    is_after_9999,
    is_number,
    rate,
    sound_progress,
    start_of,
    time_of,
    total,
    whole,
)

ROOT = Path(__file__).parents[2]
#: What is installed with or next to Headgate and may not import its parser.
ELSEWHERE = {"cli/headgate_cli/server.py", "bootstrap/sink_check.py"}
AT = "2026-11-25T10:00:00.000+00:00"
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), (b"12", 12), ("9223372036854775807", 2**63 - 1)]
    + [(text, None) for text in ("", " 7", "-1", "²", "٣", "9" * 19, "1" * 5000, "7.5", b"x")],
)
def test_a_whole_number_is_ascii_and_fits_a_column(text: str | bytes, number: int | None) -> None:
    assert whole(text) == number


def test_a_count_is_never_below_zero() -> None:
    assert [count(value) for value in (0, 7, -1, 2**63, True, 7.0, "7", None)] == [
        *(0, 7),
        *(None,) * 6,
    ]
    assert is_number(0)
    assert not is_number(-1)


def test_a_rate_is_finite() -> None:
    strange = (-1.0, float("nan"), float("inf"), "NaN", "Infinity", True, None)
    assert [rate(value) for value in (0, 1.5, *strange)] == [0.0, 1.5, *(None,) * len(strange)]


def test_a_duration_that_would_leave_the_calendar_is_none() -> None:
    assert [duration_ms(value) for value in (0, 17, -17, 2**62, "17")] == [0, 17, None, None, None]


@pytest.mark.parametrize(
    ("milliseconds", "at"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1_764_064_800_500, datetime(2025, 11, 25, 10, 0, 0, 500_000, tzinfo=UTC)),
        *((value, None) for value in (1_764_064_800_500_000, 10**30, -(10**15), -(10**30))),
        *((value, None) for value in (float("nan"), float("inf"), "5", None, True)),
        (253_402_300_799_999, None),  # the year's last day: no other time zone could show it
    ],
)
def test_milliseconds_are_a_time_within_the_calendar(milliseconds: Any, at: Any) -> None:
    assert at_ms(milliseconds) == at


def test_seconds_and_stretches() -> None:
    at = datetime(2026, 11, 25, 10, 7, 9, 5, tzinfo=UTC)
    assert at_s(at.timestamp()) == at
    assert at_s(1e18) is None
    assert start_of(at, 60) == datetime(2026, 11, 25, 10, 7, tzinfo=UTC)
    assert start_of(at, 3600) == datetime(2026, 11, 25, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-25T10:00:00.000Z", datetime(2026, 11, 25, 10, tzinfo=UTC)),
        ("2026-11-25T12:00:00+02:00", datetime(2026, 11, 25, 10, tzinfo=UTC)),
        ("2026-11-25T10:00:00", datetime(2026, 11, 25, 10, tzinfo=UTC)),
        *((text, None) for text in ("+56971-10-25T00:00:00.000Z", "56971-10-25T00:00:00.000Z")),
        *((text, None) for text in ("soon", "", "9999-13-01T00:00:00Z", None, 5)),
        ("9999-12-31T23:59:59+00:00", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_a_text_is_a_time_within_the_calendar(text: Any, at: Any) -> None:
    assert time_of(text) == at


def test_what_lies_after_the_year_9999_is_known_as_such() -> None:
    late = (1_735_689_599_400_000, "+56971-10-25T00:00:00.000Z", "9999-12-31T23:59:59Z")
    assert all(is_after_9999(one) for one in late)
    assert not any(is_after_9999(one) for one in (0, 5, -(10**18), "2026-11-25", "", None, True))


def test_parts_of_another_type_are_left_out_and_places_stay() -> None:
    body = {
        "batchId": "4",
        "timestamp": "soon",
        "numInputRows": -1,
        "inputRowsPerSecond": "NaN",
        "batchDuration": -17,
        "durationMs": {"addBatch": -17, "walCommit": 3},
        "stateOperators": [None, {"numRowsTotal": -3, "operatorName": "dedupe"}],
        "sources": [{"endOffset": "x", "numInputRows": "many"}],
        "sink": {"description": "FileSink[/x]", "numOutputRows": -1},
        "eventTime": {"watermark": "+56971-10-25T00:00:00.000Z"},
        "observedMetrics": [],
        "name": "q",
    }
    assert sound_progress(body, at=AT, batch=4) == {
        "batchId": 4,
        "timestamp": AT,
        "durationMs": {"walCommit": 3},
        "stateOperators": [{}, {"operatorName": "dedupe"}],
        "sources": [{"endOffset": "x"}],
        "sink": {"description": "FileSink[/x]"},
        "eventTime": {"watermark": "+56971-10-25T00:00:00.000Z"},
        "name": "q",
    }
    assert sound_progress({}, at=AT, batch=4) == {"batchId": 4, "timestamp": AT}


def test_a_sum_is_known_only_where_every_part_is() -> None:
    assert total([{"n": 3}, {"n": 4}], "n") == 7
    for parts in (
        [{"n": 3}, {}],
        [{"n": 3}, None],
        [{"n": -1}],
        [],
        None,
        [{"n": 2**62}, {"n": 2**62}],
    ):
        assert total(parts, "n") is None


@given(st.dictionaries(st.sampled_from(["timestamp", "sources", "sink", "durationMs"]), _JSON))
def test_any_progress_is_made_sound(body: dict[str, Any]) -> None:
    found = sound_progress(body, at=AT, batch=4)
    assert time_of(found["timestamp"]) is not None


def test_numbers_and_times_are_converted_in_one_place() -> None:
    """Elsewhere one strange value would end what it is a part of."""
    found = []
    for folder in (*OURS, "cli", "bootstrap"):
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if name in ELSEWHERE or name == "headgate_ground/tolerant.py":
                continue
            found += [
                f"{name}:{node.lineno}: {node.attr}"
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute)
                and node.attr
                in {"fromtimestamp", "utcfromtimestamp", "isdigit", "isdecimal", "isnumeric"}
            ]
    assert found == []


def test_a_time_that_is_one_stays_as_spark_wrote_it() -> None:
    body = {"batchId": 4, "timestamp": "2026-11-25T10:00:00.000Z"}
    assert sound_progress(body, at=AT, batch=9) == body
