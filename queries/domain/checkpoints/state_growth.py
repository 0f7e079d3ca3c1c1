"""Whether state grows steadily, and when it will reach the memory limit.

The rule, which the page shows, is `RULE`. Anything else (the sawtooth pattern of closing windows, a
jump, too little history) gets no forecast, and the page says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from queries.domain.counts import counted

SPAN_S = 600.0
POINTS = 10
STEADY = 0.9  # r², the share of the variance that the line explains
#: A line that rises by less than this share of the size over the whole time span counts as level.
LEVEL = 0.01
#: Nothing further ahead than this is forecast.
HORIZON_S = 30 * 86400.0
RULE = (
    f"a forecast needs a rising linear trend with R² of at least {STEADY:.2f} over at least "
    f"{SPAN_S / 60:g} minutes and {POINTS} batches"
)


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of a size over time."""

    per_hour: float | None  # bytes; None: too little data
    steadiness: float | None  # r²
    full_in_s: float | None  # until the limit is reached; None: no forecast
    why: str  # the explanation, as a sentence


def growth(points: Sequence[tuple[float, float]], limit: float | None) -> Growth:
    """Return the growth for a series of (seconds, bytes), ordered by time.

    `limit` is in bytes; None if unknown.
    """
    span = points[-1][0] - points[0][0] if points else 0.0
    if len(points) < POINTS or span < SPAN_S:
        samples = counted(len(points), "sample")
        return Growth(None, None, None, f"Not enough data yet: {samples} over {span:.0f} s.")
    slope, steadiness = _line(points)
    per_hour = slope * 3600
    now = points[-1][1]
    if slope * span <= LEVEL * max(now, 1.0):
        return Growth(per_hour, steadiness, None, "No growth.")
    if steadiness < STEADY:
        return Growth(
            per_hour,
            steadiness,
            None,
            f"No steady trend (R² {steadiness:.2f}); no forecast.",
        )
    if limit is None:
        return Growth(per_hour, steadiness, None, "Steady growth; the limit is unknown.")
    left = max(0.0, limit - now) / slope
    if left > HORIZON_S:
        why = f"Steady growth; the limit will not be reached within {HORIZON_S / 86400:g} days."
        return Growth(per_hour, steadiness, None, why)
    return Growth(per_hour, steadiness, left, "Steady growth towards the memory limit.")


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return slope and r² of the least-squares line; r² is 1 for a level series."""
    count = len(points)
    start = points[0][0]
    xs = [at - start for at, _ in points]
    ys = [size for _, size in points]
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    spread_x = sum((x - mean_x) ** 2 for x in xs)
    spread_y = sum((y - mean_y) ** 2 for y in ys)
    both = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    slope = both / spread_x
    if spread_y <= 0:
        return slope, 1.0
    return slope, min(1.0, both * both / (spread_x * spread_y))
