"""Start, stop, restart: show the consequences first, then request the action.

Every URL shows its confirmation on GET and acts on POST, so everything works without JavaScript;
the console's script shows the same confirmation in a dialog.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.counts import counted
from queries.domain.definitions.selection import terms
from queries.domain.errors import HeadgateError, Invalid
from queries.domain.states import PLAIN_VERBS, Verb
from queries.domain.validation.params import (
    accepted,
    as_text,
    effective,
    from_text,
    givable,
    kind_of,
)
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.roles import OPERATE
from queries.selectors.access.insisting import insist_on
from queries.selectors.definitions import definitions
from queries.selectors.newest import param_defaults
from queries.selectors.query_lines import QueryLine, lines_of, query_line
from queries.selectors.state_changes import params_change, sentences, unaccepted_change
from queries.selectors.supervision.query_filters import queries
from queries.selectors.supervision.query_groups import RANK
from queries.services.procedures.bulk_operations import begin_many
from queries.services.supervision import operations
from queries.services.supervision.required_preflight import StateChanges
from queries.views.console.guard import actor_and_now, needs
from queries.views.console.shell import next_address, redirect_with_error, redirect_with_message
from queries.views.supervision import consequences
from queries.views.supervision.query_list import BULK_AT_MOST, filters_of


@needs(OPERATE, "GET", "POST")
def act(request: HttpRequest, name: str, verb: Verb) -> HttpResponseBase:
    """Show the consequences of the verb; perform it on POST."""
    back = next_address(request, reverse("query", args=[name]))
    if request.method == "GET":
        line = query_line(name, now=timezone.now())
        context = _confirmation(line, verb, back, request.GET)
        return render(request, "supervision/queries/confirm.html", context)
    query = definitions.query(name)
    sent = {key: str(text) for key, text in request.POST.items() if key.startswith(_PARAM)}
    try:
        _ask(request, query, verb, **({"params": _given(query, verb, sent)} if sent else {}))
    except (Invalid, StateChanges) as error:
        if not sent:
            raise
        asked = urlencode({**sent, "next": back})
        return redirect_with_error(
            request, str(error), f"{reverse(f'query-{verb}', args=[name])}?{asked}"
        )
    return redirect_with_message(request, consequences.request_message(verb, name), back)


#: Before the name of a parameter, in the fields of a confirmation.
_PARAM = "param."


def _params(query: Query, verb: Verb, sent: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (name, text, what to give) of the parameters that a start or restart takes.

    The texts are those sent, otherwise the defaults; of a restart, the values that it keeps.
    """
    if verb is Verb.STOP:
        return []
    now = _values(query, verb)
    return [
        (name, sent.get(_PARAM + name, as_text(now[name])), kind_of(default))
        for name, default in givable(param_defaults(query)).items()
    ]


def _values(query: Query, verb: Verb) -> dict[str, Any]:
    return effective(param_defaults(query), query.params if verb is Verb.RESTART else None)


