"""Start, stop, restart: show the consequences first, then request the action.

Every URL shows its confirmation on GET and acts on POST, so everything works without JavaScript;
the console's script shows the same confirmation in a dialog.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.errors import HeadgateError
from queries.domain.states import PLAIN_VERBS, Verb
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.roles import OPERATE
from queries.selectors.access.insisting import insist_on
from queries.selectors.definitions import definitions
from queries.selectors.query_lines import QueryLine, query_line, query_lines
from queries.selectors.state_changes import sentences, unaccepted_change
from queries.selectors.supervision.query_filters import Filters, queries
from queries.selectors.supervision.query_groups import RANK
from queries.services.access.asker import in_bulk
from queries.services.access.rate_limits import begin_bulk
from queries.services.supervision import operations
from queries.views.console.guard import by, needs
from queries.views.console.shell import next_address, told
from queries.views.supervision import consequences
from queries.views.supervision.query_list import BULK_AT_MOST, filters_of


@needs(OPERATE, "GET", "POST")
def act(request: HttpRequest, name: str, verb: Verb) -> HttpResponseBase:
    """Show the consequences of the verb; perform it on POST."""
    back = next_address(request, reverse("query", args=[name]))
    if request.method == "GET":
        line = query_line(name, now=timezone.now())
        return render(request, "supervision/queries/confirm.html", _confirmation(line, verb, back))
    _ask(request, definitions.query(name), verb)
    return told(request, consequences.asked(verb, name), back)


def _confirmation(line: QueryLine, verb: Verb, back: str) -> dict[str, Any]:
    changed = _state_change(line.query, verb)
    return {
        "line": line,
        "verb": verb,
        "what": f"{verb.capitalize()} {line.query.name}?",
        "consequences": [*changed, *consequences.of(verb, line, consequences.neighbours(line))],
        "choices": ("mode", consequences.STOP_MODES) if verb is Verb.STOP else None,
        "action": reverse(f"query-{verb}", args=[line.query.name]),
        "button": f"{verb.capitalize()} with the old state" if changed else str(verb.capitalize()),
        "back": back,
        "tone": "bad" if changed else "",
        "fields": [("accept_state_change", "1")] if changed else [],
    }


def _state_change(query: Query, verb: Verb) -> list[str]:
    """Return the change that confirming a start accepts: state that would be silently wrong."""
    found = unaccepted_change(query) if verb is not Verb.STOP else None
    return sentences(found[1]) if found is not None else []


_ASK: dict[Verb, Callable[..., Operation]] = {
    Verb.START: operations.request_start,
    Verb.STOP: operations.request_stop,
    Verb.RESTART: operations.request_restart,
}


def _ask(request: HttpRequest, query: Query, verb: Verb) -> Operation:
    how: dict[str, Any] = {"accept_state_change": request.POST.get("accept_state_change") == "1"}
    if verb is Verb.STOP:
        how = {"mode": consequences.stop_mode(request.POST)}
    return _ASK[verb](query=query, **how, **by(request))


@dataclass(frozen=True, slots=True)
class Item:
    """One query in a bulk action: what will happen to it, or what happened."""

    line: QueryLine
    tone: str
    text: str
    acts: bool = True


@needs(OPERATE, "GET", "POST")
def bulk(request: HttpRequest) -> HttpResponseBase:
    """Preview an action on several queries; perform it on POST and show each result."""
    asked = request.POST if request.method == "POST" else request.GET
    chosen = tuple(dict.fromkeys(asked.getlist("name")))
    if asked.get("matching"):  # everything that matches the list's filters, on all pages
        found = queries(filters_of(asked), now=timezone.now()).order_by(RANK, "name")
        chosen = tuple(found.values_list("name", flat=True))
    names = chosen[:BULK_AT_MOST]
    verb = Verb(asked["verb"]) if asked.get("verb") in PLAIN_VERBS else Verb.START
    lines = query_lines(Filters(names=names), now=timezone.now(), bars=0) if names else []
    if not lines:
        messages.warning(request, "Select at least one query first.")
        return redirect("queries")
    done = request.method == "POST"
    if done:
        begin_bulk(verb=verb, count=len(lines), **by(request))
        with in_bulk():
            items = [_do(request, line, verb) for line in lines]
    else:
        items = [_preview(request, line, verb) for line in lines]
    context = {
        "items": items,
        "verb": verb,
        "done": done,
        "acting": sum(item.acts for item in items),
        "names": [item.line.query.name for item in items if item.acts],
        "chosen": len(chosen),
        "left": len(chosen) - len(names),
        "choices": ("mode", consequences.STOP_MODES) if verb is Verb.STOP else None,
    }
    return render(request, "supervision/queries/bulk.html", context)


def _preview(request: HttpRequest, line: QueryLine, verb: Verb) -> Item:
    try:
        insist_on(request.user, line.query.application)
    except HeadgateError as error:
        return Item(line, "bad", str(error), acts=False)
    if consequences.changes_something(verb, line):
        return Item(line, "busy", consequences.short(verb, line))
    return Item(line, "calm", consequences.nothing(verb, line), acts=False)


def _do(request: HttpRequest, line: QueryLine, verb: Verb) -> Item:
    try:
        insist_on(request.user, line.query.application)
        _ask(request, line.query, verb)
    except HeadgateError as error:
        return Item(line, "bad", str(error), acts=False)
    return Item(line, "done", consequences.asked(verb, line.query.name))


urlpatterns = [
    path("bulk/queries/", bulk, name="queries-bulk"),
    *(
        path(f"queries/<query:name>/{verb}/", act, {"verb": verb}, name=f"query-{verb}")
        for verb in sorted(PLAIN_VERBS)
    ),
]
