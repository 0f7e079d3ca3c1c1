"""Pictures of a query's work: charts of batches, the batch bar, and swim lanes of runs.

Red is the time during which a query was down although it should have been running, not the run
before.
"""

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, assert_never

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from headgate_ground.tolerant import at_s
from listeners import selectors as heard
from listeners.selectors import BatchBar
from queries.domain.access import Act
from queries.domain.readings import counted
from queries.domain.reasons import phrase
from queries.domain.states import BAD_OUTCOMES, FAILED_PHASES, STOPPED_PHASES
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.roles import VIEW
from queries.selectors.definitions.definitions import query as living_query
from queries.selectors.supervision.health import BATCHES
from queries.selectors.supervision.history import ChartMark, MarkKind, Outage, marks, outages, runs
from queries.services.access.audit import record_act
from queries.views.console.shell import actor_and_now, needs
from queries.views.console.wording import duration_words

SLOT_WIDTH = 5  # units in the picture, as are all below
HEIGHT = 24
LOWEST = 3.0
#: Maximum number of slots for a gap in batch IDs, however many batches are missing.
WIDEST_GAP = 3


@dataclass(frozen=True, slots=True)
class BarSlot:
    """One slot in the picture."""

    x: int
    y: float
    height: float
    kind: str  # ok | late | empty | repaired | gap | failed
    title: str


def draw(
    batches: list[BatchBar], *, interval_ms: int | None, outcomes: Mapping[int, str]
) -> list[BarSlot]:
    """Return the bars, with the newest at the right edge.

    Heights grow with the square root of the duration, so that one long batch does not flatten the
    rest. `outcomes` are the outcomes of ended runs: a failed run's red mark follows its last batch.
    A gap in batch IDs is drawn as dotted slots.
    """
    slots = _slots(batches, interval_ms=interval_ms, outcomes=outcomes)[-BATCHES:]
    tallest = max([batch.duration_ms for batch in batches] + [1])
    first = BATCHES - len(slots)
    bars = []
    for position, (kind, duration_ms, title) in enumerate(slots):
        if kind in ("gap", "failed"):
            height = float(HEIGHT)
        else:
            height = max(LOWEST, round(HEIGHT * math.sqrt(duration_ms / tallest), 1))
        x = (first + position) * SLOT_WIDTH
        bars.append(BarSlot(x, round(HEIGHT - height, 1), height, kind, title))
    return bars


def _slots(
    batches: list[BatchBar], *, interval_ms: int | None, outcomes: Mapping[int, str]
) -> list[tuple[str, int, str]]:
    slots: list[tuple[str, int, str]] = []
    for index, batch in enumerate(batches):
        before = batches[index - 1] if index else None
        if before is not None and before.run != batch.run:
            slots += _end_of(before.run, outcomes)
        if batch.missing_before:
            title = f"{batch.missing_before} missing before batch {batch.batch}"
            slots += [("gap", 0, title)] * min(batch.missing_before, WIDEST_GAP)
        slots.append((_kind(batch, interval_ms), batch.duration_ms, _title(batch, interval_ms)))
    if batches:
        slots += _end_of(batches[-1].run, outcomes)
    return slots


def _end_of(run: int, outcomes: Mapping[int, str]) -> list[tuple[str, int, str]]:
    outcome = outcomes.get(run, "")
    if outcome in BAD_OUTCOMES:
        return [("failed", 0, f"This run ended: {outcome.replace('_', ' ').lower()}")]
    return []


def _kind(batch: BatchBar, interval_ms: int | None) -> str:
    if batch.repaired:
        return "repaired"
    if interval_ms and batch.duration_ms > interval_ms:
        return "late"
    return "ok" if batch.rows else "empty"


def _title(batch: BatchBar, interval_ms: int | None) -> str:
    parts = [
        f"Batch {batch.batch}",
        f"{batch.at:%H:%M:%S} UTC",
        duration_words(batch.duration_ms),
        counted(batch.rows, "row"),
    ]
    if interval_ms and batch.duration_ms > interval_ms:
        parts.append(f"longer than its {duration_words(interval_ms)} trigger")
    if batch.repaired:
        parts.append("repaired from the driver's memory")
    return " · ".join(parts)


