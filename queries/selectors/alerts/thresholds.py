"""Read the thresholds of queries and rules, and judge them by the stored figures.

The number of database queries is fixed: it does not grow with the number of queries or thresholds.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from listeners.loops.backlogs import loop_errors
from listeners.models import Latest, Rollup
from queries.domain.alerts.forms import IncidentKind, IncidentState, Selector
from queries.domain.alerts.incidents import of_query
from queries.domain.alerts.thresholds import (
    MINUTE,
    Crossing,
    Point,
    Replay,
    ThresholdReading,
    judge,
    p95,
    replay,
)
from queries.domain.definitions.labels import Selection, matches
from queries.domain.definitions.spec import Threshold
from queries.domain.states import Desired
from queries.models.alerts import AlertRule, FigureSample, Incident
from queries.models.definitions import Query
from queries.selectors import visible

_each = loop_errors("thresholds", logging.getLogger(__name__))

WEEK = timedelta(days=7)
_MINUTE_S, _HOUR_S = 60, 3600
#: Queries whose figures are read in one statement: databases limit its parameters.
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Held:
    """A threshold that applies to a query."""

    query: int
    threshold: Threshold
    rule: str = ""  # the rule that it comes from; "" for the query's own
    rule_id: int | None = None

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of its incident, which is stable when its limit changes."""
        one = self.threshold
        own = f"{of_query(IncidentKind.THRESHOLD, self.query)}:{one.figure}:{one.window_minutes}"
        return own if self.rule_id is None else f"{own}:rule:{self.rule_id}"


@dataclass(frozen=True, slots=True)
class Status:
    """A threshold that applies to a query, and its state."""

    held: Held
    judged: ThresholdReading


@dataclass(slots=True)
class _Series:
    """The stored figures of some queries, in order of time."""

    now: datetime
    #: Columns of `FigureSample` and of `Rollup`, as named tuples: objects take twice the time.
    samples: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    minutes: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    usual: dict[int, float] = field(default_factory=dict)  # last week's p95, if there are batches
    idle_at: dict[int, datetime] = field(default_factory=dict)


def crossed_thresholds(*, now: datetime) -> Iterator[tuple[Query, Status]]:
    """Yield the crossed thresholds of queries that should run.

    A threshold that was crossed stays so while its figure is unknown. Unreadable thresholds are
    skipped, and the System page names them.
    """
    held, queries = _all_held()
    if not held:
        return
    open_now = _open()
    series = _read(held, since=now - _longest(held), now=now, usual_p95=_USUAL)
    for one in held:
        with _each.isolate_errors(f"{one.threshold.figure} of {queries[one.query].name}"):
            was = one.fingerprint in open_now
            judged = _judged(one, series, now=now, crossed=was)
            if judged.state is Crossing.CROSSED or (was and judged.state is Crossing.UNKNOWN):
                yield queries[one.query], Status(one, judged)


def threshold_status(query: Query, *, now: datetime) -> list[Status]:
    """Return each threshold that applies to a query, with its state; for any query."""
    held = _held_by(query, _rules())
    if not held:
        return []
    open_now = _open(query)
    series = _read(held, since=now - _longest(held), now=now)
    return [
        Status(one, _judged(one, series, now=now, crossed=one.fingerprint in open_now))
        for one in held
    ]


def preview(query: Query, threshold: Threshold, *, now: datetime) -> Replay:
    """Return how often a threshold would have been crossed in the last 7 days."""
    until = now.replace(second=0, microsecond=0)
    since = until - WEEK
    held = [Held(query.pk, threshold)]
    series = _read(held, since=since - timedelta(minutes=threshold.window_minutes), now=now)
    points = _points(held[0], series)
    return replay(threshold, points, since=since, until=until, usual=series.usual.get(query.pk))


# --- which thresholds apply ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    pk: int
    name: str
    selection: Selection
    thresholds: tuple[Threshold, ...]


def _rules() -> list[_Rule]:
    found = []
    for row in AlertRule.objects.filter(enabled=True).exclude(thresholds=[]):
        with _each.isolate_errors(f"the thresholds of rule {row.name}"):
            limits = tuple(Threshold.model_validate(raw) for raw in row.thresholds)
            selection = Selector.model_validate(row.selector).about_queries
            found.append(_Rule(row.pk, row.name, selection, limits))
    return found


