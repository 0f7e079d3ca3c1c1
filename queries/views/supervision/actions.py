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

from queries.domain.definitions.labels import terms
from queries.domain.definitions.spec import ENDING_TRIGGERS
from queries.domain.errors import HeadgateError, Invalid, Problem
from queries.domain.readings import counted
from queries.domain.states import (
    FAILED_PHASES,
    PLAIN_VERBS,
    STOPPED_PHASES,
    Desired,
    StopMode,
    Verb,
)
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
from queries.selectors.access import insist_on
from queries.selectors.definitions import definitions
from queries.selectors.hosts import AwayHost, away
from queries.selectors.probes import params_change, sentences, unaccepted_change
from queries.selectors.query_lines import QueryLine, lines_of, query_line
from queries.selectors.rows import param_defaults
from queries.selectors.supervision.applications import application_detail
from queries.selectors.supervision.query_filters import RANK, queries
from queries.services.procedures.bulk_operations import begin_many
from queries.services.supervision import operations
from queries.services.supervision.start_checks import StateChanges
from queries.views.console.shell import (
    actor_and_now,
    needs,
    next_address,
    redirect_with_error,
    redirect_with_message,
)
from queries.views.supervision.query_list import BULK_AT_MOST, filters_of

#: (value, label, hint) for the two ways to stop.
STOP_MODES = (
    (
        StopMode.GRACEFUL,
        "After the batch in flight",
        "The batch is finished and committed first, so nothing is replayed at the next start.",
    ),
    (
        StopMode.NOW,
        "Immediately",
        "The batch in flight is interrupted; the next start replays it from its first row.",
    ),
)


def stop_mode(sent: Mapping[str, str]) -> StopMode:
    """Return the stop mode that a form requests: graceful, unless it says "now"."""
    return StopMode.NOW if sent.get("mode") == StopMode.NOW else StopMode.GRACEFUL


def neighbours(line: QueryLine) -> list[str]:
    """Return the names of the other queries that should run in the same application."""
    if line.query.application.own:
        return []
    detail = application_detail(line.query.application.name)
    return [
        other.name
        for other in detail.queries
        if other.pk != line.query.pk and other.desired == Desired.RUNNING
    ]


def of(verb: Verb, line: QueryLine, others: list[str]) -> list[str]:
    """Return a verb's consequences, most important first."""
    sentences = {Verb.START: _start, Verb.STOP: _stop, Verb.RESTART: _restart}[verb](line, others)
    return [*while_away(away(line.query.application), verb), *sentences]


def while_away(silent: AwayHost | None, verb: str) -> list[str]:
    """Return when a verb takes effect if the host to which it applies is silent."""
    if silent is None:
        return []
    if silent.alone:
        return [
            f"The worker on host {silent.name} is slow or has stopped; its last heartbeat was at "
            f"{silent.seen_at:%H:%M:%S} UTC. The {verb} takes effect as soon as it works again."
        ]
    return [
        f"Host {silent.name} has not responded since {silent.seen_at:%H:%M:%S} UTC: the {verb} "
        "takes effect once it is back, or is declared gone on the application's page."
    ]


def _start(line: QueryLine, others: list[str]) -> list[str]:
    application = line.query.application.name
    sentences = [f"It starts on revision {line.revision}. {continues(line)}"]
    if line.driver or others:
        sentences.append(f"It joins the running driver of {application}; {_go_on(others)}")
        sentences += _changed_since(line)
    else:
        sentences.append(f"A driver is launched for {application}; this takes a few seconds.")
    if line.phase in FAILED_PHASES:
        sentences.append("Its failure counters are reset and it is retried immediately.")
    if line.trigger.get("kind") in ENDING_TRIGGERS:
        sentences.append("It ends once it has read all available data.")
    return sentences


def _stop(line: QueryLine, others: list[str]) -> list[str]:
    sentences = ["It stays stopped until a user starts it. New data waits in its source."]
    if others:
        sentences.append(f"Its driver stays up: {_go_on(others)}")
    elif line.driver:
        sentences.append(
            f"Nothing else runs in {line.query.application.name}, so its driver ends too."
        )
    return sentences


def _restart(line: QueryLine, others: list[str]) -> list[str]:
    same = line.revision == line.running_revision
    sentences = [
        "The batch in flight is finished and committed first, so nothing is replayed.",
        f"It restarts on revision {line.revision}"
        + (
            ", the one it is running now."
            if same
            else f"; it is running revision {line.running_revision} now."
        ),
    ]
    if others:
        sentences.append(f"Only this query restarts: {_go_on(others)}")
    else:
        sentences.append("It restarts in a new driver process.")
    return sentences + (_changed_since(line) if others else [])


