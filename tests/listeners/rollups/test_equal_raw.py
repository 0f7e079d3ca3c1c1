"""The buckets that grow with each arrival equal those summed from the stored rows."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_ground.wire import EventKind, WireEvent
from listeners import models
from listeners.rollups import PHASES, WIDTHS_S
from listeners.store import EventBatch, store
from tests.listeners.rows import START

pytestmark = pytest.mark.django_db

FIGURES = ("batches", "rows", "duration_ms_min", "duration_ms_max", "duration_ms_sum")
EXTREMES = ("input_rate_max", "processed_rate_max", "state_rows_max", "watermark_delay_s_max")
COLUMNS = (*FIGURES, *EXTREMES, *PHASES.values())

_maybe = st.none() | st.integers(-1, 2**40)
_seconds = st.integers(-70, 8_000) | st.floats(0, 30)
_bodies = st.fixed_dictionaries(
    {"timestamp": _seconds.map(lambda s: datetime.fromtimestamp(START.timestamp() + s, UTC))},
    optional={
        "batchDuration": _maybe,
        "numInputRows": _maybe,
        "inputRowsPerSecond": st.floats(0, 1e9) | st.just("NaN"),
        "processedRowsPerSecond": st.floats(0, 1e9),
        "durationMs": st.dictionaries(st.sampled_from([*PHASES, "other"]), _maybe, max_size=4),
        "eventTime": st.fixed_dictionaries(
            {"watermark": st.sampled_from(["1970-01-01T00:00:00.000Z", "2026-02-28T11:00:00.5Z"])}
        ),
        "stateOperators": st.lists(st.fixed_dictionaries({"numRowsTotal": _maybe}), max_size=2),
    },
)


@st.composite
def _events(draw: st.DrawFn) -> WireEvent:
    """Return a batch of one of two queries: with few numbers, so that many come twice."""
    query, seq = draw(st.integers(1, 2)), draw(st.integers(1, 12))
    body: dict[str, Any] = draw(_bodies)
    at = body["timestamp"].isoformat()
    return WireEvent(
        driver=query,
        epoch=7,
        seq=seq,
        at=at,
        kind=EventKind.PROGRESS,
        query=query,
        run=query,
        spark_run_id=f"run-{query}",
        batch=draw(st.integers(1, 12)),
        repaired=draw(st.booleans()),
        body={**body, "timestamp": at},
    )


@pytest.mark.guarantee("G-EVENT-1")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(_events(), max_size=8), max_size=4))
def test_buckets_equal_the_rows_whatever_comes_twice_late_or_repaired(
    arrivals: list[list[WireEvent]],
) -> None:
    for model in (models.Progress, models.Rollup, models.Received, models.Latest):
        model.objects.all().delete()
    for events in [*arrivals, *arrivals[:1]]:
        batch = EventBatch(START)
        for one in events:
            batch.add(one)
        store(batch)
    columns = ("query", "width_s", "start", *COLUMNS)
    kept = {row[:3]: row[3:] for row in models.Rollup.objects.values_list(*columns)}
    assert kept == _summed()


def _summed() -> dict[Any, Any]:
    """Sum the stored rows bucket by bucket, as plainly as possible."""
    members: dict[Any, list[models.Progress]] = {}
    for row in models.Progress.objects.all():
        for width_s in WIDTHS_S:
            start = row.at.timestamp() // width_s * width_s
            key = (row.query, width_s, datetime.fromtimestamp(start, UTC))
            members.setdefault(key, []).append(row)
    return {key: tuple(_figures(rows)) for key, rows in members.items()}


def _figures(rows: list[models.Progress]) -> list[Any]:
    took = [row.batch_duration_ms for row in rows]
    phases = [row.body.get("durationMs", {}) for row in rows]
    return [
        len(rows),
        sum(row.num_input_rows for row in rows),
        *(min(took), max(took), sum(took)),
        _most(row.input_rows_per_second for row in rows),
        _most(row.processed_rows_per_second for row in rows),
        _most(row.state_rows for row in rows),
        _most((row.at - row.watermark).total_seconds() for row in rows if row.watermark),
        *(
            sum(one[name] for one in phases if name in one)
            if any(name in one for one in phases)
            else None
            for name in PHASES
        ),
    ]


def _most(values: Any) -> Any:
    return max((one for one in values if one is not None), default=None)
