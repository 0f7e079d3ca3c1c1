"""Pages that define, change and delete applications and their scheduler pools."""

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path

from headgate_ground.masking import mask, unmask
from queries.domain.code.git_references import settled
from queries.domain.errors import Forbidden, HeadgateError, Invalid, StaleRevision
from queries.roles import DEFINE
from queries.selectors.access.teams import own_teams, team_for_new
from queries.selectors.definitions.definitions import ApplicationDefinition, application_definition
from queries.selectors.supervision.applications import PoolHolding, application, pool_holding
from queries.selectors.supervision.drift import pool_form
from queries.services.code.git_refs import resolved
from queries.services.definitions import catalog
from queries.services.supervision import application_operations
from queries.views.console.errors import answered, status_of
from queries.views.console.guard import actor_and_now, author, needs, writes_python
from queries.views.console.numbers import whole
from queries.views.definitions.application_form import (
    ApplicationSpecForm,
    NewApplicationForm,
    PoolForm,
)
from queries.views.definitions.reviews import Review, review
from queries.views.definitions.spec_form import initial_of

# --- applications ---------------------------------------------------------------------


@needs(DEFINE, "GET", "POST")
def new_application(request: HttpRequest) -> HttpResponseBase:
    """Show the form for a new application; create it."""
    shown = {"own_teams": own_teams(request.user), "python": writes_python(request)}
    if request.method == "GET":
        form = NewApplicationForm(initial=initial_of(NewApplicationForm.shape, {}))
        return render(request, "definitions/application.html", shown | {"form": form})
    form = NewApplicationForm(request.POST)
    status = 422
    if form.is_valid():
        try:
            made = catalog.create_application(
                name=form.cleaned_data["name"],
                spec=form.spec(),
                team=team_for_new(request.user, form.cleaned_data["team"]),
                **author(request),
            )
        except HeadgateError as error:
            _show(form, error)
            status = status_of(error)
        else:
            messages.success(
                request, f"{made.name} was created. Its driver starts with the first query."
            )
            return redirect("application", made.name)
    return render(request, "definitions/application.html", shown | {"form": form}, status=status)


