"""Actions on a checkpoint: GET previews the action, POST performs it.

None of them requires JavaScript. To confirm an action that drops state, the user must type the
query's name.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone

from headgate_ground.masking import mask
from queries.domain.accepted_values import refuse_characters
from queries.domain.errors import HeadgateError, Invalid, NotAllowed, Problem
from queries.domain.states import Desired
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.roles import DEFINE, OPERATE
from queries.selectors import checkpoints as reads
from queries.selectors.access import insist_clone
from queries.selectors.definitions.definitions import query_definition
from queries.services.checkpoints import clone, rewind_and_reset, snapshot
from queries.services.checkpoints.file_sinks import read_sink_if_old
from queries.services.checkpoints.preview import preview_reset, preview_rewind
from queries.services.checkpoints.source_starts import TARGETS, WantedStart, offsets_of
from queries.services.checkpoints.switching import current, table_of
from queries.views.checkpoints.checkpoint import cost_of, logs_of
from queries.views.console.errors import answered, status_of
from queries.views.console.fragments import whole
from queries.views.console.shell import actor_and_now, author, needs

_TARGETS = {
    "earliest": ("Earliest", "All data still available in the sources."),
    "latest": ("Latest", "Only new data; existing data is skipped."),
    "time": ("A time", "Data written from then on."),
    "offsets": ("Offsets", "Kafka only: one offset for each partition to move."),
}


@needs(OPERATE, "GET", "POST")
def take_snapshot(request: HttpRequest, name: str) -> HttpResponseBase:
    """Explain what a snapshot is; take one on POST."""
    query = _query(name)
    if request.method == "POST":
        return _request_operation(
            request,
            query,
            "A snapshot is being taken",
            snapshot.request_snapshot,
            batch=whole(request.POST.get("batch")),
            reason=request.POST.get("reason", "")[:200],
            pinned=request.POST.get("pinned") == "1",
        )
    context = _context(query, "Take a snapshot") | {"batch": request.GET.get("batch", "")}
    return render(request, "checkpoints/snapshot.html", context)


@needs(DEFINE, "GET", "POST")
def rewind_to(request: HttpRequest, name: str) -> HttpResponseBase:
    """Preview a rewind to a batch; request it on POST."""
    query = _query(name)
    form = request.POST if request.method == "POST" else request.GET
    batch, at = whole(form.get("batch")), form.get("at", "").strip()
    if request.method == "POST" and batch is not None:
        message = f"The query is being rewound to batch {batch}"
        return _request_operation(
            request, query, message, rewind_and_reset.request_rewind, batch=batch
        )
    context = _context(query, "Rewind") | {"batch": batch, "at": at}
    read_sink_if_old(query, now=timezone.now())  # for the preview that is asked for next
    if batch is None and at:
        try:
            batch = context["batch"] = _committed_by(query, _moment(at))
        except HeadgateError as error:
            context["problem"] = str(error)
    if batch is not None:
        context["preview"] = _tried(context, preview_rewind, query, batch)
    return render(request, "checkpoints/rewind.html", context)


@needs(DEFINE, "GET", "POST")
def reset_to(request: HttpRequest, name: str) -> HttpResponseBase:
    """Preview a reset; request it on POST, once the query's name has been typed."""
    query = _query(name)
    form = request.POST if request.method == "POST" else request.GET
    read_sink_if_old(query, now=timezone.now())  # for the preview that is asked for next
    context = _context(query, "Reset") | {
        "targets": [(key, *words) for key, words in _TARGETS.items()],
        "to": form.get("to", ""),
        "at": form.get("at", ""),
        "offsets": form.get("offsets", ""),
    }
    if context["to"] not in TARGETS:
        return render(request, "checkpoints/reset.html", context)
    try:
        wish = _wish(form)
    except Invalid as error:
        context["problem"] = str(error)
        return render(request, "checkpoints/reset.html", context, status=422)
    if request.method == "POST":
        if form.get("typed", "").strip() == name:
            message = f"The query is being reset to {context['at'] or context['to']}"
            return _request_operation(
                request, query, message, rewind_and_reset.request_reset, wish=wish
            )
        context["problem"] = f"Type {name} to confirm."
    context["preview"] = _tried(context, preview_reset, query, wish)
    return render(request, "checkpoints/reset.html", context)


@needs(DEFINE, "GET", "POST")
def make_clone(request: HttpRequest, name: str) -> HttpResponseBase:
    """Ask for a name and a sink; create a new query from the checkpoint on POST."""
    query = _query(name)
    form = request.POST if request.method == "POST" else request.GET
    context = _context(query, "Clone") | {
        "name": form.get("name", f"{name}-clone"),
        "sink": form.get("sink") or json.dumps(_suggested_sink(query), indent=2),
        "same_sink": form.get("same_sink") == "1",
        "batch": form.get("batch", ""),
        "snapshot_id": form.get("snapshot", ""),
        "snapshots": reads.snapshots_of(query)[:50],
        "table": table_of(query),
    }
    if request.method == "GET":
        return render(request, "checkpoints/clone.html", context)
    try:
        insist_clone(request.user, "")
        clone.request_clone(
            query=query,
            name=context["name"].strip(),
            sink=None if context["same_sink"] else _json("sink", context["sink"]),
            same_sink=context["same_sink"],
            batch=whole(context["batch"]),
            snapshot_id=whole(context["snapshot_id"]),
            **author(request),
        )
    except HeadgateError as error:
        context["problems"] = getattr(error, "problems", ()) or [Problem("", "", str(error))]
        return render(request, "checkpoints/clone.html", context, status=status_of(error))
    messages.success(request, f"{context['name']} is being created from the checkpoint of {name}.")
    return redirect("query-checkpoint", name)


