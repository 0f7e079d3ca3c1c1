"""The swim-lanes: the runs of each query over one hour, as bars on one line of time."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.domain.reasons import phrase
from queries.domain.states import BAD_OUTCOMES
from queries.models.drivers import Run
from queries.selectors.supervision.runs import runs
from queries.views.console.wording import duration_words

SPAN = timedelta(hours=1)
WIDTH = 600  # units of the picture
TICKS = 6
LANES_AT_MOST = 30
RUNS_AT_MOST = 600


@dataclass(frozen=True, slots=True)
class Stretch:
    """One run within the picture."""

    x: float
    width: float
    kind: str  # running | ended | failed
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One query's runs."""

    name: str
    stretches: list[Stretch]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The whole picture."""

    lanes: list[Lane]
    ticks: list[tuple[float, datetime]]  # per cent of the width


def lanes(now: datetime) -> Lanes:
    """Return the lanes of all queries that ran within the last hour, by name."""
    since = now - SPAN
    found: dict[str, list[Stretch]] = {}
    recent = runs().filter(query__archived_at__isnull=True).exclude(ended_at__lt=since)
    for run in reversed(recent[:RUNS_AT_MOST]):
        found.setdefault(run.query.name, []).append(_stretch(run, since, now))
    names = sorted(found)[:LANES_AT_MOST]
    return Lanes([Lane(name, found[name]) for name in names], _ticks(since, now))


def _stretch(run: Run, since: datetime, now: datetime) -> Stretch:
    begins = max(run.created_at, since)
    ends = run.ended_at or now
    x = _x(begins, since)
    width = max(2.0, _x(ends, since) - x)
    kind = "failed" if run.outcome in BAD_OUTCOMES else "ended" if run.outcome else "running"
    lasted = duration_words((ends - run.created_at).total_seconds() * 1000)
    # The end of an open run moves with the clock: say no more than what stays true.
    end = f"{lasted} · {run.outcome.replace('_', ' ').lower()}" if run.outcome else "running"
    cause = phrase(run.cause)
    title = f"Run {run.epoch} · started {run.created_at:%H:%M:%S} UTC ({cause}) · {end}"
    return Stretch(round(x, 1), round(width, 1), kind, title)


def _x(at: datetime, since: datetime) -> float:
    return WIDTH * ((at - since) / SPAN)


def _ticks(since: datetime, now: datetime) -> list[tuple[float, datetime]]:
    step = SPAN / TICKS
    first = (since + step).replace(second=0, microsecond=0)
    first -= timedelta(minutes=first.minute % int(step.total_seconds() // 60))
    marks = [first + step * index for index in range(TICKS + 1)]
    return [(round(100 * ((at - since) / SPAN), 1), at) for at in marks if since <= at <= now]
