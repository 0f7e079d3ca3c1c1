"""The swim lanes: each query's runs over one hour, as bars on one time axis.

Red is the time during which a query was down although it should have been running, not the run
before.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest

from django.db.models import Q

from queries.domain.reasons import phrase
from queries.domain.states import BAD_OUTCOMES, FAILED_PHASES, STOPPED_PHASES
from queries.models.drivers import Run
from queries.selectors.supervision.runs import runs
from queries.views.console.wording import duration_words

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
    """The whole picture."""

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
    """Return a query's runs, and the periods in which it was down after one that ended badly."""
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
