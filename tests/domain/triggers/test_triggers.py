"""Triggers are checked against sources, sinks and their own limits when they are saved."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.spec import (
    AvailableNow,
    Continuous,
    Once,
    ProcessingTime,
    RealTime,
    Trigger,
)
from queries.domain.triggers.intervals import interval_ms
from tests.domain.validation.test_query_rules import (
    KAFKA,
    RATE,
    TO_FILES,
    TO_KAFKA,
    found,
    python,
    said,
    sql,
)

CONTINUOUS = {"kind": "continuous", "interval": "1 second"}
REAL_TIME = {"kind": "real_time", "interval": "5 seconds"}
ASYNC = {"asyncProgressTrackingEnabled": "true"}


@pytest.mark.parametrize(
    ("text", "length"),
    [
        # What Spark 4.3's Trigger.ProcessingTime answered for each.
        ("10 seconds", 10_000),
        ("INTERVAL 10 seconds", 10_000),
        ("interval 10 SECONDS", 10_000),
        ("1 minute 30 seconds", 90_000),
        ("1.5 seconds", 1500),
        ("0 seconds", 0),
        ("500 milliseconds", 500),
        ("1 microseconds", 0),
        ("1 weeks", 604_800_000),
        ("5 second", 5000),
        ("1 day -2 hours", 79_200_000),
        ("10s", None),
        ("10 sec", None),
        ("10 msec", None),
        ("10seconds", None),
        ("1 month", None),
        ("1 year", None),
        ("-1 seconds", None),
        ("1,5 seconds", None),
        ("1.5 minutes", None),
        ("", None),
        ("soon", None),
    ],
)
def test_an_interval_is_read_as_spark_reads_it(text: str, length: int | None) -> None:
    assert interval_ms(text) == length


@pytest.mark.parametrize(
    ("trigger", "arguments"),
    [
        (ProcessingTime(interval="10 seconds"), {"processingTime": "10 seconds"}),
        (Once(), {"once": True}),
        (AvailableNow(), {"availableNow": True}),
        (Continuous(interval="1 second"), {"continuous": "1 second"}),
        (RealTime(), {"realTime": "5 seconds"}),
    ],
)
def test_a_trigger_is_given_to_spark_by_the_argument_that_spark_has_for_it(
    trigger: Trigger, arguments: dict[str, Any]
) -> None:
    assert trigger.arguments == arguments


@given(st.integers(0, 10**6), st.sampled_from(["second", "minute", "hour", "day", "week"]))
def test_an_interval_grows_with_its_number(number: int, unit: str) -> None:
    one = interval_ms(f"1 {unit}")
    assert one is not None
    assert interval_ms(f"{number} {unit}s") == number * one


@given(st.text(max_size=30))
def test_no_text_breaks_the_reading_of_intervals(text: str) -> None:
    length = interval_ms(text)
    assert length is None or length >= 0


@pytest.mark.parametrize(
    "raw",
    [
        sql(trigger={"kind": "processing_time", "interval": "10 seconds"}),
        sql(trigger={"kind": "once"}),
        sql(trigger={"kind": "available_now"}),
        sql(trigger=CONTINUOUS),
        sql(sources=[KAFKA], sink=TO_KAFKA, trigger=CONTINUOUS),
        sql(sources=[KAFKA], sink=TO_KAFKA, trigger=REAL_TIME),
        sql(sources=[KAFKA], sink={**TO_KAFKA, "options": {**TO_KAFKA["options"], **ASYNC}}),
        sql(sink={"format": "noop", "options": ASYNC}),
        sql(
            sources=[KAFKA],
            trigger=REAL_TIME,
            sink={
                "format": "console",
                "output_mode": "update",
                "options": {**ASYNC, "asyncProgressTrackingCheckpointIntervalMs": 0},
            },
        ),
        python(trigger=CONTINUOUS),
        python(trigger=REAL_TIME),
    ],
)
def test_a_trigger_that_goes_with_all_is_taken(raw: dict[str, Any]) -> None:
    assert found(raw) == []


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        (
            sql(trigger={"kind": "processing_time", "interval": "10s"}),
            "trigger.interval",
            '"10 seconds"',
        ),
        (sql(trigger={**CONTINUOUS, "interval": "0 seconds"}), "trigger.interval", "1 ms"),
        (sql(trigger={**CONTINUOUS, "interval": "x"}), "trigger.interval", "not a valid interval"),
        (
            sql(sources=[KAFKA], sink=TO_KAFKA, trigger={**REAL_TIME, "interval": "2 seconds"}),
            "trigger.interval",
            "5 seconds or more",
        ),
        (sql(trigger=REAL_TIME), "sources.0.format", "Use kafka, or"),
        (sql(sources=[KAFKA], trigger=REAL_TIME), "sink.format", "console, kafka or memory"),
        (
            sql(sources=[KAFKA], sink={**TO_KAFKA, "output_mode": "append"}, trigger=REAL_TIME),
            "sink.output_mode",
            "only update",
        ),
        (
            sql(
                sources=[{**KAFKA, "options": {**KAFKA["options"], "maxOffsetsPerTrigger": 9}}],
                sink=TO_KAFKA,
                trigger=REAL_TIME,
            ),
            "sources.0.options.maxOffsetsPerTrigger",
            "real-time mode",
        ),
        (
            sql(sources=[{**RATE, "format": "rate-micro-batch"}], trigger=CONTINUOUS),
            "sources.0.format",
            "kafka or rate",
        ),
        (sql(sink=TO_FILES, trigger=CONTINUOUS), "sink.format", "cannot be written"),
        (
            sql(sink={"format": "noop", "output_mode": "complete"}, trigger=CONTINUOUS),
            "sink.output_mode",
            "needs an aggregation",
        ),
        (
            sql(sink={**TO_FILES, "options": {"path": "/o", **ASYNC}}),
            "sink.options.asyncProgressTrackingEnabled",
            "parquet sink",
        ),
        (
            sql(sink={"format": "noop", "options": ASYNC}, trigger={"kind": "available_now"}),
            "sink.options.asyncProgressTrackingEnabled",
            "available_now trigger",
        ),
        (
            sql(
                sources=[KAFKA],
                sink={
                    "format": "console",
                    "output_mode": "update",
                    "options": {**ASYNC, "asyncProgressTrackingCheckpointIntervalMs": "1000"},
                },
                trigger=REAL_TIME,
            ),
            "sink.options.asyncProgressTrackingCheckpointIntervalMs",
            "must be 0",
        ),
    ],
)
def test_a_trigger_that_does_not_go_with_something_is_refused(
    raw: dict[str, Any], field: str, says: str
) -> None:
    problems = said(found(raw))
    assert field in problems, problems
    assert says in problems[field]
