"""A query's sources: lag, retention deadlines, losses, and continuing after a loss."""

from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.defaultfilters import filesizeformat
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.checkpoints.batches import UNCOUNTED
from queries.domain.errors import HeadgateError
from queries.domain.kafka.lag import SKEW_RULE
from queries.domain.kafka.retention import span
from queries.domain.readings import counted
from queries.domain.states import LossKind, Verb
from queries.models.definitions import Query
from queries.roles import OPERATE, VIEW
from queries.selectors import visible
from queries.selectors.checkpoints import uncounted_batches
from queries.selectors.kafka.lag import TopicLag, lag_of, loss, loss_totals, losses, records_in
from queries.selectors.query_lines import QueryLine, query_line
from queries.services.checkpoints.preview import on_go_on
from queries.services.kafka.go_on_after_loss import go_on
from queries.services.kafka.loss_corrections import correct
from queries.services.tables import look_if_old
from queries.views.console.fragments import Changes, Drawn, fragments, page_of, whole
from queries.views.console.shell import actor_and_now, needs, next_address
from queries.views.supervision import operations
from queries.views.supervision.query_page import head

#: Label and meaning of each kind of loss on the page.
KINDS = {
    LossKind.RETENTION: ("Deleted unread", "the topic deleted them before they were read"),
    LossKind.SKIPPED: ("Silently skipped", "Spark skipped a gap (failOnDataLoss=false)"),
    LossKind.LATE: ("Too late", "rows dropped as later than the watermark, by day"),
    LossKind.RECREATED: ("Topic recreated", "in a topic that was deleted and recreated"),
    LossKind.CORRECTED: ("Not lost", "corrects an earlier entry"),
}
#: Why lag is counted in offsets.
WHY_OFFSETS = (
    "Some offsets may not hold a record: the topic is compacted or transactional, or its "
    "configuration cannot be read"
)
operations.CANCEL_LEAVES[Verb.GO_ON] = (
    "The entry in the loss ledger remains, because the data is gone from the topic.",
    "The query keeps its checkpoint; a run that is already skipping the gap is not stopped.",
)


@needs(VIEW)
def lag_tab(request: HttpRequest, name: str) -> HttpResponse:
    """Show each partition's lag with its retention deadline, and the loss ledger."""
    context = head(request, name, "query-lag")
    look_if_old(context["query"], now=context["now"])
    page = page_of(losses(context["query"]), by="noticed_at", cursor=request.GET.get("after", ""))
    context |= lag_context(context["query"], context["now"]) | {"page": page}
    context["losses"] = [(loss, *KINDS[LossKind(loss.kind)]) for loss in page.rows]
    return render(request, "kafka/lag.html", context)


def lag_context(query: Query, now: datetime) -> dict[str, Any]:
    """Return the context for the page's live part."""
    lag = lag_of(query, now=now)
    return {
        "query": query,
        "lag": lag,
        "topics": [(topic, retention_words(topic)) for topic in lag.topics],
        "totals": [(total, *KINDS[total.kind]) for total in loss_totals(query)],
        "uncounted": uncounted_batches(query, now=now),
        "why_uncounted": UNCOUNTED,
        "gone": sum(gap.offsets for gap in lag.gaps),
        "skew_rule": SKEW_RULE,
        "why_offsets": WHY_OFFSETS,
        "now": now,
    }


def retention_words(topic: TopicLag) -> str:
    """Return how long a topic keeps its records: "7 d, 1.0 GB per partition"."""
    retention = topic.retention
    if retention.compacts is None:
        return "unknown"
    words = [span_of_ms(retention.ms)] if retention.ms is not None else []
    if retention.bytes is not None:
        words.append(f"{filesizeformat(retention.bytes)} per partition".replace("\xa0", " "))
    text = " or ".join(words) or "unlimited"
    return f"{text}, compacted" if retention.compacts else text