RANGES = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "90d": timedelta(days=90),
}
DEFAULT_RANGE = "15m"


@needs(VIEW)
def series(request: HttpRequest, name: str) -> HttpResponseBase:
    """Return the chart columns for a range, or since a given moment, with the events in it.

    `format=csv` gives one line per batch, `format=json` the same as a file.
    """
    now = timezone.now()
    query = living_query(name)
    since, until = span(request, now)
    batch_series = heard.series(query.pk, since=since, until=until or now + timedelta(seconds=5))
    form = request.GET.get("format", "")
    if form in ("csv", "json"):
        record_act(Act.EXPORTED, subject=name, what=f"batches as {form}", **actor_and_now(request))
    if form == "csv":
        return _file(_csv(batch_series), "text/csv", f"{name}.csv")
    end = until or now
    body = {
        "since": since.timestamp(),
        "until": end.timestamp(),
        **columns(batch_series),
        "marks": [_mark(query, mark) for mark in marks(query, since=since, until=end)],
        "outages": [_outage(outage) for outage in outages(query, since=since, until=end)],
    }
    if form == "json":
        return _file(json.dumps(body), "application/json", f"{name}.json")
    return JsonResponse(body)


def span(request: HttpRequest, now: datetime) -> tuple[datetime, datetime | None]:
    """Return the requested range; it has an end only if an absolute range was requested."""
    since = parse_datetime(request.GET.get("since", ""))
    until = parse_datetime(request.GET.get("until", ""))
    since = None if since is None or timezone.is_naive(since) else since
    until = None if until is None or timezone.is_naive(until) else until
    if since is None:
        since = (until or now) - RANGES.get(request.GET.get("range", ""), RANGES[DEFAULT_RANGE])
    if until is not None and until <= since:
        until = None
    return max(since, (until or now) - max(RANGES.values())), until


def _mark(query: Query, mark: ChartMark) -> dict[str, Any]:
    match mark.kind:
        case MarkKind.RUN | MarkKind.DEATH:
            href = reverse("run", args=[int(mark.key)])
        case MarkKind.FAILURE:
            href = reverse("failure", args=[int(mark.key)])
        case MarkKind.REVISION:
            href = f"{reverse('query-definition', args=[query.name])}?revision={mark.key}"
        case MarkKind.OPERATION:
            href = reverse("operation", args=[mark.key])
        case MarkKind.INCIDENT:
            href = reverse("incident", args=[mark.key])
        case never:
            assert_never(never)
    return {"at": mark.at.timestamp(), "kind": mark.kind, "text": mark.text, "href": href}


def _outage(outage: Outage) -> dict[str, Any]:
    until = outage.until.timestamp() if outage.until else None
    return {"since": outage.since.timestamp(), "until": until, "text": outage.text}


def _csv(batch_series: heard.Series) -> str:
    names = sorted(batch_series.columns)
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(["at", "batch", *names])
    for index, at in enumerate(batch_series.at):
        if batch_series.batches[index] is not None:  # an empty row separates two runs on a chart
            moment = at_s(at)
            when = moment.isoformat(timespec="milliseconds") if moment else ""
            values = [batch_series.columns[name][index] for name in names]
            lines.writerow([when, batch_series.batches[index], *values])
    return text.getvalue()


