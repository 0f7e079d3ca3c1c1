"""Decide whether a figure has crossed its threshold, now and at each minute of the past.

A series has one point for each minute with a known value. A minute without a point is unknown, and
an unknown figure is never counted as fine: too few points, or old ones, make the state UNKNOWN,
which opens nothing and closes nothing.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.definitions.spec import Threshold, ThresholdFigure

MINUTE = timedelta(minutes=1)
#: A crossed threshold is over once the figure is this share of the limit away from it, so that a
#: figure close to the limit does not open and close incidents.
MARGIN = 0.1
#: Share of the window's minutes that must be known.
MIN_COVERAGE = 0.5
#: The newest point may be this old: a minute that is not over, and the time to store it.
NEWEST_WITHIN = timedelta(minutes=3)
#: A crossing within this time after the last is the same one, as for incidents.
SAME_WITHIN = timedelta(minutes=5)
#: Most times without figures that a replay names, longest first.
NAMED_SPANS = 3


@dataclass(frozen=True, slots=True)
class FigureFacts:
    """How a figure is aggregated, and the words for it."""

    unit: str  # after the number: "records behind"
    choice: str  # on forms
    below: bool = False  # crossed when it is below the limit
    total: bool = False  # the window's sum, not its mean
    sparse: bool = False  # has points only where a batch ran: one in the window is enough


FIGURES: dict[ThresholdFigure, FigureFacts] = {
    "records_behind": FigureFacts("records behind", "Records behind, above"),
    "seconds_behind": FigureFacts("s behind", "Seconds behind, above"),
    "bytes_behind": FigureFacts("bytes behind", "Bytes behind (tables), above"),
    "files_behind": FigureFacts("files behind", "Files behind (tables), above"),
    "rows_per_second_below": FigureFacts("rows/s", "Rows/s, below", below=True),
    "batch_seconds": FigureFacts("s per batch", "Batch time in seconds, above", sparse=True),
    "late_rows": FigureFacts("late rows", "Late rows in the window, above", total=True),
    "state_rows": FigureFacts("state rows", "State rows, above", sparse=True),
}


class Crossing(StrEnum):
    """What a threshold says about its figure."""

    CROSSED = "crossed"
    FINE = "fine"
    UNKNOWN = "unknown"  # not enough data


@dataclass(frozen=True, slots=True)
class Point:
    """A figure's value in one minute."""

    at: datetime  # start of the minute
    value: float
    weight: float = 1.0  # in the mean: a minute's batches, or 1


@dataclass(frozen=True, slots=True)
class ThresholdReading:
    """A threshold's state, with its numbers."""

    state: Crossing
    value: float | None  # over the window; None: not enough data
    limit: float | None  # None: a factor, and last week has no batches
    text: str  # a sentence
    seen_at: datetime | None  # minute of the window's newest figure; None: there are none


@dataclass(frozen=True, slots=True)
class Span:
    """A time without figures."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Replay:
    """When a threshold would have been crossed in a period."""

    crossed_at: tuple[datetime, ...]
    limit: float | None
    known_minutes: int  # minutes in which the state was known
    minutes: int  # in the period
    unknown: tuple[Span, ...]  # the longest times without figures, in order
    text: str  # a sentence


def number(value: float) -> str:
    """Return a number of 0 or more with three digits, as in "1.23 M"; below 10,000 in full."""
    for least, size, suffix in (
        (0.9995e12, 1e12, " T"),
        (0.9995e9, 1e9, " G"),
        (0.9995e6, 1e6, " M"),
        (1e4, 1e3, " k"),
    ):
        if value >= least:
            return f"{float(f'{value / size:.3g}'):,.10g}{suffix}"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def p95(values: Iterable[tuple[float, float]]) -> float | None:
    """Return the 95th percentile of (value, weight) pairs; None if there are none."""
    rows = sorted((value, weight) for value, weight in values if weight > 0)
    left = 0.95 * sum(weight for _, weight in rows)
    for value, weight in rows:
        left -= weight
        if left <= 1e-9:
            return value
    return None


def limit_of(threshold: Threshold, usual: float | None) -> float | None:
    """Return the limit; `usual` is last week's p95, and None makes a factor's limit unknown."""
    if not threshold.factor:
        return threshold.value
    return None if usual is None else threshold.factor * usual


def judge(
    threshold: Threshold,
    points: Sequence[Point],
    *,
    now: datetime,
    crossed: bool,
    usual: float | None = None,
) -> ThresholdReading:
    """Return a threshold's state now; `crossed` is whether it was crossed before."""
    since = now - timedelta(minutes=threshold.window_minutes)
    window = _Window(threshold)
    for point in points:
        if since <= point.at < now:
            window.add(point)
    limit = limit_of(threshold, usual)
    value = window.value(now)
    state = _state(threshold, value, limit, crossed)
    text = _text(threshold, value, limit, window.newest, now)
    return ThresholdReading(state, value, limit, text, window.newest)