@needs(OPERATE, "POST")
def pin_snapshot(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    """Pin a snapshot so that it is not pruned, or unpin it."""
    row = reads.snapshot_of(_query(name), number)
    snapshot.pin(row, pinned=request.POST.get("pinned") == "1")
    return redirect("query-checkpoint-kept", name)


@needs(OPERATE, "GET", "POST")
def remove_snapshot(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    """Show which snapshot will be deleted; delete its files on POST."""
    query = _query(name)
    row = reads.snapshot_of(query, number)
    back = reverse("query-checkpoint-kept", args=[name])
    if request.method == "POST":
        remove = partial(snapshot.remove_snapshot, row, now=timezone.now())
        return answered(request, remove, f"The snapshot of batch {row.batch} was removed.", back)
    context = _context(query, "Remove a snapshot") | {
        "what": f"Remove the snapshot of batch {row.batch}?",
        "consequences": [
            f"Its files in {row.location.removeprefix('file://')} are deleted permanently.",
            "The query and its checkpoint are not affected.",
        ],
        "action": request.path,
        "back": back,
    }
    return render(request, "checkpoints/confirm.html", context)


# --- helpers ------------------------------------------------------------------------------


def _query(name: str) -> Query:
    return query_definition(name).query


def _context(query: Query, heading: str) -> dict[str, Any]:
    checkpoint = current(query)
    logs, _ = logs_of(checkpoint, timezone.now())
    committed = logs.committed() if logs else []
    return {
        "query": query,
        "heading": heading,
        "checkpoint": checkpoint,
        "cost": cost_of(checkpoint),
        "first": committed[0] if committed else None,
        "last": committed[-1] if committed else None,
        "back": reverse("query-checkpoint", args=[query.name]),
        "runs_now": query.desired == Desired.RUNNING,
    }


def _tried(context: dict[str, Any], look: Callable[..., Any], *given: Any) -> Any:
    """Return a preview; if the action is refused, None, with the reason in the context."""
    try:
        return look(*given)
    except HeadgateError as error:
        context["problem"] = str(error)
        return None


def _request_operation(
    request: HttpRequest, query: Query, message: str, perform: Callable[..., Operation], **more: Any
) -> HttpResponse:
    """Request an operation and redirect to the query's page, which shows its steps."""
    return answered(
        request,
        partial(perform, query=query, **more, **actor_and_now(request)),
        lambda operation: f"{message}: operation {str(operation.uuid)[:8]}.",
        reverse("query-checkpoint", args=[query.name]),
    )


def _wish(form: Any) -> WantedStart:
    to = form["to"]
    at = None
    if to == "time":
        at = _moment(form.get("at", "").strip())
    offsets = offsets_of(_json("offsets", form.get("offsets", ""))) if to == "offsets" else {}
    return WantedStart(to, at, offsets)


def _moment(text: str) -> datetime:
    """Return a time entered by a user, in UTC unless it specifies another zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        way_out = "Enter it as 2026-03-02T12:00."
        raise Invalid([Problem("at", text[:200], "is not a valid time.", way_out)]) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _committed_by(query: Query, at: datetime) -> int:
    """Return the newest batch committed by a given time, according to its commit's timestamp."""
    logs, _ = logs_of(current(query), timezone.now())
    for number in reversed(logs.committed() if logs else []):
        written = logs.written_at("commits", number) if logs else None
        if written is not None and written <= at:
            return number
    raise NotAllowed(
        f"None of the available batches had committed by {at:%Y-%m-%d %H:%M:%S %Z}.",
        way_out="Choose a later time, or one of the snapshots under Kept.",
    )


def _json(field: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise Invalid([Problem(field, text[:200], f"is not JSON: {error}.")]) from error
    if not isinstance(document, dict):
        raise Invalid([Problem(field, text[:200], "is not a JSON object.")])
    refuse_characters(document, field=field)
    return document


def _suggested_sink(query: Query) -> dict[str, Any]:
    """Return the query's sink, with another path or topic if it has one."""
    sink: dict[str, Any] = dict(query.revisions.order_by("-number")[0].spec.get("sink") or {})
    options = dict(sink.get("options") or {})
    for key in ("path", "topic"):
        if options.get(key):
            options[key] = f"{options[key]}-clone"
    sink_fields: dict[str, Any] = mask({**sink, "options": options}) if sink else {"format": "noop"}
    return sink_fields


urlpatterns = [
    path("queries/<query:name>/snapshot/", take_snapshot, name="query-snapshot"),
    path("queries/<query:name>/rewind/", rewind_to, name="query-rewind"),
    path("queries/<query:name>/reset/", reset_to, name="query-reset"),
    path("queries/<query:name>/clone/", make_clone, name="query-clone"),
    path(
        "queries/<query:name>/snapshots/<int:number>/pin/", pin_snapshot, name="query-snapshot-pin"
    ),
    path(
        "queries/<query:name>/snapshots/<int:number>/remove/",
        remove_snapshot,
        name="query-snapshot-remove",
    ),
]
