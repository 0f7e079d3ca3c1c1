"""Expected latency and throughput at an interval, from the cost of a batch.

The model is simple, and the page shows it. A batch of n rows costs `fixed + per row × n`
(`batch_cost`). At interval T and r rows per second, a batch starts every P = T, or, if it takes
longer than T, as soon as the previous one ends: P = fixed / (1 - per row × r). It reads n = r × P.
On average, a row waits P / 2 until the next batch begins, and then for that batch: expected latency
= P / 2 + cost(n). Up to (T - fixed) / per row rows fit into an interval: that is its maximum
throughput.
"""

from dataclasses import dataclass

from queries.domain.triggers.batch_cost import BatchCost, CostLine

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
