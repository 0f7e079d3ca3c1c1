"""The cost of a batch: a fixed part, a part per row, the logs' part, and the effect of an interval.

The cost is a line through (rows, milliseconds) of its recent batches, using the median of all
pairwise slopes, so that a batch slowed by a garbage collection or a full disk does not distort the
line.

Sources: H. Theil, "A rank-invariant method of linear and polynomial regression analysis" (1950),
for the line; P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau" (1968),
for the limits of its slope; the limits of a median are those of the sign test (order statistics of
the binomial distribution). None of them assumes a distribution.

The model is simple, and the page shows it. A batch of n rows costs `fixed + per row × n`
(`batch_cost`). At interval T and r rows per second, a batch starts every P = T, or, if it takes
longer than T, as soon as the previous one ends: P = fixed / (1 - per row × r). It reads n = r × P.
On average, a row waits P / 2 until the next batch begins, and then for that batch: expected latency
= P / 2 + cost(n). Up to (T - fixed) / per row rows fit into an interval: that is its maximum
throughput.

Spark's `walCommit` and `commitOffsets` are the times of the two entries of a batch.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from statistics import median

from queries.domain.readings import counted

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
    """One executed batch: its rows and its trigger's duration."""

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
    """Return the cost of a batch, from executed batches (newest last).

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


_CURVE_FROM_MS, _CURVE_TO_MS, _CURVE_POINTS = 50.0, 60_000.0, 48

#: Round intervals that may be suggested, in ms.
ROUND_MS = (
    *(100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000),
)


@dataclass(frozen=True, slots=True)
class Expected:
    """The model's prediction for one interval."""

    interval_ms: float
    period_ms: float | None  # between batches; None: rows pile up, whatever the period
    latency_ms: float | None  # average, from a row's arrival to the end of its batch
    low_ms: float | None  # the same at the edges of the band; None: unlimited
    high_ms: float | None
    busy: float | None  # share of time spent in batches, by the estimate
    throughput: float | None  # rows per second that fit into the interval; None: not bounded here


def expected(cost: BatchCost, rate: float, interval: float) -> Expected:
    """Return the prediction for an interval (ms) at a rate (rows per second)."""
    period, latency = _latency(cost.line, rate, interval)
    latencies = [_latency(line, rate, interval)[1] for line in (cost.line, *cost.edges)]
    finite = [value for value in latencies if value is not None]
    busy = None
    if period is not None:  # 0: cost-free batches follow each other endlessly
        busy = cost.line.at(rate * period / 1000) / period if period else 1.0
    return Expected(
        interval_ms=interval,
        period_ms=period,
        latency_ms=latency,
        low_ms=min(finite, default=None),
        high_ms=max(finite) if len(finite) == len(latencies) else None,
        busy=busy,
        throughput=_throughput(cost.line, interval),
    )


def intervals(interval: float) -> list[float]:
    """Return the intervals (ms) at which the curve is drawn, including the query's own."""
    last = max(_CURVE_TO_MS, 4 * interval)
    step = (last / _CURVE_FROM_MS) ** (1 / (_CURVE_POINTS - 1))
    points = {round(_CURVE_FROM_MS * step**exponent, 3) for exponent in range(_CURVE_POINTS)}
    return sorted(points | ({interval} if interval >= _CURVE_FROM_MS else set()))


def words(milliseconds: float) -> str:
    """Return a duration with its unit, for users."""
    if milliseconds < 1:
        return f"{milliseconds:.2g} ms"
    if milliseconds < 1000:
        return f"{milliseconds:.3g} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def interval_text(milliseconds: int) -> str:
    """Return an interval in Spark's format."""
    for size, unit in ((60_000, "minute"), (1000, "second"), (1, "millisecond")):
        count, rest = divmod(milliseconds, size)
        if count and not rest:
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return "0 seconds"


def _latency(line: CostLine, rate: float, interval: float) -> tuple[float | None, float | None]:
    """Return (period, expected latency) in ms; both None if rows pile up."""
    load = line.per_row_ms * rate / 1000  # share of the time used for the rows alone
    if load >= 1:
        return None, None
    period = max(interval, line.fixed_ms / (1 - load))
    return period, period / 2 + line.at(rate * period / 1000)


def _throughput(line: CostLine, interval: float) -> float | None:
    if line.per_row_ms == 0:
        return None if interval > line.fixed_ms else 0.0
    if interval == 0:
        return 1000 / line.per_row_ms
    return max(0.0, (interval - line.fixed_ms) / line.per_row_ms / interval * 1000)


#: The setting for the class that writes log entries, and our class for it.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
OUR_FILES = "headgate.CheckpointFiles"
#: Measured by `make bench log_entries` (docs/storage.md).
_ONCE = (
    "Headgate's file manager writes each log entry on S3 once, without a rename. In a benchmark "
    "(log_entries, on a loopback gateway, not with this query), it needed a quarter to a fifth of "
    "the time of Spark's default."
)
#: The note is shown if the entries take more than this share of the time.
SHARE_AT_MOST = 0.05


@dataclass(frozen=True, slots=True)
class LogFiles:
    """How the newest run writes the log entries of a checkpoint that is not local."""

    on_s3: bool
    manager: str  # the class that its author has chosen, "" if none
    fenced: bool  # False: its store, its Hadoop or its driver lacks what our class needs


def log_cost(files: LogFiles, logs_ms: float, trigger_ms: float, interval_ms: float) -> str:
    """Describe the cost of a batch's log entries and the remedy; "" if the cost is low.

    `logs_ms` and `trigger_ms` are the averages of its batches.
    """
    share = logs_ms / max(interval_ms, trigger_ms)
    if share <= SHARE_AT_MOST:
        return ""
    cost = f"The log entries of a batch take {words(logs_ms)}, {share:.0%} of the time."
    if files.on_s3 and files.manager not in ("", OUR_FILES):
        return f"{cost} {FILE_MANAGER} is {files.manager}. {_ONCE} To use it, remove the setting."
    if files.on_s3 and not files.fenced:
        return (
            f"{cost} The run is not fenced, so Spark's file manager may write them. {_ONCE} What "
            "it needs is in the run's warning."
        )
    fit = next((round_ms for round_ms in ROUND_MS if logs_ms / round_ms <= SHARE_AT_MOST), None)
    if fit is None:
        return cost
    return (
        f"{cost} With an interval of {interval_text(fit)} it would be {logs_ms / fit:.0%}, and a "
        "row would wait longer."
    )
