"""What a checkpoint's batches show: foreign batches, repeated batches, and steady state growth.

A program that Headgate did not start does not respect our locks, so Headgate cannot keep it away
from a checkpoint. Its batches are detected by the time that Spark writes into each batch's offsets.

If a driver dies after the sink's commit and before Spark's own, the next run executes the batch
again with the offsets in the log. A sink that knows the batch skips it, so Spark counts no rows;
and no event reports the first attempt. The batch has an event with 0 rows, although it was not
empty.

Source: `MicroBatchExecution` of 4.3.0. A batch that is already in the log is not constructed again,
so its progress lacks those phases.

The rule, which the page shows, is `RULE`. Anything else (the sawtooth pattern of closing windows, a
jump, too little history) gets no forecast, and the page says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headgate_ground.tolerant import count
from queries.domain.readings import counted

#: An end is recorded after it has happened; this allows for clock steps.
AFTER_ITS_END = timedelta(seconds=1)
#: A batch is reported within seconds of its end. If a heartbeat this much later still did not
#: mention it, the run did not make it.
REPORTED_WITHIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A started batch, with the time from its offsets (not from its file: files may be copied)."""

    number: int
    at: datetime


@dataclass(frozen=True, slots=True)
class RunSpan:
    """When one of our runs was alive, and what it reported."""

    began: datetime
    ended: datetime | None  # None: it is open
    reported: int | None = None  # the newest batch that it reported
    heartbeat_at: datetime | None = (
        None  # its driver's newest heartbeat: everything before it has arrived
    )


def foreign_batches(
    logged: Sequence[LoggedBatch], runs: Sequence[RunSpan], *, since: datetime, now: datetime
) -> list[LoggedBatch]:
    """Return the batches after `since` that no run executed, in the log's order.

    `runs` are all runs since then. A batch is foreign if it began while no run was alive, or if a
    live run never reported it, except for one batch that may be that run's batch in flight.
    """
    later = [batch for batch in logged if since < batch.at <= now]
    return [batch for batch in later if _is_foreign(batch, later, runs, now)]


def _is_foreign(
    batch: LoggedBatch, logged: Sequence[LoggedBatch], runs: Sequence[RunSpan], now: datetime
) -> bool:
    covering = [run for run in runs if _covers(run, batch, now)]
    return all(_made_elsewhere(batch, logged, run, now) for run in covering)


def _covers(run: RunSpan, batch: LoggedBatch, now: datetime) -> bool:
    return run.began <= batch.at <= (run.ended or now) + AFTER_ITS_END


def _made_elsewhere(
    batch: LoggedBatch, logged: Sequence[LoggedBatch], run: RunSpan, now: datetime
) -> bool:
    if run.heartbeat_at is None or run.heartbeat_at - batch.at < REPORTED_WITHIN:
        return False  # its report may be delayed, or lost with its driver
    own = [other.number for other in logged if _covers(run, other, now)]
    in_flight = min(own) if run.reported is None else run.reported + 1
    return batch.number > in_flight


#: Phases of `durationMs` in which a batch is constructed.
_CONSTRUCTED = frozenset({"latestOffset", "getOffset", "walCommit"})

UNCOUNTED = (
    "Spark repeated this batch after a restart and read none of its rows, as it does if the sink "
    "had already committed them. The rows that the first attempt read are in no count."
)


def is_uncounted(progress: Mapping[str, Any]) -> bool:
    """Return whether a batch was repeated, read no row, and its offsets are not empty.

    A continuous epoch is not constructed at all: only batches with an `addBatch` count.
    """
    phases = progress.get("durationMs")
    if not isinstance(phases, dict) or "addBatch" not in phases or phases.keys() & _CONSTRUCTED:
        return False
    if count(progress.get("numInputRows")) != 0:
        return False
    sources = progress.get("sources")
    return isinstance(sources, list) and any(map(_has_moved, sources))


def _has_moved(source: object) -> bool:
    return isinstance(source, dict) and source.get("startOffset") != source.get("endOffset")


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
    """Return the slope and r² of the least-squares line; r² is 1 for a level series."""
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
