"""All schedules, and that of a query or script: planned runs, the pause, and a form's preview."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from statistics import median
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import Schedule
from queries.domain.errors import Invalid, Missing
from queries.domain.schedules.checks import listing_cost, preview, schedule_problems, when_words
from queries.domain.schedules.planning import SKIPPED_WORDS, PlannedState, SkipReason
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.schedules import PlannedRun
from queries.roles import OPERATE, VIEW
from queries.selectors.definitions import definitions
from queries.selectors.schedules import (
    HOURS,
    ScheduleLine,
    Usage,
    list_position,
    planned_runs,
    schedule_lines,
    schedule_status,
)
from queries.selectors.supervision.applications import application
from queries.services.schedules import pauses
from queries.views.console.errors import answered
from queries.views.console.fragments import ROWS, page_of, whole
from queries.views.console.shell import actor_and_now, needs
from queries.views.console.wording import duration_words
from queries.views.definitions.spec_form import sentence
from queries.views.supervision.query_page import head

#: Runs in the trend of durations.
_TREND = 40
#: Planned runs of each schedule on the page of all schedules; its own page has all of them.
_NEWEST = 10
#: Hours that the page of all schedules can look back.
_WINDOWS = (6, 12, 24, 48, 168)
#: Seconds of runs from which they are set beside a stream that is always on.
_A_DAY = 86_400
#: Height and width of the picture, in the units of its view box.
_HIGH, _WIDE = 24, 200


@dataclass(frozen=True, slots=True)
class DurationBar:
    """One run in the trend of durations."""

    x: float
    y: float
    height: float
    kind: str  # "ok" or "failed", as for batches
    title: str


@needs(VIEW)
def schedule_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show the next times and the planned runs of a query, newest first."""
    context = head(request, name, "query-schedule")
    context |= _shown(request, context["query"], context["now"])
    return render(request, "schedules/query.html", context)


@needs(VIEW)
def script_schedule(request: HttpRequest, name: str) -> HttpResponse:
    """Show the next times and the planned runs of a script, newest first."""
    row = application(name)
    context = {"application": row, **_shown(request, row, timezone.now())}
    return render(request, "schedules/script.html", context)


def _shown(request: HttpRequest, owner: Query | Application, now: datetime) -> dict[str, Any]:
    rows = planned_runs(owner)
    ended = rows.filter(started_at__isnull=False, ended_at__isnull=False)[:_TREND]
    context: dict[str, Any] = {
        "owner": owner,
        "now": now,
        "page": page_of(rows, by="due_at", cursor=request.GET.get("after", "")),
        **trend(list(reversed(ended))),
    }
    kind = "query" if isinstance(owner, Query) else "application"
    for act in ("pause", "resume"):
        context[act] = reverse(f"{kind}-schedule-{act}", args=[owner.name])
    try:
        context["status"] = status = schedule_status(owner, now=now)
    except Missing:
        return context  # the planned runs of a schedule that was removed remain
    schedule = status.schedule
    context |= {"zone": schedule.time_zone, "usage": usage_words(status.usage)}
    if schedule.kind == "cron":
        context["shown"] = preview(schedule, now)
    elif schedule.kind == "files":
        context["cost"] = listing_cost(schedule)
    return context


def usage_words(usage: Usage) -> str:
    """Compare the runs' duration with an always-on stream; "" without a day of runs."""
    if not usage.runs or not usage.ran_s or usage.period_s < _A_DAY:
        return ""
    ran, period = duration_words(1000 * usage.ran_s), duration_words(1000 * usage.period_s)
    return (
        f"{usage.runs:,} {'run' if usage.runs == 1 else 'runs'} took {ran} in all. A stream that is"
        f" always on would have run {period}, {usage.period_s / usage.ran_s:,.0f} times as long."
    )


def trend(runs: list[PlannedRun]) -> dict[str, Any]:
    """Return the bars and the sentence for the durations of ended runs, oldest first."""
    lengths = [(run, run.duration_s or 0.0) for run in runs]
    if not lengths:
        return {"bars": [], "trend": ""}
    most = max(length for _, length in lengths) or 1.0
    step = _WIDE / _TREND
    bars = []
    for index, (run, length) in enumerate(lengths):
        height = round(max(1.5, _HIGH * length / most), 1)
        kind = "failed" if run.state == PlannedState.FAILED else "ok"
        title = f"{run.due_at:%Y-%m-%d %H:%M} UTC: {duration_words(length * 1000)}"
        bars.append(DurationBar(round(index * step, 1), _HIGH - height, height, kind, title))
    middle = duration_words(1000 * median(length for _, length in lengths))
    last = duration_words(1000 * lengths[-1][1])
    sentence = f"The last run took {last}; half of the last {len(lengths)} took {middle} or less."
    return {"bars": bars, "trend": sentence if len(lengths) > 1 else f"The last run took {last}."}


