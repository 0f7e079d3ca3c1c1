"""Latency and throughput of an interval follow from the cost of a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.triggers.batch_cost import (
    BatchCost,
    CostLine,
    expected,
    interval_text,
    intervals,
    words,
)
from queries.domain.triggers.intervals import interval_ms

LINE = CostLine(200, 0.1)  # 200 ms and 0.1 ms a row: 10,000 rows/s and no more


def cost(*edges: CostLine, line: CostLine = LINE) -> BatchCost:
    return BatchCost(line, edges, 50, 100, 5000, 3.0)


def test_an_interval_with_room_comes_when_it_is_told_to() -> None:
    found = expected(cost(), 1000, 2000)
    assert found.period_ms == 2000
    assert found.latency_ms == 1000 + 200 + 0.1 * 2000
    assert found.busy == pytest.approx(0.2)
    assert found.throughput == pytest.approx((2000 - 200) / 0.1 / 2)


def test_batches_that_do_not_fit_follow_each_other() -> None:
    found = expected(cost(), 5000, 100)
    assert found.period_ms == pytest.approx(400)  # 200 / (1 - 0.5)
    assert found.latency_ms == pytest.approx(200 + 400)
    assert found.busy == pytest.approx(1)
    assert found.throughput == 0
    fastest = expected(cost(), 5000, 0)
    assert fastest.period_ms == pytest.approx(400)
    assert fastest.throughput == pytest.approx(10_000)


def test_rows_that_cost_more_than_all_the_time_pile_up() -> None:
    found = expected(cost(), 10_000, 1000)
    assert (found.period_ms, found.latency_ms, found.busy) == (None, None, None)
    assert (found.low_ms, found.high_ms) == (None, None)


def test_the_band_is_open_where_one_edge_piles_up() -> None:
    found = expected(cost(CostLine(150, 0.05), CostLine(250, 0.3)), 5000, 1000)
    assert found.low_ms == pytest.approx(500 + 150 + 250)
    assert found.high_ms is None


def test_rows_that_cost_nothing_have_no_greatest_throughput() -> None:
    free = cost(line=CostLine(200, 0))
    assert expected(free, 10, 1000).throughput is None
    assert expected(free, 10, 100).throughput == 0


def test_batches_without_a_fixed_cost_follow_each_other_without_an_end() -> None:
    found = expected(cost(line=CostLine(0, 0.1)), 1000, 0)
    assert (found.period_ms, found.latency_ms, found.busy) == (0, 0, 1)


costs = st.builds(CostLine, st.floats(0, 2000), st.floats(0, 0.5))
rates = st.floats(0.1, 20_000)
lengths = st.floats(50, 60_000)


@given(costs, rates, lengths, lengths)
def test_a_longer_interval_never_carries_less_and_is_never_faster(
    line: CostLine, rate: float, one: float, other: float
) -> None:
    short, long = (expected(cost(line=line), rate, each) for each in sorted((one, other)))
    assert (short.latency_ms is None) is (long.latency_ms is None)
    if short.latency_ms is not None and long.latency_ms is not None:
        assert short.latency_ms <= long.latency_ms * 1.000001
        assert short.busy is not None
        assert long.busy is not None
        assert long.busy <= short.busy * 1.000001 <= 1.001
    if short.throughput is not None and long.throughput is not None:
        assert short.throughput <= long.throughput * 1.000001
        assert long.throughput >= 0


@given(costs, costs, rates, lengths)
def test_the_band_holds_the_estimate(
    line: CostLine, edge: CostLine, rate: float, length: float
) -> None:
    found = expected(cost(edge, line=line), rate, length)
    if found.latency_ms is not None:
        assert found.low_ms is not None
        assert found.low_ms <= found.latency_ms
        assert found.high_ms is None or found.latency_ms <= found.high_ms


@given(st.sampled_from([0.0, 20.0, 500.0, 1000.0, 90_000.0, 3_600_000.0]))
def test_the_curve_passes_where_the_query_stands(interval: float) -> None:
    drawn = intervals(interval)
    assert drawn == sorted(set(drawn))
    assert 48 <= len(drawn) <= 49
    assert (interval in drawn) is (interval >= 50)
    assert drawn[-1] >= max(60_000, interval) * 0.999


@pytest.mark.parametrize(
    ("milliseconds", "text", "said"),
    [
        (0, "0 seconds", "0 ms"),
        (0.25, None, "0.25 ms"),
        (1, "1 millisecond", "1 ms"),
        (200, "200 milliseconds", "200 ms"),
        (1000, "1 second", "1 s"),
        (1500, "1500 milliseconds", "1.5 s"),
        (30_000, "30 seconds", "30 s"),
        (60_000, "1 minute", "60 s"),
        (900_000, "15 minutes", "15 min"),
    ],
)
def test_lengths_are_written_as_people_and_spark_read_them(
    milliseconds: float, text: str | None, said: str
) -> None:
    assert words(milliseconds) == said
    if text is not None:
        assert interval_text(int(milliseconds)) == text
        assert interval_ms(text) == milliseconds
