"""What a query tells at a scrape: every figure with its unit, nothing that is not known."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queries.domain.metrics import MOST_SERIES, QUERY_METRICS, QueryFigures, label_names, samples_of
from queries.domain.states import LossKind

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BATCH: dict[str, Any] = {
    "batchId": 41,
    "batchDuration": 1_250,
    "numInputRows": 500,
    "inputRowsPerSecond": 100.5,
    "processedRowsPerSecond": 400,
    "eventTime": {"watermark": "2026-11-23T11:58:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 7, "memoryUsedBytes": 1_000, "numRowsDroppedByWatermark": 3},
        {"numRowsTotal": 5, "memoryUsedBytes": 24, "numRowsDroppedByWatermark": 0},
    ],
}
LEAST = QueryFigures(
    name="delays",
    application="flights",
    labels={},
    wanted=True,
    phase="PENDING",
    phase_since=None,
    verdict="",
    verdict_since=None,
    starts=0,
    failures=0,
    failures_in_a_row=0,
)
MOST = replace(
    LEAST,
    labels={"team": "data"},
    phase="RUNNING",
    phase_since=NOW - timedelta(hours=1),
    verdict="LAGGING",
    verdict_since=NOW - timedelta(minutes=5),
    starts=3,
    failures=2,
    failures_in_a_row=1,
    event_at=NOW - timedelta(seconds=1),
    batch_at=NOW - timedelta(seconds=2),
    progress=BATCH,
    lag_seconds=90.0,
    lag_offsets=1_234,
    table_lag_versions=12,
    table_lag_files=34,
    table_lag_bytes=56,
    risk_at=NOW + timedelta(minutes=2),
    source_reachable=True,
    dropped=0,
    missing=4,
    lost=dict.fromkeys(LossKind, 1),
)


def _values(figures: QueryFigures) -> dict[str, float]:
    return {
        one.metric.name.removeprefix("headgate_query_"): one.value
        for one in samples_of(figures, now=NOW)
    }


def test_a_query_of_which_all_is_known_tells_every_metric_once_and_few_series() -> None:
    samples = list(samples_of(MOST, now=NOW))
    assert {one.metric for one in samples} == set(QUERY_METRICS)
    assert len(samples) <= MOST_SERIES
    series = [(one.metric, one.labels) for one in samples]
    assert len(series) == len(set(series))
    for one in samples:
        assert len(one.labels) == len(one.metric.labels)


def test_figures_have_the_units_that_their_names_say() -> None:
    values = _values(MOST)
    assert values["last_batch_duration_seconds"] == 1.25
    assert values["state_rows"] == 12
    assert values["state_memory_bytes"] == 1_024
    assert values["last_batch_late_rows"] == 3
    assert values["risk_seconds"] == 120
    assert values["watermark_timestamp_seconds"] == (NOW - timedelta(minutes=2)).timestamp()
    assert values["phase_start_timestamp_seconds"] == (NOW - timedelta(hours=1)).timestamp()
    assert values["source_reachable"] == 1


def test_what_is_not_known_has_no_series() -> None:
    assert set(_values(LEAST)) == {
        *("info", "desired_running", "phase", "starts_total", "failures_total"),
        "failures_in_a_row",
    }


@pytest.mark.parametrize(
    ("progress", "absent"),
    [
        ({"inputRowsPerSecond": "NaN"}, "input_rows_per_second"),
        ({"inputRowsPerSecond": float("inf")}, "input_rows_per_second"),
        ({"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}, "watermark_timestamp_seconds"),
        ({"eventTime": {"watermark": "soon"}}, "watermark_timestamp_seconds"),
        ({"eventTime": {}}, "watermark_timestamp_seconds"),
        ({"stateOperators": [{}]}, "no_such_metric"),
    ],
)
def test_what_spark_cannot_say_is_left_out(progress: dict[str, Any], absent: str) -> None:
    assert absent not in _values(replace(LEAST, progress=progress))


def test_a_risk_that_has_come_true_is_no_time_away() -> None:
    assert _values(replace(MOST, risk_at=NOW - timedelta(days=1)))["risk_seconds"] == 0


def test_a_verdict_that_is_not_given_any_more_leaves_no_time_behind() -> None:
    values = _values(replace(MOST, verdict=""))
    assert "verdict" not in values
    assert "verdict_start_timestamp_seconds" not in values


def test_labels_stand_on_the_info_series_alone_under_names_that_prometheus_takes() -> None:
    figures = replace(MOST, labels={"team": "data", "app.kubernetes.io/part-of": "x"})
    extra = {one.metric.name: dict(one.extra) for one in samples_of(figures, now=NOW) if one.extra}
    assert extra == {
        "headgate_query_info": {"label_team": "data", "label_app_kubernetes_io_part_of": "x"}
    }
    assert label_names({}) == {}
