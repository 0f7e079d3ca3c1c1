"""A forecast is made where state grows steadily, and nowhere else."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.checkpoints.batches import growth

MB = 1_000_000.0


def _line(per_s: float, *, count: int = 60, every: float = 30, start: float = 100 * MB):  # type: ignore[no-untyped-def]
    return [(1e9 + n * every, start + per_s * n * every) for n in range(count)]


def test_steady_growth_says_when_the_limit_is_reached() -> None:
    points = _line(0.1 * MB)
    found = growth(points, 1000 * MB)
    assert found.per_hour == pytest.approx(360 * MB)
    assert found.steadiness == pytest.approx(1)
    assert found.full_in_s == pytest.approx((1000 * MB - points[-1][1]) / (0.1 * MB))
    assert growth(points, 50 * MB).full_in_s == 0


@pytest.mark.parametrize(
    ("points", "limit", "why"),
    [
        ([], MB, "Not enough data yet: 0 samples"),
        (_line(MB, count=9, every=100), MB, "Not enough data yet: 9 samples over 800 s"),
        (_line(MB, count=50, every=10), MB, "Not enough data yet: 50 samples over 490 s"),
        (_line(0), 1000 * MB, "No growth"),
        (_line(-1), 1000 * MB, "No growth"),
        (_line(0.0001), 1000 * MB, "No growth"),
        (_line(0.1 * MB), None, "the limit is unknown"),
        (_line(0.01 * MB), 1e15, "the limit will not be reached within 30 days"),
        (
            [(n * 60.0, 100 * MB + (n % 10) * 10 * MB + n * MB) for n in range(40)],
            1000 * MB,
            "No steady trend (R² ",
        ),
    ],
)
def test_anything_else_is_no_forecast_and_says_why(
    points: list[tuple[float, float]], limit: float | None, why: str
) -> None:
    found = growth(points, limit)
    assert found.full_in_s is None
    assert why in found.why


@given(
    st.lists(st.floats(0, 1e12), min_size=10, max_size=60),
    st.one_of(st.none(), st.floats(0, 1e13)),
)
def test_no_series_breaks_it(sizes: list[float], limit: float | None) -> None:
    found = growth([(n * 90.0, size) for n, size in enumerate(sizes)], limit)
    assert found.why
    assert found.steadiness is None or 0 <= found.steadiness <= 1
    assert found.full_in_s is None or (math.isfinite(found.full_in_s) and found.full_in_s >= 0)