def _change(kind: str, *, paused: bool) -> Callable[..., HttpResponseBase]:
    """Return the view that pauses or resumes the schedule of a query, or of an application."""
    find = definitions.query if kind == "query" else application
    act = pauses.pause if paused else pauses.resume
    phrase = "is paused: its planned times are skipped" if paused else "goes on"

    @needs(OPERATE, "POST")
    def change(request: HttpRequest, name: str) -> HttpResponseBase:
        change_schedule = partial(act, find(name), **actor_and_now(request))
        back = reverse(f"{kind}-schedule", args=[name])
        return answered(request, change_schedule, f"The schedule of {name} {phrase}.", back)

    return change


@needs(VIEW)
def schedule_list(request: HttpRequest) -> HttpResponse:
    """Show the recent activity of every schedule: runs, delays, and skips with their reasons."""
    now = timezone.now()
    requested_hours = whole(request.GET.get("hours", "")) or HOURS
    hours = requested_hours if requested_hours in _WINDOWS else HOURS
    application = request.GET.get("application", "").strip().replace("\x00", "")
    name, _, number = request.GET.get("after", "").replace("\x00", "").rpartition("~")
    position = (name, whole(number) or 0) if name else None
    lines = schedule_lines(
        now=now,
        hours=hours,
        application=application,
        after=position,
        limit=ROWS + 1,
        newest=_NEWEST,
    )
    following = "{}~{}".format(*list_position(lines[ROWS - 1])) if len(lines) > ROWS else ""
    context = {
        "lines": [Listed(line) for line in lines[:ROWS]],
        "page": {"first": position is None, "next": following},
        "hours": hours,
        "windows": _WINDOWS,
        "application": application,
        "since": now - timedelta(hours=hours),
        "now": now,
    }
    return render(request, "schedules/list.html", context)


@dataclass(frozen=True, slots=True)
class Listed:
    """One schedule on the page of all schedules."""

    line: ScheduleLine

    @property
    def address(self) -> str:
        """Return the address of its own page."""
        kind = "query" if self.line.starts == "query" else "application"
        return reverse(f"{kind}-schedule", args=[self.line.name])

    @property
    def skips(self) -> list[tuple[str, int, str]]:
        """Return the reasons for which times were skipped: name, times, sentence; most first."""
        ordered = sorted(self.line.tally.skipped.items(), key=lambda pair: -pair[1])
        return [
            (why, times, SKIPPED_WORDS[SkipReason(why)] if why in set(SkipReason) else "")
            for why, times in ordered
        ]

    @property
    def more(self) -> bool:
        """Return whether the window has planned times that are not listed."""
        listed = sum(ran.planned.due_times for ran in self.line.newest)
        return self.line.tally.due > listed


_QUERY, _APPLICATION = "queries/<query:name>/schedule/", "applications/<str:name>/schedule/"
urlpatterns = [
    path("schedules/", schedule_list, name="schedules"),
    path(_QUERY, schedule_tab, name="query-schedule"),
    path(f"{_QUERY}pause/", _change("query", paused=True), name="query-schedule-pause"),
    path(f"{_QUERY}resume/", _change("query", paused=False), name="query-schedule-resume"),
    path(_APPLICATION, script_schedule, name="application-schedule"),
    path(
        f"{_APPLICATION}pause/",
        _change("application", paused=True),
        name="application-schedule-pause",
    ),
    path(
        f"{_APPLICATION}resume/",
        _change("application", paused=False),
        name="application-schedule-resume",
    ),
]


_PREFIX = "schedule_"


@needs(VIEW)
def schedule_preview(request: HttpRequest) -> HttpResponse:
    """Return the next five times of the form's schedule, or a description of what is wrong.

    Nothing is returned while nothing in the form starts it.
    """
    raw = {
        name: text
        for name in Schedule.model_fields
        if name != "params" and (text := request.GET.get(_PREFIX + name, "").strip())
    }
    if not raw.keys() & {"cron", "after", "files"}:
        return HttpResponse()
    try:
        schedule: Schedule = parsed(Schedule.model_validate, raw)
        if problems := schedule_problems(schedule, ends=True):
            raise Invalid(problems)
    except Invalid as error:
        wrong = (sentence(problem, problem.field.rpartition(".")[2]) for problem in error.problems)
        return render(request, "schedules/_times.html", {"problem": " ".join(wrong)})
    if schedule.kind != "cron":
        cost = listing_cost(schedule) if schedule.kind == "files" else ""
        summary = f"It starts {when_words(schedule)}."
        return render(request, "schedules/_times.html", {"said": f"{summary} {cost}".strip()})
    shown = preview(schedule, timezone.now())
    return render(request, "schedules/_times.html", {"shown": shown, "zone": schedule.time_zone})


urlpatterns += [path("schedule/preview/", schedule_preview, name="schedule-preview")]