def span_of_ms(ms: int) -> str:
    """Format a retention: "7 d", "12 h", "90 s"."""
    if ms < 60_000:
        return f"{ms / 1000:g} s"
    return span(timedelta(milliseconds=min(ms, 10**14)))


@fragments("lag", hears=("lag", "query"), own_key_only=("lag", "query"))
def draw_lag(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw a query's sources, and its losses by kind."""
    query = visible.queries().filter(pk=whole(key) or 0, archived_at=None).first()
    if query is None:
        return
    context = lag_context(query, now)
    yield f"sources-{key}", render_to_string("kafka/_sources.html", context)
    yield f"loss-totals-{key}", render_to_string("kafka/_loss_totals.html", context)


@needs(OPERATE, "GET", "POST")
def correct_page(request: HttpRequest, name: str, loss_id: int) -> HttpResponseBase:
    """Ask why an entry in the loss ledger is wrong, and revert it."""
    line = query_line(name, now=timezone.now(), bars=0)
    row = loss(line.query, loss_id)
    reason = request.POST.get("reason", "")
    context: dict[str, Any] = {"line": line, "loss": row, "reason": reason}
    context["label"] = KINDS[LossKind(row.kind)][0]
    if request.method == "GET":
        return render(request, "kafka/correct.html", context)
    try:
        correct(loss=row, reason=reason, **actor_and_now(request))
    except HeadgateError as error:
        context["error"] = str(error)
        return render(request, "kafka/correct.html", context, status=409)
    messages.success(request, "Corrected. Both entries stay in the ledger.")
    return redirect(reverse("query-lag", args=[name]) + "#losses")


@needs(OPERATE, "GET", "POST")
def go_on_page(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show which offsets were deleted and what skipping them does; skip them when confirmed."""
    now = timezone.now()
    line = query_line(name, now=now, bars=0)
    back = next_address(request, reverse("query-lag", args=[name]))
    if request.method == "GET":
        return render(request, "kafka/go_on.html", _confirmation(line, back, now))
    typed = whole(request.POST.get("typed", "").replace(",", ""))
    try:
        operation = go_on(
            query=line.query,
            offsets=-1 if typed is None else typed,
            actor=request.user.get_username(),
            now=now,
        )
    except HeadgateError as error:
        context = _confirmation(line, back, timezone.now())
        context["error"] = str(error)
        return render(request, "kafka/go_on.html", context, status=409)
    messages.success(request, f"{name} skips the lost data.")
    return redirect("operation", operation.uuid)


def _confirmation(line: QueryLine, back: str, now: datetime) -> dict[str, Any]:
    lag = lag_of(line.query, now=now)
    count = sum(gap.offsets for gap in lag.gaps)
    skip = f"Skip {counted(count, 'offset')}"
    return {
        "line": line,
        "lag": lag,
        "gaps": [(gap, records_in(lag, gap)) for gap in lag.gaps],
        "count": count,
        "what": f"{skip}?",
        "consequences": [
            f"{line.query.name} keeps its checkpoint, its state and its position in every other "
            "partition.",
            "It runs with failOnDataLoss=false until each partition has committed past its "
            "gap. Then it restarts as defined and fails on the next loss.",
            "The loss is recorded in the loss ledger under your name, permanently.",
            *_on_table(line.query),
        ],
        "action": reverse("query-go-on", args=[line.query.name]),
        "button": skip,
        "name_to_type": str(count),
        "back": back,
    }


def _on_table(query: Query) -> list[str]:
    """Return the effects on the query's table, or why they are currently unknown."""
    try:
        return on_go_on(query)
    except HeadgateError as error:
        return [f"What its table will do is unknown: {error}"]


urlpatterns = [
    path("queries/<query:name>/lag/", lag_tab, name="query-lag"),
    path(
        "queries/<query:name>/losses/<int:loss_id>/correct/",
        correct_page,
        name="query-loss-correct",
    ),
    path("queries/<query:name>/go-on/", go_on_page, name="query-go-on"),
]
