"""A query's Schedule tab: its next times, its planned runs, their trend, and its pause."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path

from queries.domain.errors import HeadgateError, Missing
from queries.domain.schedules.preview import preview
from queries.domain.schedules.states import PlannedState
from queries.models.schedules.planned import PlannedRun
from queries.roles import OPERATE, VIEW
from queries.selectors.definitions import definitions
from queries.selectors.schedules.planned import planned_runs, schedule_status
from queries.services.schedules import pauses
from queries.views.console.guard import by, needs
from queries.views.console.paging import page_of
from queries.views.console.wording import duration_words
from queries.views.supervision.query_page import head

#: Runs in the trend of durations.
_TREND = 40
#: Height and width of the picture, in the units of its view box.
_HIGH, _WIDE = 24, 200


@dataclass(frozen=True, slots=True)
class Bar:
    """One run in the trend of durations."""

    x: float
    y: float
    height: float
    kind: str  # "ok" or "failed", as for batches
    title: str


@needs(VIEW)
def schedule_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show the next times and the planned runs, newest first."""
    context = head(request, name, "query-schedule")
    query, now = context["query"], context["now"]
    try:
        context["status"] = status = schedule_status(query, now=now)
    except Missing:
        pass  # the planned runs of a schedule that was removed remain
    else:
        context |= {"shown": preview(status.schedule, now), "zone": status.schedule.time_zone}
    rows = planned_runs(query)
    context["page"] = page_of(rows, by="due_at", cursor=request.GET.get("after", ""))
    ended = rows.filter(started_at__isnull=False, ended_at__isnull=False)[:_TREND]
    context |= trend(list(reversed(ended)))
    return render(request, "schedules/planned.html", context)


def trend(runs: list[PlannedRun]) -> dict[str, Any]:
    """Return the bars and the sentence for the durations of ended runs, oldest first."""
    lengths = [(run, run.duration_s or 0.0) for run in runs]
    if not lengths:
        return {"bars": [], "trend": ""}
    most = max(length for _, length in lengths) or 1.0
    step = _WIDE / _TREND
    bars = []
    for place, (run, length) in enumerate(lengths):
        height = round(max(1.5, _HIGH * length / most), 1)
        kind = "failed" if run.state == PlannedState.FAILED else "ok"
        title = f"{run.due_at:%Y-%m-%d %H:%M} UTC: {duration_words(length * 1000)}"
        bars.append(Bar(round(place * step, 1), _HIGH - height, height, kind, title))
    middle = duration_words(1000 * median(length for _, length in lengths))
    last = duration_words(1000 * lengths[-1][1])
    said = f"The last run took {last}; half of the last {len(lengths)} took {middle} or less."
    return {"bars": bars, "trend": said if len(lengths) > 1 else f"The last run took {last}."}


@needs(OPERATE, "POST")
def pause(request: HttpRequest, name: str) -> HttpResponseBase:
    """Pause the query's schedule."""
    return _changed(request, name, paused=True)


@needs(OPERATE, "POST")
def resume(request: HttpRequest, name: str) -> HttpResponseBase:
    """Resume the query's schedule."""
    return _changed(request, name, paused=False)


def _changed(request: HttpRequest, name: str, *, paused: bool) -> HttpResponseBase:
    act = pauses.pause if paused else pauses.resume
    try:
        act(definitions.query(name), **by(request))
    except HeadgateError as error:
        messages.error(request, str(error))
    else:
        said = "is paused: its planned times are skipped" if paused else "goes on"
        messages.success(request, f"The schedule of {name} {said}.")
    return redirect("query-schedule", name)


urlpatterns = [
    path("queries/<query:name>/schedule/", schedule_tab, name="query-schedule"),
    path("queries/<query:name>/schedule/pause/", pause, name="query-schedule-pause"),
    path("queries/<query:name>/schedule/resume/", resume, name="query-schedule-resume"),
]
