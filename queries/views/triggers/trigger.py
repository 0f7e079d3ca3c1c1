"""A query's trigger: what its batches cost, what another trigger would gain, and its limits.

Also which queries of an application wait for others, and the pools that would fix that.
"""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone

from queries.domain.errors import Conflict
from queries.domain.triggers.advice import Suggestion, TriggerAdvice
from queries.domain.triggers.interval_model import Expected, expected, words
from queries.roles import DEFINE, OPERATE, VIEW
from queries.selectors.query_lines import query_line
from queries.selectors.supervision.applications import application_detail
from queries.selectors.triggers.advice import QueryAdvice, query_advice
from queries.selectors.triggers.slow_batches import slow_batches
from queries.selectors.triggers.thread_dumps import thread_dumps
from queries.selectors.triggers.waiting import DEFAULT_RANGE, RANGES, waits
from queries.services.definitions import catalog
from queries.services.probes.record_search import records_can_be_read
from queries.services.triggers.thread_dumps import request_dump
from queries.views.console.guard import actor_and_now, author, needs
from queries.views.console.numbers import whole
from queries.views.supervision.query_page import head

#: The table's intervals, in ms; the query's own is added.
TABLE_MS = (100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0)


@needs(VIEW)
def trigger_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show the query's trade-off between latency and throughput, and its possible triggers."""
    context = head(request, name, "query-trigger")
    advised = query_advice(context["line"])
    context |= {"found": advised, "advice": advised.advice if advised else None}
    context["slow"] = slow_batches(context["query"].pk, now=timezone.now())
    context["records_can_be_read"] = records_can_be_read(context["query"])
    context["dumps"] = thread_dumps(context["query"], now=timezone.now())
    if advised:
        context |= _figures(advised.advice)
    return render(request, "triggers/trigger.html", context)


@needs(DEFINE, "POST")
def trigger_change(request: HttpRequest, name: str) -> HttpResponseBase:
    """Save the revision described by a suggestion; it takes effect at the next restart."""
    line = query_line(name, now=timezone.now())
    advised = query_advice(line)
    chosen = suggestion(advised, request.POST.get("suggestion", ""))
    revision = catalog.revise_query(
        query=line.query, spec=chosen.spec, expected_revision=_revision(request), **author(request)
    )
    messages.success(
        request,
        f"Revision {revision.number} was saved: {chosen.title[0].lower()}{chosen.title[1:]}. "
        "It takes effect at the next restart.",
    )
    return redirect("query-trigger", name)


@needs(OPERATE, "POST")
def dump(request: HttpRequest, name: str) -> HttpResponseBase:
    """Have the query's driver take a thread dump."""
    query = query_line(name, now=timezone.now()).query
    request_dump(query=query, **actor_and_now(request))
    messages.success(request, "Thread dump requested. The driver takes it with its next heartbeat.")
    return redirect("query-trigger", name)


def suggestion(advised: QueryAdvice | None, choice: str) -> Suggestion:
    """Return the suggestion that a form chose; raise `Conflict` if it is no longer offered."""
    offered = advised.advice.suggestions if advised else ()
    for option in offered:
        if option.choice == choice:
            return option
    raise Conflict(
        "The advice has changed because of newer batches.",
        way_out="Review it and choose again.",
    )


def drawn(advice: TriggerAdvice) -> dict[str, Any]:
    """Return the curve's columns for the chart: milliseconds, and rows per second."""
    columns = {"interval": "interval_ms", "latency": "latency_ms", "low": "low_ms"}
    columns |= {"high": "high_ms", "throughput": "throughput"}
    drawn = {key: [getattr(point, of) for point in advice.curve] for key, of in columns.items()}
    return drawn | {"now": advice.now.interval_ms if advice.now else None}


def _figures(advice: TriggerAdvice) -> dict[str, Any]:
    """Return the page's figures and charts for a known cost; otherwise nothing."""
    cost = advice.cost
    if cost is None:
        return {}
    low, high = cost.band(0)
    per_row = [line.per_row_ms * 1000 for line in (cost.line, *cost.edges)]
    return {
        "curve": drawn(advice),
        "table": _table(advice),
        "per_thousand": cost.line.per_row_ms * 1000,
        "fixed_band": f"{words(low)} – {words(high)}",
        "row_band": f"{words(min(per_row))} – {words(max(per_row))}",
    }


def _table(advice: TriggerAdvice) -> list[tuple[Expected, bool]]:
    """Return the model's prediction for some intervals, and mark the query's own interval."""
    if advice.cost is None or advice.now is None or advice.rate is None:
        return []
    own = advice.now.interval_ms
    return [
        (expected(advice.cost, advice.rate, interval), interval == own)
        for interval in sorted({*TABLE_MS, own})
    ]


def _revision(request: HttpRequest) -> int | None:
    number = request.POST.get("revision", "")
    return whole(number)


@needs(VIEW)
def waiting(request: HttpRequest, name: str) -> HttpResponse:
    """Show each query's share of an application's cores, and the queries for which it waited."""
    range_name = request.GET.get("range", DEFAULT_RANGE)
    chosen = range_name if range_name in RANGES else DEFAULT_RANGE
    detail = application_detail(name)
    shares, starved = waits(detail, now=timezone.now(), span=chosen)
    context = {
        "application": detail.application,
        "range": chosen,
        "ranges": list(RANGES),
        "shares": shares,
        "starved": starved,
    }
    return render(request, "triggers/waiting.html", context)


urlpatterns = [
    path("queries/<query:name>/trigger/", trigger_tab, name="query-trigger"),
    path("queries/<query:name>/trigger/dump/", dump, name="query-trigger-dump"),
    path("queries/<query:name>/trigger/change/", trigger_change, name="query-trigger-change"),
    path("applications/<str:name>/waiting/", waiting, name="application-waiting"),
]
