"""What a batch of one query costs: a fixed part, and a part for each row it reads.

The cost is a line through (rows, milliseconds) of its recent batches, using the median of all
pairwise slopes, so that a batch slowed by a garbage collection or a full disk does not distort the
line.

Sources: H. Theil, "A rank-invariant method of linear and polynomial regression analysis" (1950),
for the line; P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau" (1968),
for the limits of its slope; the limits of a median are those of the sign test (order statistics of
the binomial distribution). None of them assumes a distribution.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from statistics import median

from queries.domain.counts import counted

#: With fewer batches than this, the sign test's limits would be the extremes.
FEWEST = 12
#: More batches than this add little and cost quadratically.
MOST = 200
#: The factor by which the batches' sizes must differ (9th decile to 1st decile); otherwise fixed
#: cost and cost per row cannot be distinguished.
SPREAD = 1.5
#: Quantile of the normal distribution, for limits that hold in 95 of 100 cases.
Z95 = 1.96


@dataclass(frozen=True, slots=True)
class BatchSample:
    """One executed batch: what it read and how long its trigger took."""

    rows: int
    ms: float


@dataclass(frozen=True, slots=True)
class CostLine:
    """One line through the samples: `fixed_ms + per_row_ms × rows`."""

    fixed_ms: float
    per_row_ms: float

    def at(self, rows: float) -> float:
        """Return the milliseconds of a batch with this many rows."""
        return self.fixed_ms + self.per_row_ms * rows


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The cost of a batch with its error band."""

    line: CostLine  # the estimate
    edges: tuple[CostLine, ...]  # the lines that bound it, in 95 of 100 cases
    batches: int  # number of samples
    least_rows: int  # smallest batch among them
    most_rows: int
    scatter_ms: float  # median distance between a batch and the line

    def band(self, rows: float) -> tuple[float, float]:
        """Return the range in milliseconds for a typical batch with this many rows."""
        estimates = [line.at(rows) for line in (self.line, *self.edges)]
        return min(estimates), max(estimates)


@dataclass(frozen=True, slots=True)
class Untold:
    """Why the cost cannot be calculated from the batches, as a sentence."""

    reason: str
    batches: int


def cost_of(samples: Sequence[BatchSample]) -> BatchCost | Untold:
    """Return what a batch costs, from executed batches (newest last).

    Batches without rows are left out because they may skip the sink. Only the newest `MOST` are
    used. Costs below zero, which noise can suggest, are treated as zero.
    """
    usable = [sample for sample in samples if sample.rows > 0][-MOST:]
    if len(usable) < FEWEST:
        return Untold(
            f"{counted(len(usable), 'batch with rows is,batches with rows are')} known; at least "
            f"{FEWEST} are needed.",
            len(usable),
        )
    rows = sorted(sample.rows for sample in usable)
    small, large = rows[len(rows) // 10], rows[-1 - len(rows) // 10]
    if large < SPREAD * small:
        return Untold(
            f"Its batches are too similar: nearly all read between {small} and {large} rows, "
            "so the fixed cost cannot be separated from the cost per row. Sizes must differ "
            f"by a factor of {SPREAD}.",
            len(usable),
        )
    low, slope, high = _slopes(usable)
    line = CostLine(_fixed(usable, slope)[1], slope)
    edges = tuple(
        CostLine(fixed, edge)
        for edge in (low, slope, high)
        for fixed in (_fixed(usable, edge)[0], _fixed(usable, edge)[2])
    )
    scatter = median(abs(sample.ms - line.at(sample.rows)) for sample in usable)
    return BatchCost(line, edges, len(usable), rows[0], rows[-1], scatter)


def _slopes(samples: Sequence[BatchSample]) -> tuple[float, float, float]:
    """Return the lower limit, the median and the upper limit of the cost per row."""
    slopes = sorted(
        (second.ms - first.ms) / (second.rows - first.rows)
        for index, first in enumerate(samples)
        for second in samples[index + 1 :]
        if second.rows != first.rows
    )
    n = len(samples)
    variance = n * (n - 1) * (2 * n + 5)
    for tied in Counter(sample.rows for sample in samples).values():
        variance -= tied * (tied - 1) * (2 * tied + 5)
    reach = Z95 * sqrt(variance / 18)
    below = max(0, floor((len(slopes) - reach) / 2))
    above = min(len(slopes) - 1, ceil((len(slopes) + reach) / 2))
    low, slope, high = (max(0.0, bound) for bound in (slopes[below], median(slopes), slopes[above]))
    return low, slope, high


def _fixed(samples: Sequence[BatchSample], slope: float) -> tuple[float, float, float]:
    """Return the lower limit, the median and the upper limit of the fixed cost."""
    rest = sorted(sample.ms - slope * sample.rows for sample in samples)
    reach = Z95 * sqrt(len(rest)) / 2
    below = max(0, floor(len(rest) / 2 - reach))
    above = min(len(rest) - 1, ceil(len(rest) / 2 + reach))
    return max(0.0, rest[below]), max(0.0, median(rest)), max(0.0, rest[above])