def replay(
    threshold: Threshold,
    points: Sequence[Point],
    *,
    since: datetime,
    until: datetime,
    usual: float | None = None,
) -> Replay:
    """Return when a threshold would have been crossed in [since, until), minute by minute.

    `points` are in order; those before `since` fill the first windows. The times without figures
    are returned too.
    """
    limit, window, coming = limit_of(threshold, usual), _Window(threshold), deque(points)
    crossed, crossed_at, ended_at = False, list[datetime](), None
    measured_minutes, minutes, unknown = 0, 0, list[Span]()
    now = since
    while now < until:
        while coming and coming[0].at < now:
            window.add(coming.popleft())
        window.forget(now - timedelta(minutes=threshold.window_minutes))
        state = _state(threshold, window.value(now), limit, crossed)
        minutes += 1
        if state is Crossing.UNKNOWN:
            if unknown and unknown[-1].until == now:
                unknown[-1] = Span(unknown[-1].since, now + MINUTE)
            else:
                unknown.append(Span(now, now + MINUTE))
        else:
            measured_minutes += 1
            if state is Crossing.CROSSED and not crossed:
                if ended_at is None or now - ended_at > SAME_WITHIN:
                    crossed_at.append(now)
            elif crossed and state is Crossing.FINE:
                ended_at = now
            crossed = state is Crossing.CROSSED
        now += MINUTE
    longest = sorted(unknown, key=lambda span: span.since - span.until)[:NAMED_SPANS]
    named = tuple(sorted(longest, key=lambda span: span.since))
    text = _replayed(crossed_at, measured_minutes, minutes, named)
    return Replay(tuple(crossed_at), limit, measured_minutes, minutes, named, text)


class _Window:
    """The points of a moving window."""

    def __init__(self, threshold: Threshold) -> None:
        self._points: deque[Point] = deque()
        self._facts = FIGURES[threshold.figure]
        self._minutes = threshold.window_minutes

    def add(self, point: Point) -> None:
        self._points.append(point)

    def forget(self, before: datetime) -> None:
        while self._points and self._points[0].at < before:
            self._points.popleft()

    @property
    def newest(self) -> datetime | None:
        return self._points[-1].at if self._points else None

    def value(self, now: datetime) -> float | None:
        """Return the sum or the mean; None if too little is known or the newest is too old."""
        if not self._points:
            return None
        if not self._facts.sparse and (
            len(self._points) < MIN_COVERAGE * self._minutes
            or now - self._points[-1].at > NEWEST_WITHIN
        ):
            return None
        if self._facts.total:
            return math.fsum(point.value for point in self._points)
        weight = math.fsum(point.weight for point in self._points)
        return math.fsum(point.value * point.weight for point in self._points) / weight


def _state(
    threshold: Threshold, value: float | None, limit: float | None, crossed: bool
) -> Crossing:
    if value is None or limit is None:
        return Crossing.UNKNOWN
    if FIGURES[threshold.figure].below:
        edge = limit * (1 + MARGIN) if crossed else limit
        return Crossing.CROSSED if value < edge else Crossing.FINE
    edge = limit * (1 - MARGIN) if crossed else limit
    return Crossing.CROSSED if value > edge else Crossing.FINE


def _text(
    threshold: Threshold,
    value: float | None,
    limit: float | None,
    newest: datetime | None,
    now: datetime,
) -> str:
    facts, minutes = FIGURES[threshold.figure], threshold.window_minutes
    if value is None:
        last = (
            f"; the newest figure is from {newest:%H:%M} UTC"
            if newest
            else ": there are no figures"
        )
        return f"Not enough data in the last {minutes} min{last}."
    how = "in" if facts.total else "on average over"
    comparison = f"{number(value)} {facts.unit} {how} {minutes} min"
    if limit is None:
        return f"{comparison}; the threshold is unknown, because there were no batches last week."
    derived = f" ({threshold.factor:g} × last week's p95)" if threshold.factor else ""
    return f"{comparison}; the threshold is {number(limit)}{derived}."


def _replayed(
    crossed_at: Sequence[datetime], measured_minutes: int, minutes: int, spans: Sequence[Span]
) -> str:
    days = f"the last {minutes / 1440:.3g} days"
    if not measured_minutes:
        return f"There are no figures for {days}, so it is unknown how often it would have fired."
    times = {0: "not have fired", 1: "have fired once"}.get(
        len(crossed_at), f"have fired {len(crossed_at):,} times"
    )
    first = f" (first {crossed_at[0]:%Y-%m-%d %H:%M} UTC)" if crossed_at else ""
    if not spans:
        return f"It would {times} in {days}{first}."
    named = ", ".join(f"{span.since:%m-%d %H:%M} to {span.until:%m-%d %H:%M}" for span in spans)
    if measured_minutes * 2 < minutes:  # a count over a week would be read as a week's
        some = (
            f"{measured_minutes:,} min"
            if measured_minutes < 120
            else f"{measured_minutes / 60:,.0f} h"
        )
        return (
            f"There are figures for only {some} of {days}; in these, it would {times}{first}. "
            f"Longest times without figures: {named} UTC."
        )
    share = max(1, round(100 * (minutes - measured_minutes) / minutes))
    text = f"It would {times} in {days}{first}."
    return f"{text} There are no figures for {share} % of that time; longest: {named} UTC."
