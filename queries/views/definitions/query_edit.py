"""Pages that define, change and delete queries."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import path

from headgate_ground.masking import mask, unmask
from queries.domain.definitions.locations import s3a_notes, with_s3a
from queries.domain.errors import Forbidden, HeadgateError, Invalid, StaleRevision
from queries.domain.states import DOWN_PHASES, RESTING_PHASES, Desired, Phase, Verb
from queries.domain.validation.skipped import Skip
from queries.models.definitions import QueryRevision
from queries.roles import DEFINE, OPERATE, author_rights
from queries.selectors.access import own_teams, team_of_new_query
from queries.selectors.definitions.definitions import (
    QueryDefinition,
    pool_names,
    query_definition,
    shared_application_names,
)
from queries.selectors.probes import change_of, sentences
from queries.selectors.supervision.history import operations as all_operations
from queries.selectors.triggers.advice import preflight_doubts
from queries.services.definitions import catalog
from queries.services.definitions.definition_rows import checked_columns
from queries.services.definitions.drafts import Checked
from queries.services.probes.preflight import begin_preflight
from queries.services.supervision import operations
from queries.views.console.errors import status_of
from queries.views.console.fragments import whole
from queries.views.console.shell import actor_and_now, author, needs, writes_python
from queries.views.definitions.query_bundle import (
    FORM,
    DefinitionInput,
    FailingPlace,
    blank,
    failing_place,
)
from queries.views.definitions.reviews import Review, review
from queries.views.definitions.reviews import urlpatterns as label_urls

#: Phases in which a query may be deleted, once it should not run.
AT_REST = RESTING_PHASES | {Phase.ON_HOLD}
#: What the API accepts when a query is created; anything else is an error worth reporting.
_CREATE_KEYS = ("name", "application", "application_spec", "checkpoint", "spec", "team")


@needs(DEFINE, "GET", "POST")
def new_query(request: HttpRequest) -> HttpResponseBase:
    """Show the form for a new query; create it, and start it if requested."""
    if request.method == "GET":
        return _form(request, _first_input(request))
    given, act = DefinitionInput.read(request.POST), request.POST.get("do", "")
    if act not in ("create", "create-start"):
        return _form(request, given.acted(act))
    try:
        query = _create(request, given.body())
    except Invalid as error:
        given.show(error.problems)
        return _form(request, given, status=422)
    except HeadgateError as error:
        return _form(request, given, notice=error, status=status_of(error))
    messages.success(request, _created(request, query, start=act == "create-start"))
    _warn(request, query.revisions.get(), s3a_notes(given.body()))
    return redirect("query", query.name)


def _first_input(request: HttpRequest) -> DefinitionInput:
    """Return an empty page, or a page filled in from a query to copy."""
    tab = request.GET.get("as", FORM)
    if not (name := request.GET.get("copy")):
        given = DefinitionInput(FORM, blank())
        given.bundle.main.initial["application"] = request.GET.get("application", "")
        given.bundle.main.initial["home"] = "shared" if request.GET.get("application") else "own"
        return given.acted("to-json") if tab != FORM else given
    source = query_definition(name)
    body: dict[str, Any] = {"name": f"{name}-copy", "spec": mask(source.newest.spec)}
    if not source.query.application.own:
        body["application"] = source.query.application.name
    return DefinitionInput.of(body, tab)


def _create(request: HttpRequest, body: dict[str, Any]) -> Any:
    known = {key: body[key] for key in _CREATE_KEYS if key in body}
    application, team = (str(known.get(key) or "") for key in ("application", "team"))
    known["team"] = team_of_new_query(request.user, application, team)
    return catalog.create_query(**{"name": "", "spec": {}, **known}, **author(request))


def _created(request: HttpRequest, query: Any, *, start: bool) -> str:
    if not start:
        return f"{query.name} was created. It stays stopped until a user starts it."
    operations.request_start(query=query, **actor_and_now(request))
    return f"{query.name} was created and is starting."


@needs(DEFINE, "GET", "POST")
def edit_query(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show a query's definition for editing; show the difference, then save it as a revision."""
    found = query_definition(name)
    if request.method == "GET":
        number = whole(request.GET.get("from"))
        shown = found.newest if number is None else found.numbered(number)
        spec = _tried(request, found) or shown.spec
        holds = shown if shown != found.newest and spec is shown.spec else None
        given = DefinitionInput.of({"spec": mask(spec)}, request.GET.get("as", FORM))
        if request.GET.get("review") and given.tab == FORM:  # "back to revision 2" is shown at once
            return _form(
                request,
                given,
                found=found,
                shown=review(QueryDict(), found.revisions, spec),
                doubts=preflight_doubts(found.query, spec),
                holds=holds,
            )
        return _form(request, given, found=found, holds=holds, place=failing_place(request, found))
    given, act = DefinitionInput.read(request.POST), request.POST.get("do", "")
    if act not in ("review", "save", "apply", "rebase", "preflight"):
        return _form(request, given.acted(act), found=found)
    try:
        if act == "preflight":
            return _try(request, given, found)
        return _review_or_save(request, given, found, act)
    except Invalid as error:
        given.show(error.problems)
        return _form(request, given, found=found, status=422)
    except Forbidden as error:
        return _form(request, given, found=found, notice=error, status=403)


