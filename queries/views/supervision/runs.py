"""A run's page: one start of a query in a driver: its reason, activity and end."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone

from listeners import selectors as heard
from queries.domain.code import references
from queries.domain.code.archives import origin
from queries.models.drivers import Run
from queries.roles import VIEW
from queries.selectors.supervision.history import (
    EdgeBatch,
    RunDetail,
    edge_batches,
    run_with_neighbours,
    runs,
)
from queries.views.console.fragments import Changes, Drawn, fragments, keys, parts, whole
from queries.views.console.shell import needs
from queries.views.console.wording import duration_words, offset_text
from queries.views.supervision.charts import columns
from queries.views.supervision.query_page import LIVE_TAIL
from queries.views.supervision.run_list import lasted, param_text
from queries.views.supervision.run_list import urlpatterns as list_urls


@needs(VIEW)
def run_page(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """Show one run: why and by which user it was started, its states, charts and end."""
    context = _context(run_with_neighbours(run_id=run_id), timezone.now())
    return render(request, "supervision/runs/run.html", context)


def _context(detail: RunDetail, now: datetime) -> dict[str, Any]:
    return {
        "detail": detail,
        "run": detail.run,
        "driver": detail.run.driver,
        "lane": lane(detail.run, now),
        "lasted": lasted(detail.run, now),
        "edges": _edges(detail.run.pk),
        "summary": detail.summary,
        "facts": _facts(detail),
        "now": now,
    }


@needs(VIEW)
def run_series(request: HttpRequest, run_id: int) -> HttpResponseBase:
    """Return the columns of a run's charts, from its start to its end."""
    run = run_with_neighbours(run_id=run_id).run
    since, until = run.started_at or run.created_at, run.ended_at or timezone.now()
    chart_columns = columns(heard.series(run.query_id, since=since, until=until))
    return JsonResponse({"since": since.timestamp(), "until": until.timestamp(), **chart_columns})


_PARTS = ("state", "lead", "notes", "lane", "about", "edges", "end", "history")


@fragments("run", hears=("query", "driver"))
def draw_run(key: str, changes: Changes, now: datetime) -> Drawn:
    """Render the parts of a run's page that change, and its newest batches while it is open."""
    run = runs().filter(pk=whole(key) or 0).first()
    if run is None or not _concerns(run, changes):
        return
    context = _context(run_with_neighbours(run_id=run.pk), now)
    yield from parts(_PARTS, "run", "supervision/runs", key, context)
    if run.ended_at is None or now - run.ended_at < LIVE_TAIL:
        since = max(run.started_at or run.created_at, now - LIVE_TAIL)
        until = run.ended_at or now + timedelta(seconds=5)
        yield (
            f"batches-of-run-{key}",
            json.dumps(columns(heard.series(run.query_id, since=since, until=until))),
        )


def _concerns(run: Run, changes: Changes) -> bool:
    """Return whether a message is about this run's query or its driver."""
    if changes is None or run.query_id in keys(changes, "query"):
        return True
    return run.driver_id in keys(changes, "driver")


@dataclass(frozen=True, slots=True)
class RunStretch:
    """The time that a run spent in one state, as part of a picture 1000 units wide."""

    label: str
    tone: str
    ms: float
    x: float
    width: float


def lane(run: Run, now: datetime) -> list[RunStretch]:
    """Return a run's time in each state, in order, omitting states that it was never in."""
    end = run.ended_at or now
    marks: list[tuple[str, str, datetime | None]] = [
        ("waiting for its driver", "calm", run.created_at),
        ("starting", "busy", run.started_at),
        ("running", "ok", run.proven_at or run.first_commit_at),
        ("stopping", "warn", run.stop_asked_at),
    ]
    reached_marks = [(label, tone, at) for label, tone, at in marks if at is not None and at <= end]
    whole = max((end - run.created_at).total_seconds(), 0.001)
    stretches = []
    x = 0.0
    for index, (label, tone, at) in enumerate(reached_marks):
        until = reached_marks[index + 1][2] if index + 1 < len(reached_marks) else end
        spent = max((until - at).total_seconds(), 0.0)
        width = 1000 * spent / whole
        stretches.append(RunStretch(label, tone, spent * 1000, round(x, 2), round(width, 2)))
        x += width
    return stretches


def _edges(run_id: int) -> list[tuple[EdgeBatch, list[tuple[str, str, str]]]]:
    """Return a run's first and last batch, each with (source, from, to) as strings."""
    return [
        (edge, [(name, offset_text(start), offset_text(end)) for name, start, end in edge.sources])
        for edge in edge_batches(run_id) or ()
    ]


def _facts(detail: RunDetail) -> list[tuple[str, Any]]:
    run, driver, summary = detail.run, detail.run.driver, detail.summary or {}
    took = run.first_commit_at and (run.first_commit_at - run.created_at).total_seconds() * 1000
    return [
        ("Batches", f"{summary['batches']:,}" if summary else "none stored"),
        ("Rows", f"{summary.get('rows') or 0:,}" if summary else ""),
        ("Rows written", "" if detail.written is None else f"{detail.written:,}"),
        ("Repaired batches", f"{summary['repaired']:,}" if summary.get("repaired") else ""),
        ("Parameters", param_text(run)),
        ("Time to first commit", duration_words(took) if took else ""),
        ("Host", driver.host),
        ("Spark", driver.spark_version),
        ("Java", driver.java_version),
        ("Code", run.code_sha256[:12] or "none"),
        ("Code from", origin(driver.application_revision.spec)),
        ("Packages", _packages(driver.application_revision.spec)),
        ("Spark run ID", run.spark_run_id or ""),
    ]


def _packages(spec: dict[str, Any]) -> str:
    return ", ".join(references.read(spec.get("packages", "")).lines)


urlpatterns = [
    *list_urls,
    path("runs/<int:run_id>/", run_page, name="run"),
    path("runs/<int:run_id>/series/", run_series, name="run-series"),
]
