"""Async progress tracking on a query's page: what a crash would replay, and how to turn it off."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.states import Desired, Verb
from queries.domain.triggers.async_progress import tracking
from queries.models.definitions import Query
from queries.roles import DEFINE
from queries.selectors import visible
from queries.selectors.query_lines import QueryLine, query_line
from queries.selectors.triggers.replay_exposure import exposure
from queries.services.triggers.async_off import BATCHES, request_async_off
from queries.views.console.fragments import Changes, Drawn, fragments
from queries.views.console.guard import author, needs
from queries.views.console.numbers import whole
from queries.views.console.shell import next_address, redirect_with_message
from queries.views.supervision import consequences, operations

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
    """Draw what one query would repeat after a crash now."""
    query = visible.queries().filter(pk=whole(key) or 0, archived_at=None).first()
    if query is None:
        return
    context = exposure_context(query, now)
    if context["exposure"] is not None:
        yield f"exposure-{key}", render_to_string("triggers/_exposure.html", context)


@needs(DEFINE, "GET", "POST")
def async_off(request: HttpRequest, name: str) -> HttpResponseBase:
    """Explain what turning it off safely does; start doing so on POST."""
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
    others = consequences.neighbours(line)
    if others:
        named = ", ".join(others)
        sentences.append(
            f"Other queries of {line.query.application.name} are not affected: {named}."
        )
    return sentences


urlpatterns = [path("queries/<query:name>/async-off/", async_off, name="query-async-off")]