def _try(request: HttpRequest, given: DefinitionInput, found: QueryDefinition) -> HttpResponse:
    """Start a preflight of the entered definition on a copy of the checkpoint; nothing is saved."""
    try:
        operation = begin_preflight(
            query=found.query, spec=given.body().get("spec") or {}, **author(request)
        )
    except (Invalid, Forbidden):
        raise
    except HeadgateError as error:
        return _form(request, given, found=found, notice=error, status=409)
    return redirect("operation", operation.uuid)


def _tried(request: HttpRequest, found: QueryDefinition) -> dict[str, Any] | None:
    """Return the definition of the preflight from which editing continues, if any."""
    try:
        uuid = UUID(request.GET.get("tried", ""))
    except ValueError:
        return None
    row = all_operations().filter(query=found.query, uuid=uuid, verb=Verb.PREFLIGHT).first()
    spec: dict[str, Any] | None = row.arguments.get("spec") if row is not None else None
    return spec


def _review_or_save(
    request: HttpRequest, given: DefinitionInput, found: QueryDefinition, act: str
) -> HttpResponse:
    notes: list[str] = []
    spec = with_s3a(unmask(given.body().get("spec") or {}, before=found.newest.spec), notes, "spec")
    query = found.query
    save = catalog.plan_query(query=query, spec=spec, rights=author_rights(request.user))
    checked = save.item.checked
    shown = review(request.POST, found.revisions, spec, again=act == "rebase")
    doubts, change = preflight_doubts(query, spec), _state_change(found, spec, checked)
    may_apply = act == "apply" and _may_apply(shown, [*doubts, *change])
    if not ((act == "save" and shown.may_save) or may_apply):
        return _form(
            request,
            given,
            found=found,
            shown=shown,
            doubts=doubts,
            state_change=change,
            skipped=checked.skipped,
        )
    try:
        revision = catalog.revise_query(
            query=query, spec=spec, expected_revision=shown.base.number, **author(request)
        )
    except StaleRevision:  # saved by another user between our read and our write: look again
        found = query_definition(query.name)
        shown = review(request.POST, found.revisions, spec)
        return _form(request, given, found=found, shown=shown, status=412)
    said = _saved(found, revision.number)
    if act == "apply" and request.user.has_perm(OPERATE):
        said = _applied(request, found, revision.number)
    messages.success(request, said)
    _warn(request, revision, notes)
    return redirect("query", query.name)


def _state_change(found: QueryDefinition, spec: dict[str, Any], checked: Checked) -> list[str]:
    columns = checked_columns(checked)
    change = change_of(found.query, spec, columns["state"], columns["state_by"])
    return sentences(change) if change is not None else []