def _given(query: Query, verb: Verb, sent: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the values that a user changed; None if all are as they were shown."""
    defaults, now = param_defaults(query), _values(query, verb)
    read = from_text(defaults, {key.removeprefix(_PARAM): text for key, text in sent.items()})
    if all(name in now and value == now[name] for name, value in read.items()):
        return None
    return {
        name: value
        for name, value in read.items()
        if name not in defaults or value != defaults[name]
    }


def _confirmation(
    line: QueryLine, verb: Verb, back: str, sent: Mapping[str, str]
) -> dict[str, Any]:
    sent = {key: text for key, text in sent.items() if key.startswith(_PARAM)}
    problems, changed = _judged(line.query, verb, sent)
    return {
        "line": line,
        "verb": verb,
        "what": f"{verb.capitalize()} {line.query.name}?",
        "problems": problems,
        "consequences": [*changed, *consequences.of(verb, line, consequences.neighbours(line))],
        "choices": ("mode", consequences.STOP_MODES) if verb is Verb.STOP else None,
        "params": _params(line.query, verb, sent),
        "action": reverse(f"query-{verb}", args=[line.query.name]),
        "button": f"{verb.capitalize()} with the old state" if changed else str(verb.capitalize()),
        "back": back,
        "tone": "bad" if changed else "",
        "fields": [("accept_state_change", "1")] if changed else [],
    }


def _judged(query: Query, verb: Verb, sent: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return what is wrong with the values sent, and the change that confirming accepts.

    The change is that of state which would be silently wrong.
    """
    if verb is Verb.STOP:
        return [], []
    given = _given(query, verb, sent)
    try:
        values = accepted(param_defaults(query), given) if given else given
    except Invalid as error:
        return [problem.sentence() for problem in error.problems], []
    if values is None and verb is Verb.RESTART:
        values = query.params
    found = unaccepted_change(query)
    changed = sentences(found[1]) if found is not None else []
    return [], [*filter(None, [params_change(query, values)]), *changed]


_ASK: dict[Verb, Callable[..., Operation]] = {
    Verb.START: operations.request_start,
    Verb.STOP: operations.request_stop,
    Verb.RESTART: operations.request_restart,
}


def _ask(request: HttpRequest, query: Query, verb: Verb, **more: Any) -> Operation:
    accepts = request.POST.get("accept_state_change") == "1"
    how: dict[str, Any] = {"accept_state_change": accepts, **more}
    if verb is Verb.STOP:
        how = {"mode": consequences.stop_mode(request.POST)}
    return _ASK[verb](query=query, **how, **actor_and_now(request))


@dataclass(frozen=True, slots=True)
class Item:
    """One query in the preview of a bulk action: what will happen to it."""

    line: QueryLine
    tone: str
    text: str
    acts: bool = True


@needs(OPERATE, "GET", "POST")
def bulk(request: HttpRequest) -> HttpResponseBase:
    """Preview an action on several queries; on POST, begin one operation on all of them."""
    asked = request.POST if request.method == "POST" else request.GET
    names, now = asked.getlist("name"), timezone.now()
    selection = terms(name=names)
    if asked.get("matching"):  # everything that matches the list's filters, on all pages
        selection = filters_of(asked)
    elif not names:
        return _nothing_selected(request)
    chosen = queries(selection, now=now).order_by(RANK, "name")
    verb = Verb(asked["verb"]) if asked.get("verb") in PLAIN_VERBS else Verb.START
    if request.method == "POST":
        return _begin(request, verb, list(chosen[:BULK_AT_MOST]))
    items = [
        _preview(request, line, verb) for line in lines_of(chosen[:BULK_AT_MOST], now=now, bars=0)
    ]
    if not items:
        return _nothing_selected(request)
    count = chosen.count()
    context = {
        "items": items,
        "verb": verb,
        "acting": sum(item.acts for item in items),
        "names": [item.line.query.name for item in items if item.acts],
        "chosen": count,
        "left": count - len(items),
        "choices": ("mode", consequences.STOP_MODES) if verb is Verb.STOP else None,
        "back": next_address(request, reverse("queries")),
        "key": uuid4(),
    }
    return render(request, "supervision/queries/bulk.html", context)


def _nothing_selected(request: HttpRequest) -> HttpResponseBase:
    messages.warning(request, "Select at least one query first.")
    return redirect("queries")


def _preview(request: HttpRequest, line: QueryLine, verb: Verb) -> Item:
    refusal = _refusal(request, line.query)
    if refusal is not None:
        return Item(line, "bad", str(refusal), acts=False)
    if consequences.changes_something(verb, line):
        return Item(line, "busy", consequences.short(verb, line))
    return Item(line, "calm", consequences.nothing(verb, line), acts=False)


def _refusal(request: HttpRequest, query: Query) -> HeadgateError | None:
    """Return why the user may not act on a query; None if the user may."""
    try:
        insist_on(request.user, query.application)
    except HeadgateError as error:
        return error
    return None


def _begin(request: HttpRequest, verb: Verb, rows: list[Query]) -> HttpResponseBase:
    """Begin the operation and show its page, which has each query's outcome.

    A form that is sent twice begins one operation. Raises `Forbidden` if the user may not act on
    any of the queries.
    """
    if not rows:
        return _nothing_selected(request)
    refusals = {row.pk: error for row in rows if (error := _refusal(request, row)) is not None}
    if len(refusals) == len(rows):
        raise refusals[rows[0].pk]
    audit = actor_and_now(request)
    operation = begin_many(
        Verb(f"{verb}-many"),
        rows,
        arguments={"mode": consequences.stop_mode(request.POST)} if verb is Verb.STOP else {},
        refusals=refusals,
        key=request.POST.get("key", ""),
        **audit,
    )
    text = f"The {verb} of {counted(len(rows) - len(refusals), 'query,queries')} was requested."
    if operation.created_at != audit["now"]:
        text = f"This was already requested at {operation.created_at:%H:%M:%S} UTC."
    return redirect_with_message(request, text, reverse("operation", args=[operation.uuid]))


urlpatterns = [
    path("bulk/queries/", bulk, name="queries-bulk"),
    *(
        path(f"queries/<query:name>/{verb}/", act, {"verb": verb}, name=f"query-{verb}")
        for verb in sorted(PLAIN_VERBS)
    ),
]
