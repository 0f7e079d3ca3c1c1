"""The cost of a batch is read from batches, or it is said why it cannot be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.triggers.batch_cost import FEWEST, MOST, BatchCost, BatchSample, Untold, cost_of

costs = st.floats(0, 1000)
slopes = st.floats(0, 5)
sizes = st.lists(st.integers(1, 100_000), min_size=FEWEST, max_size=60).filter(
    lambda rows: sorted(rows)[-1 - len(rows) // 10] >= 1.5 * sorted(rows)[len(rows) // 10]
)


def told(samples: list[BatchSample]) -> BatchCost:
    found = cost_of(samples)
    assert isinstance(found, BatchCost), found
    return found


@given(costs, slopes, sizes)
def test_a_known_line_is_found_again(fixed: float, per_row: float, rows: list[int]) -> None:
    cost = told([BatchSample(each, fixed + per_row * each) for each in rows])
    assert cost.line.per_row_ms == pytest.approx(per_row, abs=1e-6)
    assert cost.line.fixed_ms == pytest.approx(fixed, abs=1e-3, rel=1e-6)
    assert cost.scatter_ms == pytest.approx(0, abs=1e-3)


@given(costs, slopes, st.integers(0, 1_000_000))
def test_a_fifth_of_wild_batches_does_not_bend_the_line(
    fixed: float, per_row: float, wild: int
) -> None:
    sound = [BatchSample(rows, fixed + per_row * rows) for rows in range(100, 4100, 100)]
    spoilt = [
        BatchSample(one.rows, one.ms + wild) if place % 5 == 4 else one
        for place, one in enumerate(sound)
    ]
    low, high = told(spoilt).band(2000)
    assert low - 1e-3 <= fixed + per_row * 2000 <= high + 1e-3


noisy = st.lists(
    st.builds(BatchSample, st.integers(1, 10_000), st.floats(0, 60_000)),
    min_size=FEWEST,
    max_size=40,
)


@given(noisy, st.integers(0, 20_000), st.integers(0, 20_000))
def test_more_rows_never_cost_less_and_the_band_holds_the_line(
    samples: list[BatchSample], some: int, more: int
) -> None:
    cost = cost_of(samples)
    if isinstance(cost, Untold):
        assert "too similar" in cost.reason
        return
    some, more = sorted((some, more))
    assert 0 <= cost.line.at(some) <= cost.line.at(more)
    for rows in (some, more):
        low, high = cost.band(rows)
        assert 0 <= low <= cost.line.at(rows) <= high
    assert all(
        small <= large for small, large in zip(cost.band(some), cost.band(more), strict=True)
    )


def test_noise_shows_in_the_band() -> None:
    quiet = [BatchSample(rows, 100 + 0.1 * rows + (rows % 7)) for rows in range(100, 3100, 100)]
    loud = [BatchSample(rows, 100 + 0.1 * rows + 20 * (rows % 7)) for rows in range(100, 3100, 100)]
    widths = [high - low for low, high in (told(quiet).band(1000), told(loud).band(1000))]
    assert 0 < widths[0] < widths[1]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "0 batches with rows are known; at least 12"),
        ([0] * 50, "0 batches with rows"),
        (range(1, FEWEST), "11 batches with rows are known"),
        ([500] * 30, "too similar: nearly all read between 500 and 500 rows"),
        ([1000 + each for each in range(30)], "too similar"),
        ([500] * 29 + [9000], "too similar"),
    ],
)
def test_too_few_or_too_similar_batches_tell_nothing(rows: Any, says: str) -> None:
    found = cost_of([BatchSample(each, 100.0) for each in rows])
    assert isinstance(found, Untold)
    assert says in found.reason


def test_only_the_newest_batches_count() -> None:
    old = [BatchSample(rows, 9000.0) for rows in range(1, MOST + 1)]
    new = [BatchSample(rows, 10.0 * rows) for rows in range(1, MOST + 1)]
    cost = told(old + new)
    assert cost.batches == MOST
    assert (cost.least_rows, cost.most_rows) == (1, MOST)
    assert cost.line.per_row_ms == pytest.approx(10)


def test_a_cost_below_zero_is_none() -> None:
    cost = told([BatchSample(rows, 1000.0 - rows) for rows in range(1, 40)])
    assert cost.line.per_row_ms == 0
    steep = told([BatchSample(rows, 10.0 * rows - 50) for rows in range(10, 400, 10)])
    assert steep.line.fixed_ms == 0
