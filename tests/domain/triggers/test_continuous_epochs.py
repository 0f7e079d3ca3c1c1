"""Epochs of continuous processing are told as Spark tells batches, as far as they are known."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.triggers.continuous_epochs import (
    DERIVED,
    Epoch,
    QueryIdentity,
    progress_of,
    rows_between,
)
from queries.selectors.query_lines import progress_line

AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
OF = QueryIdentity("query-id", "run-id", "flights", "flights", "kafka")


def epoch(**changes: Any) -> Epoch:
    told: dict[str, Any] = {
        "number": 7,
        "began": AT,
        "committed": AT + timedelta(seconds=2),
        "start": {"0": {"in": {"0": 10, "1": 5}}},
        "end": {"0": {"in": {"0": 110, "1": 105}}},
    }
    return Epoch(**{**told, **changes})


def test_an_epoch_has_the_figures_of_a_batch() -> None:
    progress = progress_of(epoch(), OF)
    line = progress_line(progress)
    assert (line.batch_id, line.num_input_rows, line.batch_duration_ms) == (7, 200, 2000)
    assert line.timestamp == AT
    assert line.input_rows_per_second == line.processed_rows_per_second == 100
    assert progress["derived"] == DERIVED
    assert progress["sources"][0]["endOffset"] == {"in": {"0": 110, "1": 105}}
    assert (progress["runId"], progress["name"]) == ("run-id", "flights")


def test_the_first_epoch_of_a_new_checkpoint_tells_no_rows() -> None:
    progress = progress_of(epoch(start={}), OF)
    assert "numInputRows" not in progress
    assert "inputRowsPerSecond" not in progress
    assert progress["sources"][0]["startOffset"] is None
    assert progress_line(progress).num_input_rows is None


def test_an_epoch_that_took_no_time_has_no_rate() -> None:
    line = progress_line(progress_of(epoch(committed=AT), OF))
    assert line.num_input_rows == 200
    assert line.input_rows_per_second is None


RATE = {"0": {"value": 8, "runTimeMs": 1}, "1": {"value": 9, "runTimeMs": 1}}
LATER = {"0": {"value": 12, "runTimeMs": 2}, "1": {"value": 15, "runTimeMs": 2}}


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        ({"in": {"0": 10}}, {"in": {"0": 10}}, 0),
        ({"in": {"0": 10}}, {"in": {"0": 12, "1": 3}}, 5),
        ({"in": {"0": 10}}, {"in": {"0": 12}, "more": {"0": 4}}, 6),
        (RATE, LATER, 5),
        ({"0": RATE["0"]}, LATER, 2),
        (None, {"in": {"0": 10}}, None),
        ({}, {"in": {"0": 10}}, None),
        ({"in": {"0": 10}}, "17", None),
        ({"in": {"0": 10}}, {"in": 4}, None),
        ({"in": {"0": 10}}, {"in": {"0": None}}, None),
        ({"in": {"0": 10}}, {"in": {"0": "x"}}, None),
        ({"in": [1]}, {"in": {"0": 4}}, None),
    ],
)
def test_rows_are_differences_of_offsets(start: Any, end: Any, rows: int | None) -> None:
    assert rows_between(start, end) == rows


@given(
    st.dictionaries(
        st.sampled_from("012345"), st.tuples(st.integers(0, 99), st.integers(0, 9)), min_size=1
    )
)
def test_epochs_after_each_other_add_up(partitions: dict[str, tuple[int, int]]) -> None:
    start = {"in": {key: first for key, (first, _) in partitions.items()}}
    middle = {"in": {key: first + step for key, (first, step) in partitions.items()}}
    end = {"in": {key: first + 2 * step for key, (first, step) in partitions.items()}}
    one, two, both = (
        rows_between(start, middle),
        rows_between(middle, end),
        rows_between(start, end),
    )
    assert one is not None
    assert two is not None
    assert one + two == both