def _changed_since(line: QueryLine) -> list[str]:
    """Return the changes that the running driver does not have: it copied its code at its start."""
    if not line.needs_application_restart:
        return []
    return [
        f"The application's {named(list(line.needs_application_restart))} changed since its "
        f"driver started. Restart {line.query.application.name} to apply it."
    ]


def continues(line: QueryLine) -> str:
    """Return the point from which a start continues."""
    batch = line.last_run.last_batch if line.last_run else None
    if batch is None and line.progress:
        batch = line.progress.batch_id
    if batch is None:
        return "It has no committed batch yet, so it reads from the beginning of its sources."
    return f"It continues after batch {batch}, from its checkpoint."


def changes_something(verb: Verb, line: QueryLine) -> bool:
    """Return whether the verb would change anything now."""
    wanted = line.query.desired == Desired.RUNNING
    if verb is Verb.START:
        return not wanted or line.phase in FAILED_PHASES
    if verb is Verb.STOP:
        return wanted or line.phase not in STOPPED_PHASES
    return wanted


def short(verb: Verb, line: QueryLine) -> str:
    """Return one line on the effect of the verb in a bulk action."""
    if verb is Verb.START:
        return f"Starts on revision {line.revision}. {continues(line)}"
    if verb is Verb.STOP and line.query.desired == Desired.STOPPED:
        return "Already stopping; an immediate stop would interrupt its batch."
    if verb is Verb.STOP:
        return "Stops and stays stopped."
    return f"Finishes its batch, then restarts on revision {line.revision}."


def nothing(verb: Verb, line: QueryLine) -> str:
    """Return why the verb would not change anything."""
    if verb is Verb.START:
        return f"Already set to run ({line.phase.label.lower()})."
    if verb is Verb.STOP:
        return f"Already {line.phase.label.lower()}."
    return "Not set to run; start it instead."


def request_message(verb: Verb, name: str) -> str:
    """Return the message saying that the verb was requested."""
    return f"{name} will {verb}."


def _go_on(others: list[str]) -> str:
    if not others:
        return "no other query is affected."
    return f"{named(others)} {'keeps' if len(others) == 1 else 'keep'} running."


def named(names: list[str]) -> str:
    """Return the names as they appear in a sentence: "a", "a and b", "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


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
    return redirect_with_message(request, request_message(verb, name), back)


#: Before the name of a parameter, in the fields of a confirmation.
_PARAM = "param."


def _params(query: Query, verb: Verb, sent: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (name, value, hint) for the parameters of a start or restart.

    The values are those sent, otherwise the defaults or, for a restart, the values that it keeps.
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
    """Return the values that a user changed; None if none was changed."""
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
        "consequences": [*changed, *of(verb, line, neighbours(line))],
        "choices": ("mode", STOP_MODES) if verb is Verb.STOP else None,
        "params": _params(line.query, verb, sent),
        "action": reverse(f"query-{verb}", args=[line.query.name]),
        "button": f"{verb.capitalize()} with the old state" if changed else str(verb.capitalize()),
        "back": back,
        "tone": "bad" if changed else "",
        "fields": [("accept_state_change", "1")] if changed else [],
    }


def _judged(query: Query, verb: Verb, sent: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the problems of the sent values, and the change that confirming accepts.

    The change concerns state that would silently become wrong.
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
        how = {"mode": stop_mode(request.POST)}
    return _ASK[verb](query=query, **how, **actor_and_now(request))


@dataclass(frozen=True, slots=True)
class Item:
    """One query in the preview of a bulk action: the effect on it."""

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
    verb = _plain_verb(asked.get("verb", ""))
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
        "choices": ("mode", STOP_MODES) if verb is Verb.STOP else None,
        "back": next_address(request, reverse("queries")),
        "key": uuid4(),
    }
    return render(request, "supervision/queries/bulk.html", context)


def _plain_verb(text: str) -> Verb:
    """Return the verb that a form requests; raise `Invalid` for any other value."""
    if text in PLAIN_VERBS:
        return Verb(text)
    verbs = ", ".join(sorted(PLAIN_VERBS))
    raise Invalid([Problem("verb", text[:200], "is not an action on several queries.", verbs)])


def _nothing_selected(request: HttpRequest) -> HttpResponseBase:
    messages.warning(request, "Select at least one query first.")
    return redirect("queries")


def _preview(request: HttpRequest, line: QueryLine, verb: Verb) -> Item:
    refusal = _refusal(request, line.query)
    if refusal is not None:
        return Item(line, "bad", str(refusal), acts=False)
    if changes_something(verb, line):
        return Item(line, "busy", short(verb, line))
    return Item(line, "calm", nothing(verb, line), acts=False)


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
        arguments={"mode": stop_mode(request.POST)} if verb is Verb.STOP else {},
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