@needs(DEFINE, "GET", "POST")
def edit_application(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show an application's definition for editing; show the difference, then save it."""
    found = application_definition(name)
    if request.method == "GET":
        number = whole(request.GET.get("from"))
        shown = found.newest if number is None else found.numbered(number)
        values = initial_of(ApplicationSpecForm.shape, mask(shown.spec))
        # A query's form links here, to add a connector that the application lacks.
        values["connectors"] = sorted({*values["connectors"], *request.GET.getlist("connector")})
        return _edit(request, found, ApplicationSpecForm(initial=values))
    form = ApplicationSpecForm(request.POST)
    if not form.is_valid():
        return _edit(request, found, form, status=422)
    spec = unmask(form.spec(), before=found.newest.spec)
    try:
        python = writes_python(request)
        if python and request.POST.get("do") != "save":  # save exactly what was reviewed
            spec, _ = resolved(settled(spec, found.newest.spec))
            code, posted = spec.get("code") or {}, request.POST.copy()
            posted["code_commit"], posted["code_ref"] = code.get("commit", ""), code.get("ref", "")
            form.data = posted
        catalog.plan_application(application=found.application, spec=spec, python=python)
        return _review_or_save(request, found, form, spec)
    except (Invalid, Forbidden) as error:
        _show(form, error)
        return _edit(request, found, form, status=status_of(error))


def _review_or_save(
    request: HttpRequest,
    found: ApplicationDefinition,
    form: ApplicationSpecForm,
    spec: dict[str, Any],
) -> HttpResponse:
    act = request.POST.get("do", "")
    shown = review(request.POST, found.revisions, spec, again=act == "rebase")
    if act != "save" or not shown.may_save:
        return _edit(request, found, form, shown)
    try:
        revision = catalog.revise_application(
            application=found.application,
            spec=spec,
            expected_revision=shown.base.number,
            **author(request),
        )
    except StaleRevision:  # saved by another user between our read and our write: look again
        found = application_definition(found.application.name)
        shown = review(request.POST, found.revisions, spec)
        return _edit(request, found, form, shown, status=412)
    messages.success(
        request,
        f"Revision {revision.number} of {found.application.name} was saved. A running driver "
        "keeps its settings until the application is restarted.",
    )
    return redirect("application", found.application.name)


def _edit(
    request: HttpRequest,
    found: ApplicationDefinition,
    form: ApplicationSpecForm,
    shown: Review | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    base = shown.base.number if shown else request.POST.get("base") or found.newest.number
    context = {"found": found, "form": form, "review": shown, "base": base}
    context["python"] = writes_python(request)
    return render(request, "definitions/application.html", context, status=status)


@needs(DEFINE, "GET", "POST")
def delete_application(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what deleting an application requires; delete it once its name has been typed."""
    found = application(name)
    context: dict[str, Any] = {"application": found}
    if request.method == "POST":
        typed = request.POST.get("typed", "").strip()
        if typed != name:
            context["error"] = f"The name does not match. Type {name} to delete it."
        else:
            try:
                application_operations.archive_application(
                    application=found, **actor_and_now(request)
                )
            except HeadgateError as error:
                context["error"] = str(error)
            else:
                messages.success(request, f"{name} was deleted. Its history is kept.")
                return redirect("applications")
    status = 409 if "error" in context else 200
    return render(request, "definitions/delete_application.html", context, status=status)


# --- pools ----------------------------------------------------------------------------


@needs(DEFINE, "GET", "POST")
def new_pool(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the form for a new pool; create it."""
    found = application_definition(name)
    form = PoolForm(request.POST or None, initial=initial_of(PoolForm.shape, {}))
    if request.method == "POST" and form.is_valid():
        taken = any(pool.name == form.cleaned_data["name"] for pool in found.pools)
        if taken:
            form.add_error(
                "name", "A pool with this name already exists. Edit it, or choose another name."
            )
        elif _save_pool(request, found, form):
            return redirect(f"/applications/{name}/#pools")
    return _pool(request, found, form)


@needs(DEFINE, "GET", "POST")
def edit_pool(request: HttpRequest, name: str, pool: str) -> HttpResponseBase:
    """Show a pool for editing; save it."""
    found = application_definition(name)
    held = pool_holding(found.application, pool)
    form = PoolForm(request.POST or None, initial=pool_form(held.pool))
    form.fields["name"].disabled = True
    if request.method == "POST" and form.is_valid() and _save_pool(request, found, form):
        return redirect(f"/applications/{name}/#pools")
    return _pool(request, found, form, held)


def _save_pool(request: HttpRequest, found: ApplicationDefinition, form: PoolForm) -> bool:
    try:
        pool = catalog.save_pool(
            application=found.application, spec=form.spec(), **actor_and_now(request)
        )
    except HeadgateError as error:
        _show(form, error)
        return False
    messages.success(
        request,
        f"Pool {pool.name} was saved. It takes effect when the application's next driver starts.",
    )
    return True


def _pool(
    request: HttpRequest,
    found: ApplicationDefinition,
    form: PoolForm,
    held: PoolHolding | None = None,
) -> HttpResponse:
    context = {"found": found, "application": found.application, "form": form, "held": held}
    status = 422 if form.is_bound and form.errors else 200
    return render(request, "definitions/pool.html", context, status=status)


@needs(DEFINE, "POST")
def delete_pool(request: HttpRequest, name: str, pool: str) -> HttpResponseBase:
    """Delete a pool that no query uses."""
    held = pool_holding(application(name), pool)
    delete = partial(catalog.delete_pool, pool=held.pool, **actor_and_now(request))
    return answered(request, delete, f"Pool {pool} was deleted.", f"/applications/{name}/#pools")


def _show(form: Any, error: HeadgateError) -> None:
    if isinstance(error, Invalid):
        form.show(error.problems)
    else:
        form.add_error(None, str(error))


urlpatterns = [
    path("new/application/", new_application, name="application-new"),
    path("applications/<str:name>/edit/", edit_application, name="application-edit"),
    path("applications/<str:name>/delete/", delete_application, name="application-delete"),
    path("applications/<str:name>/pools/new/", new_pool, name="pool-new"),
    path("applications/<str:name>/pools/<str:pool>/edit/", edit_pool, name="pool-edit"),
    path("applications/<str:name>/pools/<str:pool>/delete/", delete_pool, name="pool-delete"),
]
