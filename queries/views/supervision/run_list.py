"""The list of runs, with live updates."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone

from headgate_ground.masking import mask
from listeners import selectors as heard
from queries.domain.states import BAD_OUTCOMES, RunOutcome
from queries.domain.validation.params import as_text
from queries.models.drivers import Run
from queries.roles import VIEW
from queries.selectors.supervision.history import CALENDAR_DAYS, runs
from queries.views.console.fragments import (
    ARRIVALS,
    ROWS,
    Changes,
    Drawn,
    filters,
    filters_from_key,
    fragments,
    keys,
    page_of,
    topic,
)
from queries.views.console.shell import needs

OUTCOMES = ("OPEN", *(outcome.value for outcome in RunOutcome if outcome.value))
JUST_ENDED = timedelta(minutes=1)
_FILTERS = {"query": "query__name", "application": "driver__application__name"}


@needs(VIEW)
def run_list(request: HttpRequest) -> HttpResponseBase:
    """List runs, newest first; all filters are in the URL."""
    list_filters = _list_filters(request.GET)
    now = timezone.now()
    page = page_of(_rows(list_filters), by="epoch", cursor=request.GET.get("after", ""))
    context = {
        "page": page,
        "runs": lasting(page.rows, now),
        "filters": list_filters,
        "filtered": any(list_filters.values()),
        "outcomes": OUTCOMES,
        "topic": topic("runs", list_filters),
        "now": now,
    }
    return render(request, "supervision/runs/list.html", context)


def _list_filters(params: Mapping[str, str]) -> dict[str, str]:
    return filters(params, _FILTERS, outcome=("", *OUTCOMES))


def _rows(list_filters: Mapping[str, str]) -> QuerySet[Run]:
    rows = runs().filter(
        **{_FILTERS[name]: list_filters[name] for name in _FILTERS if list_filters[name]}
    )
    if list_filters["outcome"]:
        rows = rows.filter(
            outcome="" if list_filters["outcome"] == "OPEN" else list_filters["outcome"]
        )
    return rows


def lasted(run: Run, now: datetime) -> float:
    """Return how long a run has lasted, in milliseconds."""
    return ((run.ended_at or now) - run.created_at).total_seconds() * 1000


def param_text(run: Run) -> str:
    """Format a run's parameter values, such as "day = 2026-11-25, low = 3"."""
    values = mask(run.params or {})
    return ", ".join(f"{name} = {as_text(value)}" for name, value in values.items())


def lasting(rows: list[Run], now: datetime) -> list[tuple[Run, float]]:
    """Return the runs, each with its duration so far."""
    return [(run, lasted(run, now)) for run in rows]


@dataclass(frozen=True, slots=True)
class Job:
    """A run of a query that ends on its own."""

    run: Run
    now: datetime
    read: int | None = None  # rows; None: no batch is stored
    written: int | None = None  # rows; None: its sink did not report them

    # Computed when its row is drawn, so that a run that cannot be read spoils no other row.

    @property
    def ms(self) -> float:
        """Return its duration."""
        return lasted(self.run, self.now)

    @property
    def params(self) -> str:
        """Return its parameter values as a string."""
        return param_text(self.run)


def jobs(rows: list[Run], now: datetime) -> list[Job]:
    """Return the runs with the number of rows that they read and wrote."""
    counts = heard.run_rows([run.pk for run in rows])
    return [Job(run, now, *counts.get(run.pk, ())) for run in rows]


@dataclass(frozen=True, slots=True)
class Day:
    """One day of a calendar of runs."""

    tone: str  # "" without runs
    text: str


def calendar(outcomes: Mapping[date, Counter[str]], now: datetime) -> list[Day]:
    """Return the last 90 days (UTC), oldest first.

    A day is bad if no run completed and one failed, a warning if others completed.
    """
    today = now.astimezone(UTC).date()
    days = [today - timedelta(days=back) for back in reversed(range(CALENDAR_DAYS))]
    return [_day(day, outcomes.get(day, Counter())) for day in days]


def _day(day: date, runs: Counter[str]) -> Day:
    failed, completed = _failed(runs), runs[RunOutcome.COMPLETED]
    tone = "calm" if runs else ""
    if failed:
        tone = "warn" if completed else "bad"
    elif completed:
        tone = "ok"
    elif runs[RunOutcome.OPEN]:
        tone = "busy"
    return Day(tone, f"{day:%d %b %Y}: {counted(runs)}")


def counted(runs: Counter[str]) -> str:
    """Return how many runs had which outcome, such as "3 completed, 1 failed"."""
    parts = {
        "completed": runs[RunOutcome.COMPLETED],
        "failed": _failed(runs),
        "stopped": runs[RunOutcome.STOPPED],
        "running": runs[RunOutcome.OPEN],
    }
    return ", ".join(f"{count:,} {what}" for what, count in parts.items() if count) or "no runs"


def _failed(runs: Counter[str]) -> int:
    return sum(runs[outcome] for outcome in BAD_OUTCOMES)


@fragments("runs", hears=("query",))
def draw_runs(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the rows of changed runs, however they ended, and of runs begun since then."""
    list_filters = _list_filters(filters_from_key(key))
    if changes is None:
        listed_ids = _rows(list_filters)[:ROWS].values_list("pk", flat=True)
        lately = runs()[:ROWS].values_list("pk", flat=True)
        rows = runs().filter(pk__in={*listed_ids, *lately})
    else:
        moving = Q(ended_at=None) | Q(ended_at__gt=now - JUST_ENDED)  # the others do not change
        rows = runs().filter(moving, query__in=keys(changes, "query"))[:ROWS]
    for run, ms in lasting(list(rows), now):
        context = {"run": run, "ms": ms, "now": now}
        yield f"run-{run.pk}", render_to_string("supervision/runs/_row.html", context)
    context = {"runs": lasting(list(_rows(list_filters)[:ARRIVALS]), now), "now": now}
    yield "runs-arrived", render_to_string("supervision/runs/_arrived.html", context)


urlpatterns = [path("runs/", run_list, name="runs")]
