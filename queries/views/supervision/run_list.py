"""The list of runs, with live updates."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path
from django.utils import timezone

from queries.domain.states import RunOutcome
from queries.models.drivers import Run
from queries.roles import VIEW
from queries.selectors.supervision.runs import runs
from queries.views.console.fragments import Changes, Drawn, fragments, keys
from queries.views.console.guard import needs
from queries.views.console.paging import ARRIVALS, ROWS, asked_of, filters, page_of, topic

OUTCOMES = ("OPEN", *(outcome.value for outcome in RunOutcome if outcome.value))
JUST_ENDED = timedelta(minutes=1)
_FILTERS = {"query": "query__name", "application": "driver__application__name"}


@needs(VIEW)
def run_list(request: HttpRequest) -> HttpResponseBase:
    """List runs, newest first; all filters are in the URL."""
    asked = _asked(request.GET)
    now = timezone.now()
    page = page_of(_rows(asked), by="epoch", cursor=request.GET.get("after", ""))
    context = {
        "page": page,
        "runs": lasting(page.rows, now),
        "filters": asked,
        "filtered": any(asked.values()),
        "outcomes": OUTCOMES,
        "topic": topic("runs", asked),
        "now": now,
    }
    return render(request, "supervision/runs/list.html", context)


def _asked(given: Mapping[str, str]) -> dict[str, str]:
    return filters(given, _FILTERS, outcome=("", *OUTCOMES))


def _rows(asked: Mapping[str, str]) -> QuerySet[Run]:
    rows = runs().filter(**{_FILTERS[name]: asked[name] for name in _FILTERS if asked[name]})
    if asked["outcome"]:
        rows = rows.filter(outcome="" if asked["outcome"] == "OPEN" else asked["outcome"])
    return rows


def lasted(run: Run, now: datetime) -> float:
    """Return how long a run has lasted, in milliseconds."""
    return ((run.ended_at or now) - run.created_at).total_seconds() * 1000


def lasting(rows: list[Run], now: datetime) -> list[tuple[Run, float]]:
    """Return runs, each with how long it has lasted."""
    return [(run, lasted(run, now)) for run in rows]


@fragments("runs", hears=("query",))
def draw_runs(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the rows of changed runs, however they ended, and of runs begun since then."""
    asked = _asked(asked_of(key))
    if changes is None:
        there = _rows(asked)[:ROWS].values_list("pk", flat=True)
        lately = runs()[:ROWS].values_list("pk", flat=True)
        rows = runs().filter(pk__in={*there, *lately})
    else:
        moving = Q(ended_at=None) | Q(ended_at__gt=now - JUST_ENDED)  # the others do not change
        rows = runs().filter(moving, query__in=keys(changes, "query"))[:ROWS]
    for run, ms in lasting(list(rows), now):
        context = {"run": run, "ms": ms, "now": now}
        yield f"run-{run.pk}", render_to_string("supervision/runs/_row.html", context)
    context = {"runs": lasting(list(_rows(asked)[:ARRIVALS]), now), "now": now}
    yield "runs-arrived", render_to_string("supervision/runs/_arrived.html", context)


urlpatterns = [path("runs/", run_list, name="runs")]
