"""A query's page: its head, and the tabs Live, Runs, Failures, Definition, Log, Activity."""

import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from headgate_ground.masking import mask
from headgate_ground.tolerant import total
from listeners import selectors as heard
from queries.domain import async_calls
from queries.domain.definitions.spec import ENDING_TRIGGERS
from queries.domain.states import FAILED_PHASES, GroupStatus, Verb
from queries.roles import VIEW
from queries.selectors import visible
from queries.selectors.console import names_of, outcomes
from queries.selectors.definitions.definitions import revisions_of
from queries.selectors.failures.failures import failure_groups, failures_of
from queries.selectors.manifests import owned
from queries.selectors.probes import change_of, sentences
from queries.selectors.query_lines import QueryLine, query_line
from queries.selectors.supervision.history import operations, outcomes_by_day, runs_of, transitions
from queries.selectors.triggers.advice import trigger_note
from queries.selectors.triggers.replays import exposure
from queries.views.console.fragments import Changes, Drawn, fragments, page_of, whole
from queries.views.console.shell import needs
from queries.views.definitions.reviews import changes as differences
from queries.views.definitions.reviews import readable
from queries.views.next_steps import offers
from queries.views.supervision import actions
from queries.views.supervision.charts import DEFAULT_RANGE, RANGES, columns, span
from queries.views.supervision.charts import urlpatterns as chart_urls
from queries.views.supervision.operations import way
from queries.views.supervision.query_list import row_of
from queries.views.supervision.run_list import calendar, counted, jobs, lasting

#: A live message contains the last minute; a viewer that has missed more asks again.
LIVE_TAIL = timedelta(seconds=60)
#: Who looks in the morning still learns of the night.
_NEWS_FOR = timedelta(days=1)


@needs(VIEW)
def live_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show the query's current activity and its charts."""
    chosen = request.GET.get("range", DEFAULT_RANGE)
    context = head(request, name, "query")
    since, until = span(request, context["now"])
    context["range"] = chosen if chosen in RANGES else DEFAULT_RANGE
    context["asked"] = urlencode({"range": context["range"]})
    if until is not None:  # a shared URL always shows the same time range
        context |= {"range": "", "since": since, "until": until}
        context["asked"] = urlencode({"since": since.isoformat(), "until": until.isoformat()})
    context["ranges"] = list(RANGES)
    failure = context["failure"]
    if failure is not None and not visible.runs().filter(
        query=context["query"], first_commit_at__isnull=False
    ):
        context |= {"never_committed": True, "offers": offers(request, failure, None)}
    context["exposure"] = exposure(context["query"], now=context["now"])
    return render(request, "supervision/queries/live.html", context)


@needs(VIEW)
def runs_tab(request: HttpRequest, name: str) -> HttpResponse:
    """List the query's runs, newest first."""
    context = head(request, name, "query-runs")
    page = page_of(runs_of(context["query"]), by="epoch", cursor=request.GET.get("after", ""))
    context |= {"page": page, "runs": lasting(page.rows, context["now"])}
    if context["line"].trigger.get("kind") in ENDING_TRIGGERS:
        outcomes = outcomes_by_day(context["query"], now=context["now"])
        context |= {
            "jobs": jobs(page.rows, context["now"]),
            "days": calendar(outcomes, context["now"]),
            "counted": counted(sum(outcomes.values(), Counter())),
        }
    return render(request, "supervision/queries/runs.html", context)


@needs(VIEW)
def failures_tab(request: HttpRequest, name: str) -> HttpResponse:
    """List the query's failures, in groups and individually."""
    context = head(request, name, "query-failures")
    context["groups"] = failure_groups(query=name)[:20]
    context["page"] = page_of(
        failures_of(context["query"]), by="at", cursor=request.GET.get("after", "")
    )
    return render(request, "failures/of_query.html", context)


@needs(VIEW)
def definition_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show a revision, its changes, and all other revisions."""
    context = head(request, name, "query-definition")
    revisions = list(revisions_of(context["query"]))
    number = request.GET.get("revision", "")
    shown = next(
        (revision for revision in revisions if str(revision.number) == number), revisions[0]
    )
    against = request.GET.get("against", "")
    before = next((revision for revision in revisions if str(revision.number) == against), None)
    if before is None:
        before = next((revision for revision in revisions if revision.number < shown.number), None)
    spec = mask(shown.spec)
    change = change_of(context["query"], shown.spec, shown.state, shown.state_by)
    context |= {
        "revisions": revisions,
        "shown": shown,
        "state_change": sentences(change) if change and shown == revisions[0] else [],
        "owned": owned(context["query"]),
        "before": before,
        "sql": _colours(spec["sql"], "sql") if spec.get("sql") else "",
        "rest": _colours(readable({k: v for k, v in spec.items() if k != "sql"}), "yaml"),
        "lines": differences(mask(before.spec), spec) if before else [],
    }
    return render(request, "definitions/of_query.html", context)


def _colours(text: str, language: str) -> SafeString:
    """Return code as HTML spans with the stylesheet's classes; Pygments escapes the text."""
    formatter = HtmlFormatter(nowrap=True)
    return SafeString(highlight(text, get_lexer_by_name(language), formatter))