def _all_held() -> tuple[list[Held], dict[int, Query]]:
    rules = _rules()
    rows = visible.queries().filter(archived_at=None, desired=Desired.RUNNING)
    if not rules:
        rows = rows.filter(thresholds__isnull=False)
    queries = {row.pk: row for row in rows.select_related("application").order_by()}
    held: list[Held] = []
    for query in queries.values():
        with _each.isolate_errors(f"the thresholds of {query.name}"):
            held += _held_by(query, rules)
    return held, queries


def _held_by(query: Query, rules: Iterable[_Rule]) -> list[Held]:
    """Return a query's own thresholds, and those of rules on figures that it does not limit."""
    held = []
    for index, raw in enumerate(query.thresholds or ()):
        with _each.isolate_errors(f"threshold {index} of {query.name}"):
            held.append(Held(query.pk, Threshold.model_validate(raw)))
    own = {one.threshold.figure for one in held}
    fields = {"application": query.application.name}
    labels = {**query.application.labels, **query.labels}
    for rule in rules:
        if matches(rule.selection, fields, labels):
            held += [
                Held(query.pk, one, rule.name, rule.pk)
                for one in rule.thresholds
                if one.figure not in own
            ]
    return held


def _open(query: Query | None = None) -> set[str]:
    """Return the fingerprints of thresholds that are crossed: their incident has not cleared."""
    rows = Incident.objects.filter(
        kind=IncidentKind.THRESHOLD, state=IncidentState.OPEN, quiet_since=None
    )
    if query is not None:
        rows = rows.filter(query=query)
    return set(rows.order_by().values_list("fingerprint", flat=True))


def _longest(held: Iterable[Held]) -> timedelta:
    return timedelta(minutes=max(one.threshold.window_minutes for one in held))


# --- figures ------------------------------------------------------------------------------

_SAMPLED: dict[str, str] = {
    "records_behind": "records",
    "seconds_behind": "seconds",
    "bytes_behind": "bytes",
    "files_behind": "files",
}
#: Figures that are read from rollups of one minute.
_ROLLED = frozenset({"rows_per_second_below", "batch_seconds", "state_rows"})


def _read(
    held: Sequence[Held],
    *,
    since: datetime,
    now: datetime,
    usual_p95: dict[int, tuple[datetime, float]] | None = None,
) -> _Series:
    """Read the data for these thresholds: at most five statements per 500 queries.

    `usual_p95` keeps last week's p95 of each query for the hour.
    """
    series = _Series(now)
    rated = {one.query for one in held if one.threshold.figure in _RATES}
    rolled = {one.query for one in held if one.threshold.figure in _ROLLED} - rated
    sampled = {one.query for one in held if one.threshold.figure not in _ROLLED - _RATES}
    compared = {one.query for one in held if one.threshold.factor}
    first = since - timedelta(minutes=2)  # the value before the window's first, for increases
    for pks in _chunks(sampled):
        rows = FigureSample.objects.filter(query__in=pks, at__gte=first, at__lt=now)
        for row in rows.order_by("at").values_list(*_SAMPLE, named=True):
            series.samples[row.query_id].append(row)
    for pks in _chunks(rolled):
        for row in _rollups(pks, _MINUTE_S, since, now).values_list(*_ROLLUP, named=True):
            series.minutes[row.query].append(row)
    for pks in _chunks(rated):
        rows = _rollups(pks, _MINUTE_S, since - _BEFORE, now)
        for row in rows.values_list(*_ROLLUP, named=True):
            series.minutes[row.query].append(row)
        latest = Latest.objects.filter(query__in=pks, idle_at__isnull=False)
        idle = latest.values_list("query", "idle_at")
        series.idle_at |= {query: at for query, at in idle if at is not None}
    _read_usual(series, compared, {} if usual_p95 is None else usual_p95)
    return series


