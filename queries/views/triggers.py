"""A query's trigger: batch costs, gains of other triggers; async progress, async calls.

Also which queries of an application wait for others, and the pools that would fix that.
"""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.async_calls import FAILING, AsyncOperator, Bound, OperatorAdvice
from queries.domain.errors import Conflict
from queries.domain.states import Desired, Verb
from queries.domain.triggers.advice import Suggestion, TriggerAdvice
from queries.domain.triggers.async_progress import tracking
from queries.domain.triggers.batch_cost import Expected, expected, words
from queries.models.definitions import Query
from queries.roles import DEFINE, OPERATE, VIEW
from queries.selectors import visible
from queries.selectors.query_lines import QueryLine, query_line
from queries.selectors.supervision.applications import application_detail
from queries.selectors.triggers.advice import (
    QueryAdvice,
    async_operators,
    query_advice,
    slow_batches,
    thread_dumps,
)
from queries.selectors.triggers.cores import DEFAULT_RANGE, RANGES, waits
from queries.selectors.triggers.replays import exposure
from queries.services.definitions import catalog
from queries.services.probes.inspections import records_can_be_read
from queries.services.triggers import BATCHES, request_async_off, request_dump
from queries.views.console.fragments import Changes, Drawn, fragments, whole
from queries.views.console.shell import (
    actor_and_now,
    author,
    needs,
    next_address,
    redirect_with_message,
)
from queries.views.supervision import actions, operations
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
    """Return the suggestion chosen in a form; raise `Conflict` if it is no longer offered."""
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
    number_text = request.POST.get("revision", "")
    return whole(number_text)


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


operations.CANCEL_LEAVES[Verb.ASYNC_OFF] = (
    "The definition is restored as a new revision.",
    "If the query was running, it restarts on that revision. If it was stopped or had failed "
    "on the gap, it stays stopped.",
)


def exposure_context(query: Query, now: datetime) -> dict[str, Any]:
    """Return the context for the panel; `exposure` is None if async progress tracking is off."""
    return {"query": query, "exposure": exposure(query, now=now), "now": now}


@fragments("exposure", hears=("query",), own_key_only=("query",))
def draw_exposure(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the replay of a query after a crash now."""
    query = visible.queries().filter(pk=whole(key) or 0, archived_at=None).first()
    if query is None:
        return
    context = exposure_context(query, now)
    if context["exposure"] is not None:
        yield f"exposure-{key}", render_to_string("triggers/_exposure.html", context)


@needs(DEFINE, "GET", "POST")
def async_off(request: HttpRequest, name: str) -> HttpResponseBase:
    """Explain how it is turned off safely; start this on POST."""
    line = query_line(name, now=timezone.now())
    back = next_address(request, reverse("query", args=[name]))
    if request.method == "GET":
        return render(request, "supervision/queries/confirm.html", _confirmation(line, back))
    operation = request_async_off(query=line.query, **author(request))
    text = f"Async progress tracking of {name} is being switched off."
    return redirect_with_message(request, text, reverse("operation", args=[operation.uuid]))


def _confirmation(line: QueryLine, back: str) -> dict[str, Any]:
    name = line.query.name
    return {
        "line": line,
        "verb": "switch off",
        "what": f"Switch async progress tracking off for {name}?",
        "consequences": _consequences(line),
        "action": reverse("query-async-off", args=[name]),
        "button": "Switch it off",
        "back": back,
    }


def _consequences(line: QueryLine) -> list[str]:
    on = tracking(line.newest.spec) is not None if line.newest else False
    first = "restarts" if line.query.desired == Desired.RUNNING else "starts"
    sentences = [
        f"It {first} with async progress tracking {'kept' if on else 'switched'} on and the "
        f"offsets of every batch saved, until {BATCHES} batches have committed. This requires "
        "new data from its sources.",
        "It stops after the batch in flight, and the offset log is checked on disk. Only then is "
        "a revision without async progress tracking saved.",
        "Then it starts again."
        if line.query.desired == Desired.RUNNING
        else "Then it stays stopped.",
        "Each step is shown and survives a worker restart. You can cancel before the last "
        "step; this restores the definition.",
    ]
    others = actions.neighbours(line)
    if others:
        named = ", ".join(others)
        sentences.append(
            f"Other queries of {line.query.application.name} are not affected: {named}."
        )
    return sentences


urlpatterns += [path("queries/<query:name>/async-off/", async_off, name="query-async-off")]


@needs(VIEW)
def async_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show a query's async operators, with figures and advice."""
    context = head(request, name, "query-async")
    context["operators"] = [
        _shown(operator, advice) for operator, advice in async_operators(context["query"].pk)
    ]
    return render(request, "async_calls/async.html", context)


@fragments("async", hears=("query",), own_key_only=("query",))
def draw_async(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw one query's operators."""
    query = visible.queries().filter(pk=whole(key) or 0, archived_at=None).first()
    operators = async_operators(query.pk) if query else []
    if operators:
        shown = [_shown(operator, advice) for operator, advice in operators]
        context = {"query": query, "operators": shown, "now": now}
        yield f"async-{key}", render_to_string("async_calls/_async.html", context)


#: Amber if action is needed, neutral if it only states a limit.
_TONES = {Bound.REMOTE: "warn", Bound.CPU: "warn", Bound.SOURCE: "ok"}
_BOUND_WORDS = {
    Bound.LIMIT: "another row was waiting because of the limit",
    Bound.KEYS: "all available rows were waiting for their key",
    Bound.SOURCE: "no more rows were available",
}


def _shown(operator: AsyncOperator, advice: OperatorAdvice) -> dict[str, Any]:
    """Return the template's context for an operator."""
    return {
        "operator": operator,
        "advice": advice,
        "tone": _TONES.get(advice.bound, "calm"),
        "failing": operator.failed >= FAILING,
        "failed": f"{operator.failed:.1%}",
        "cpu": f"{operator.cpu:.0%}",
        "keys": f"{operator.keys:,.0f}",
        "found": [
            (words, f"{operator.delay_shares[bound]:.0%}") for bound, words in _BOUND_WORDS.items()
        ],
    }


urlpatterns += [path("queries/<query:name>/async/", async_tab, name="query-async")]