@needs(VIEW)
def activity_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show requests for the query and its changes, newest first."""
    context = head(request, name, "query-activity")
    context["operations"] = operations().filter(query=context["query"])[:10]
    changes = transitions(query=context["query"])
    context["page"] = page_of(changes, by="at", cursor=request.GET.get("after", ""))
    return render(request, "supervision/queries/activity.html", context)


def head(request: HttpRequest, name: str, tab: str) -> dict[str, Any]:
    """Return the context for the head and the tabs, regardless of which tab is open."""
    now = timezone.now()
    line = query_line(name, now=now)
    return {
        **_state(line, now),
        "tabs": _tabs(line, tab),
        "curls": _curls(request, name)[: 1 if line.query.discovered else None],
        "start_says": " ".join(actions.of(Verb.START, line, [])),
    }


def _state(line: QueryLine, now: datetime) -> dict[str, Any]:
    """Return the context for the page's live fragments."""
    row = row_of(line, outcomes(bar.run for bar in line.bars))
    newest = operations().filter(query=line.query).first()
    return {
        "now": now,
        "line": line,
        "query": line.query,
        "row": row,
        "way": way(newest, line, now),
        "extra": _extra(line),
        "failure": failures_of(line.query).first() if line.phase in FAILED_PHASES else None,
        "trigger_note": trigger_note(line),
        "standby_at": _took_over(line, now),
    }


def _took_over(line: QueryLine, now: datetime) -> datetime | None:
    """Return when the query's driver took over as a standby, if that is news."""
    at = line.driver.took_over_at if line.driver else None
    return at if at is not None and now - at < _NEWS_FOR else None


def _extra(line: QueryLine) -> dict[str, Any]:
    """Return the newest batch's watermark delay (seconds) and number of state rows."""
    rows = heard.progress_page(line.query.pk, limit=1)
    progress = rows[0]["progress"] if rows and line.progress else {}
    operators = progress.get("stateOperators")
    delay = None
    if line.progress and line.progress.watermark and line.progress.watermark.timestamp() > 0:
        delay = (line.progress.timestamp - line.progress.watermark).total_seconds()
    return {
        "watermark_delay_ms": None if delay is None else delay * 1000,
        "state_rows": total(operators, "numRowsTotal"),
        "state_bytes": total(operators, "memoryUsedBytes"),
        "async_failing": async_calls.failing(progress),
    }


_TABS = (
    ("Live", "query"),
    ("Runs", "query-runs"),
    ("Schedule", "query-schedule"),
    ("Failures", "query-failures"),
    ("Lag", "query-lag"),
    ("Async", "query-async"),
    ("Checkpoint", "query-checkpoint"),
    ("Trigger", "query-trigger"),
    ("Definition", "query-definition"),
    ("Lineage", "query-lineage"),
    ("Log", "query-log"),
    ("Activity", "query-activity"),
)


def _tabs(line: QueryLine, open_tab: str) -> list[dict[str, Any]]:
    counted = {
        "query-runs": runs_of(line.query).count(),
        "query-failures": failure_groups(query=line.query.name, status=GroupStatus.OPEN).count(),
    }
    # Only queries that report async operators, or have a schedule, have something to show there.
    spec = line.newest.spec if line.newest else {}
    without = {"query-async"} if open_tab != "query-async" and not async_names(line) else set()
    if open_tab != "query-schedule" and not spec.get("schedule"):
        without.add("query-schedule")
    return [
        {
            "label": label,
            "href": reverse(address, args=[line.query.name]),
            "active": address == open_tab,
            "count": counted.get(address, 0),
        }
        for label, address in _TABS
        if address not in without
    ]


def async_names(line: QueryLine) -> list[str]:
    """Return the names of the async operators that the query's newest progress reports."""
    newest = heard.latest([line.query.pk]).get(line.query.pk)
    return async_calls.named(newest.progress if newest else None)


def _curls(request: HttpRequest, name: str) -> list[tuple[str, str]]:
    base = request.build_absolute_uri(reverse("api:query", args=[name]))
    token = '-H "Authorization: Token $HEADGATE_TOKEN"'
    return [
        ("Read it", f"curl -s {token} {base}"),
        ("Start it", f"curl -s -X POST {token} {base}start/"),
        (
            "Stop it",
            f"curl -s -X POST {token} -H 'Content-Type: application/json' "
            f"-d '{json.dumps({'mode': 'graceful'})}' {base}stop/",
        ),
        ("Restart it", f"curl -s -X POST {token} {base}restart/"),
    ]


@fragments("query", hears=("query", "driver", "operation"), own_key_only=("query",))
def draw_query(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the head and the numbers of one query, and its newest batches for the charts."""
    number = whole(key)
    name = names_of([number]).get(number) if number is not None else None
    if number is None or name is None:
        return
    context = _state(query_line(name, now=now), now)
    yield f"head-{key}", render_to_string("supervision/queries/_head.html", context)
    yield f"figures-{key}", render_to_string("supervision/queries/_figures.html", context)
    progress = context["line"].progress
    if progress:
        since = min(now - LIVE_TAIL, progress.timestamp - timedelta(seconds=1))
        batch_series = heard.series(number, since=since, until=now + timedelta(seconds=5))
        yield f"batches-{key}", json.dumps(columns(batch_series))


urlpatterns = [
    *chart_urls,
    path("queries/<query:name>/", live_tab, name="query"),
    path("queries/<query:name>/runs/", runs_tab, name="query-runs"),
    path("queries/<query:name>/failures/", failures_tab, name="query-failures"),
    path("queries/<query:name>/definition/", definition_tab, name="query-definition"),
    path("queries/<query:name>/activity/", activity_tab, name="query-activity"),
]