def _read_usual(
    series: _Series, queries: set[int], usual_p95: dict[int, tuple[datetime, float]]
) -> None:
    """Read the p95 of last week's hourly mean batch times, weighted by batches, in seconds."""
    hour = series.now.replace(minute=0, second=0, microsecond=0)
    for query in list(usual_p95):
        if query not in queries or usual_p95[query][0] != hour:
            del usual_p95[query]
    for pks in _chunks(queries - usual_p95.keys()):
        hours: dict[int, list[tuple[float, int]]] = defaultdict(list)
        rows = _rollups(pks, _HOUR_S, series.now - WEEK, series.now).order_by()
        for query, total_ms, batches in rows.values_list("query", "duration_ms_sum", "batches"):
            hours[query].append((total_ms / batches / 1000, batches))
        for query, values in hours.items():
            if (usual := p95(values)) is not None:
                usual_p95[query] = hour, usual
    series.usual = {query: usual for query, (_, usual) in usual_p95.items()}


#: Last week's p95 by query, with the hour in which it was read: a week of hours is much to read.
_USUAL: dict[int, tuple[datetime, float]] = {}
_SAMPLE = ("query_id", "at", "records", "seconds", "files", "bytes", "late")
_ROLLUP = ("query", "start", "batches", "rows", "duration_ms_sum", "state_rows_max")
_RATES = frozenset({"rows_per_second_below"})
#: A batch that began this long before the window can still have rows in it.
_BEFORE = timedelta(hours=1)


def _rollups(pks: list[int], width_s: int, since: datetime, until: datetime) -> Any:
    rows = Rollup.objects.filter(query__in=pks, width_s=width_s, start__gte=since, start__lt=until)
    return rows.order_by("start")


def _chunks(pks: Collection[int]) -> Iterator[list[int]]:
    ordered = sorted(pks)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]


def _judged(one: Held, series: _Series, *, now: datetime, crossed: bool) -> ThresholdReading:
    usual = series.usual.get(one.query) if one.threshold.factor else None
    points = _points(one, series)
    return judge(one.threshold, points, now=now, crossed=crossed, usual=usual)


def _points(one: Held, series: _Series) -> list[Point]:
    """Return a figure's value in each minute in which it is known."""
    figure, samples = one.threshold.figure, series.samples.get(one.query, [])
    minutes = series.minutes.get(one.query, [])
    if (column := _SAMPLED.get(figure)) is not None:
        return [
            Point(row.at, float(value))
            for row in samples
            if (value := getattr(row, column)) is not None
        ]
    make: Mapping[str, Callable[[], list[Point]]] = {
        "late_rows": lambda: _increases(samples),
        "rows_per_second_below": lambda: _rates(
            minutes, samples, series.idle_at.get(one.query), over=series.now - MINUTE
        ),
        "batch_seconds": lambda: [
            Point(row.start, row.duration_ms_sum / row.batches / 1000, row.batches)
            for row in minutes
        ],
        "state_rows": lambda: [
            Point(row.start, float(row.state_rows_max))
            for row in minutes
            if row.state_rows_max is not None
        ],
    }
    return make[figure]()


def _increases(samples: Sequence[Any]) -> list[Point]:
    """Return the rows that were dropped in each minute; the stored count restarts at midnight."""
    points = []
    for before, row in pairwise(samples):
        base = before.late if before.at.date() == row.at.date() else 0
        points.append(Point(row.at, float(max(0, row.late - base))))
    return points


def _rates(
    minutes: Sequence[Any],
    samples: Sequence[Any],
    idle_at: datetime | None,
    *,
    over: datetime,
) -> list[Point]:
    """Return rows per second: a batch's rows are spread over its duration.

    A minute without a batch is 0 if the query was running and a later event arrived, so that a
    batch whose report is still pending is unknown and not 0. A minute that began after `over` has
    not ended: its rows are incomplete.
    """
    rates: dict[datetime, float] = defaultdict(float)
    evidence = [idle_at] if idle_at else []
    for row in minutes:
        count = max(1, min(1440, math.ceil(row.duration_ms_sum / 60_000)))
        for index in range(count):
            rates[row.start + index * MINUTE] += row.rows / count / 60
        evidence.append(row.start + count * MINUTE)
    until = max(evidence, default=None)
    for sample in samples:
        if until is not None and sample.at < until:
            rates.setdefault(sample.at, 0.0)
    return [Point(at, rates[at]) for at in sorted(rates) if at <= over]
