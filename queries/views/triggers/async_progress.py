"""Async progress tracking on a query's page: what a crash would replay, and the safe way off."""

from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.states import Desired, Verb
from queries.domain.triggers.async_progress import tracking
from queries.models.definitions import Query
from queries.roles import DEFINE
from queries.selectors.query_lines import QueryLine, query_line
from queries.selectors.triggers.replay_exposure import exposure
from queries.services.triggers.async_off import BATCHES, turn_off
from queries.views.console.fragments import Changes, Drawn, fragments
from queries.views.console.guard import asked_by, needs
from queries.views.console.shell import next_address, wants_json
from queries.views.supervision import consequences, operations

operations.CANCEL_LEAVES[Verb.ASYNC_OFF] = (
    "The definition goes back to what it was, as a new revision.",
    "If the query ran before, it is restarted on that; if it stood, or had died of the gap, it "
    "is left standing.",
)


def exposure_context(query: Query, now: datetime) -> dict[str, Any]:
    """Return what the panel draws; `exposure` is None where async progress tracking is off."""
    return {"query": query, "exposure": exposure(query, now=now), "now": now}


@fragments("exposure", hears=("query",), own_key_only=("query",))
def draw_exposure(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw what a crash now would make one query do again."""
    query = Query.objects.filter(pk=key, archived_at=None).first() if key.isdigit() else None
    if query is None:
        return
    context = exposure_context(query, now)
    if context["exposure"] is not None:
        yield f"exposure-{key}", render_to_string("triggers/_exposure.html", context)


@needs(DEFINE, "GET", "POST")
def async_off(request: HttpRequest, name: str) -> HttpResponseBase:
    """Say what the safe way off will do; begin it on POST."""
    line = query_line(name, now=timezone.now())
    back = next_address(request, reverse("query", args=[name]))
    if request.method == "GET":
        return render(request, "supervision/queries/confirm.html", _confirmation(line, back))
    operation = turn_off(query=line.query, **asked_by(request))
    text = f"{name} is on its way off async progress tracking."
    if wants_json(request):
        return JsonResponse({"tone": "ok", "text": text})
    messages.success(request, text)
    return redirect("operation", operation.uuid)


def _confirmation(line: QueryLine, back: str) -> dict[str, Any]:
    name = line.query.name
    return {
        "line": line,
        "verb": "switch off",
        "what": f"Switch async progress tracking off for {name}?",
        "consequences": _consequences(line),
        "action": reverse("query-async-off", args=[name]),
        "button": "Switch it off, step by step",
        "back": back,
    }


def _consequences(line: QueryLine) -> list[str]:
    on = tracking(line.newest.spec) is not None if line.newest else False
    first = "restarts" if line.query.desired == Desired.RUNNING else "starts"
    said = [
        f"It {first} with async progress tracking {'kept' if on else 'switched'} on and every "
        f"batch's offsets kept, until {BATCHES} batches have committed. Its sources must bring "
        "something for that.",
        "It stops after the batch in flight; the offset log is looked at on disk; only then a "
        "revision without async progress tracking is saved.",
        "Then it starts again, because it is wanted running."
        if line.query.desired == Desired.RUNNING
        else "Then it stands, as it does now.",
        "Each step is shown, none is lost with a worker, and it can be cancelled before the last: "
        "the definition goes back to what it was.",
    ]
    others = consequences.neighbours(line)
    if others:
        named = ", ".join(others)
        said.append(f"Other queries of {line.query.application.name} go on untouched: {named}.")
    return said


urlpatterns = [path("queries/<str:name>/async-off/", async_off, name="query-async-off")]