def _warn(request: HttpRequest, revision: QueryRevision, notes: Sequence[str]) -> None:
    """Report which checks the save skipped, and which values it stored in another form."""
    for text in (*(one.text for one in revision.skipped), *notes):
        messages.warning(request, text)


def _may_apply(shown: Review, doubts: Sequence[str]) -> bool:
    """Return whether to save and restart now: warnings that need a preflight are shown first."""
    return shown.may_save or (bool(shown.lines) and not shown.stale and not doubts)


def _applied(request: HttpRequest, found: QueryDefinition, number: int) -> str:
    query = found.query
    how: dict[str, Any] = {"query": query, "accept_state_change": True, **actor_and_now(request)}
    try:  # its effects on state were shown before it could be applied
        if query.phase in DOWN_PHASES:
            operations.request_start(keep_params=query.desired == Desired.RUNNING, **how)
        else:
            operations.request_restart(**how)
    except HeadgateError as error:
        return f"Revision {number} of {query.name} was saved but not started: {error}"
    return f"Revision {number} of {query.name} was saved, and the query is starting on it."


def _saved(found: QueryDefinition, number: int) -> str:
    runs = found.query.desired == Desired.RUNNING
    when = "Restart the query to apply it." if runs else "It takes effect at the next start."
    return f"Revision {number} of {found.query.name} was saved. {when}"


def _form(
    request: HttpRequest,
    given: DefinitionInput,
    *,
    found: QueryDefinition | None = None,
    shown: Review | None = None,
    doubts: Sequence[str] = (),
    state_change: Sequence[str] = (),  # its effects on the state in the checkpoint
    skipped: Sequence[Skip] = (),  # skipped checks
    notice: HeadgateError | None = None,
    holds: QueryRevision | None = None,  # the revision in the form, if it is not the newest
    place: FailingPlace | None = None,  # where its SQL failed
    status: int = 200,
) -> HttpResponse:
    base = (
        shown.base.number if shown else request.POST.get("base") or (found and found.newest.number)
    )
    python = writes_python(request)
    if not python and found is None:
        given.bundle.only_sql()
    context = {
        "given": given,
        "python": python,
        "own_teams": own_teams(request.user),
        "lender": _lender(given, found),
        "found": found,
        "review": shown,
        "doubts": doubts,
        "state_change": state_change,
        "skipped": skipped,
        "notice": notice,
        "holds": holds,
        "place": place,
        "base": base,
        "applications": shared_application_names(),
        "pools": pool_names(),
    }
    return render(request, "definitions/query.html", context, status=status)


def _lender(given: DefinitionInput, found: QueryDefinition | None) -> str:
    """Return the application that lacks a connector needed by the query, or "" if none does."""
    if not given.needed:
        return ""
    if found is not None:
        return found.query.application.name
    main = given.bundle.main
    return str(main["application"].value()) if main["home"].value() == "shared" else ""


@needs(DEFINE, "GET", "POST")
def delete_query(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what deleting a query frees and retains; delete it once its name has been typed."""
    found = query_definition(name)
    context: dict[str, Any] = {"found": found, "at_rest": found.query.phase in AT_REST}
    if request.method == "GET":
        return render(request, "definitions/delete_query.html", context)
    if request.POST.get("typed", "").strip() != name:
        context["error"] = f"The name does not match. Type {name} to delete it."
        return render(request, "definitions/delete_query.html", context, status=422)
    try:
        operations.archive_query(query=found.query, **actor_and_now(request))
    except HeadgateError as error:
        context["error"] = str(error)
        return render(request, "definitions/delete_query.html", context, status=409)
    messages.success(request, f"{name} was deleted. Its history and checkpoint files are kept.")
    return redirect("queries")


urlpatterns = [
    path("new/query/", new_query, name="query-new"),
    path("queries/<query:name>/edit/", edit_query, name="query-edit"),
    *label_urls,
    path("queries/<query:name>/delete/", delete_query, name="query-delete"),
]