def _file(text: str, content_type: str, name: str) -> HttpResponse:
    answer = HttpResponse(text, content_type=f"{content_type}; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def columns(batch_series: heard.Series) -> dict[str, Any]:
    """Return a series in the charts' format."""
    return {"at": batch_series.at, "columns": batch_series.columns, "batches": batch_series.batches}


urlpatterns = [path("queries/<query:name>/series/", series, name="query-series")]


SPAN = timedelta(hours=1)
WIDTH = 600  # units in the picture
TICKS = 6
LANES_AT_MOST = 30
RUNS_AT_MOST = 600
#: Maximum number of queries to count; counting more would take as long as the rest of the page.
COUNTED_AT_MOST = 1_000


@dataclass(frozen=True, slots=True)
class LaneBar:
    """One run in the picture, or a period in which the query was down."""

    x: float
    width: float
    kind: str  # running | ended | failed
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One query's runs."""

    name: str
    stretches: list[LaneBar]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The complete picture."""

    lanes: list[Lane]
    ticks: list[tuple[float, datetime]]  # percent of the width
    left_out: int  # queries that ran but have no lane
    counted: bool  # False: the number is a minimum


def lanes(now: datetime) -> Lanes:
    """Return the lanes for the queries that ran within the last hour, by name.

    If there are more than `LANES_AT_MOST`, those that failed come before the others.
    """
    since = now - SPAN
    # A run that failed before the hour may have left its query down during it.
    down = Q(outcome__in=BAD_OUTCOMES, query__phase__in=FAILED_PHASES)
    recent = runs().filter(~Q(ended_at__lt=since) | down, query__archived_at__isnull=True)
    ran = recent.order_by().values_list("query", "query__name")
    failed = ran.filter(outcome__in=BAD_OUTCOMES).order_by("query__name").distinct()
    chosen = dict(failed[:LANES_AT_MOST])
    if left := LANES_AT_MOST - len(chosen):
        others = ran.exclude(query__in=chosen).order_by("query__name").distinct()
        chosen |= dict(others[:left])
    count = ran.values_list("query").distinct()[:COUNTED_AT_MOST].count()
    runs_by_name: dict[str, list[Run]] = {}
    for run in reversed(recent.filter(query__in=chosen)[:RUNS_AT_MOST]):
        runs_by_name.setdefault(run.query.name, []).append(run)
    return Lanes(
        [Lane(name, _stretches(runs_by_name[name], since, now)) for name in sorted(runs_by_name)],
        _ticks(since, now),
        left_out=count - len(chosen),
        counted=count < COUNTED_AT_MOST,
    )


def _stretches(ran: list[Run], since: datetime, now: datetime) -> list[LaneBar]:
    """Return a query's runs, and the periods in which it was down after a failed run."""
    drawn: list[LaneBar] = []
    for run, after in zip_longest(ran, ran[1:]):
        if run.ended_at is None or run.ended_at >= since:
            drawn.append(_stretch(run, since, now))
        until = after.created_at if after else _down_until(run, now)
        if run.outcome in BAD_OUTCOMES and run.ended_at is not None and until >= since:
            drawn.append(_down(run.ended_at, until, since))
    return drawn


def _down_until(run: Run, now: datetime) -> datetime:
    """Return when the query was stopped after its newest run; now if it should still be running."""
    query = run.query
    rested = query.phase_since if query.phase in STOPPED_PHASES else None
    return rested or now


def _down(begins: datetime, ends: datetime, since: datetime) -> LaneBar:
    x = _x(max(begins, since), since)
    title = f"Down from {begins:%H:%M:%S} UTC"
    return LaneBar(round(x, 1), round(max(2.0, _x(ends, since) - x), 1), "failed", title)


def _stretch(run: Run, since: datetime, now: datetime) -> LaneBar:
    begins = max(run.created_at, since)
    ends = run.ended_at or now
    x = _x(begins, since)
    width = max(2.0, _x(ends, since) - x)
    # A failed run was never up before its first commit or idle event.
    never_up = run.outcome in BAD_OUTCOMES and run.proven_at is None
    kind = "failed" if never_up else "ended" if run.outcome else "running"
    lasted = duration_words((ends - run.created_at).total_seconds() * 1000)
    # The end of an open run moves with the clock, so show only what stays true.
    end = f"{lasted} · {run.outcome.replace('_', ' ').lower()}" if run.outcome else "running"
    cause = phrase(run.cause)
    title = f"Run {run.pk} · started {run.created_at:%H:%M:%S} UTC ({cause}) · {end}"
    return LaneBar(round(x, 1), round(width, 1), kind, title)


def _x(at: datetime, since: datetime) -> float:
    return WIDTH * ((at - since) / SPAN)


def _ticks(since: datetime, now: datetime) -> list[tuple[float, datetime]]:
    step = SPAN / TICKS
    first = (since + step).replace(second=0, microsecond=0)
    first -= timedelta(minutes=first.minute % int(step.total_seconds() // 60))
    marks = [first + step * index for index in range(TICKS + 1)]
    return [(round(100 * ((at - since) / SPAN), 1), at) for at in marks if since <= at <= now]
