"""Pages that define, change and delete applications: their forms, pools and Spark."""

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone

from headgate_ground.masking import mask, unmask
from queries.domain.code.references import settled
from queries.domain.definitions.locations import s3a_notes, with_s3a
from queries.domain.definitions.spec import ApplicationSpec, PoolSpec
from queries.domain.errors import Forbidden, HeadgateError, Invalid, StaleRevision
from queries.domain.sparks import SPARKS, command, differences, is_older, spark_of
from queries.models.applications import Application
from queries.models.definitions import Checkpoint
from queries.roles import DEFINE, OPERATE, AuthorRights, author_rights
from queries.selectors.access import own_teams, team_for_new
from queries.selectors.definitions.definitions import ApplicationDefinition, application_definition
from queries.selectors.definitions.sparks import spark_rows
from queries.selectors.spark_folders import installed_sparks
from queries.selectors.supervision.applications import (
    PoolHolding,
    application,
    pool_form,
    pool_holding,
)
from queries.services.checkpoints.remote import read_if_old
from queries.services.code.git import resolved
from queries.services.definitions import catalog
from queries.services.probes.preflight import begin_spark_trials, with_spark
from queries.services.supervision import application_operations
from queries.services.supervision.application_operations import request_application_restart
from queries.views.console.errors import answered, status_of
from queries.views.console.fragments import whole
from queries.views.console.shell import actor_and_now, author, needs, writes_python
from queries.views.definitions.reviews import Review, review
from queries.views.definitions.spec_form import (
    ConnectorsField,
    SpecForm,
    drop_empty_schedule,
    form_field,
    initial_of,
)


class ApplicationSpecForm(SpecForm):
    """An application's definition."""

    shape = ApplicationSpec

    connectors = ConnectorsField(required=False)

    def spec(self, **rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the definition; without anything that starts the script, it has no schedule."""
        spec = super().spec(**rows)
        drop_empty_schedule(spec)
        return spec

    def changed_schedule(self) -> bool:
        """Return whether a field of the schedule differs from its default or has an error."""
        return self.changed("schedule")

    def changed_policy(self) -> bool:
        """Return whether a restart setting differs from its default or has an error."""
        return self.changed("policy")


class NewApplicationForm(ApplicationSpecForm):
    """A new application: its name and its definition."""

    name = form_field(str, required=True)
    team = form_field(str)


class PoolForm(SpecForm):
    """A scheduler pool."""

    shape = PoolSpec

    name = form_field(str, required=True)


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
            _warn(request, form)
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
    spec = with_s3a(unmask(form.spec(), before=found.newest.spec), [])
    try:
        rights = author_rights(request.user)
        python, saves = AuthorRights.PYTHON in rights, request.POST.get("do") == "save"
        if python and not saves:  # save exactly what was reviewed
            spec, _ = resolved(settled(spec, found.newest.spec))
            code, posted = spec.get("code") or {}, request.POST.copy()
            posted["code_commit"], posted["code_ref"] = code.get("commit", ""), code.get("ref", "")
            form.data = posted
        catalog.plan_application(application=found.application, spec=spec, rights=rights)
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
    _warn(request, form)
    return redirect("application", found.application.name)


def _warn(request: HttpRequest, form: SpecForm) -> None:
    """Report which values a save has stored in another form."""
    for note in s3a_notes({"spec": form.spec()}):
        messages.warning(request, note)


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


@needs(DEFINE, "GET", "POST")
def change_spark(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the effect of another Spark on each checkpoint; test it, or save it and restart."""
    found = application_definition(name)
    application, now_on = found.application, spark_of(found.newest.spec)
    for checkpoint in Checkpoint.objects.filter(query__application=application, retired_at=None):
        read_if_old(checkpoint, now=timezone.now())
    given = (request.POST if request.method == "POST" else request.GET).get("to", "")
    to = next((one for one in SPARKS if one == given), None)
    rows = spark_rows(application, to) if to is not None and to != now_on else []
    context = {
        "found": found,
        "application": application,
        "now_on": now_on,
        "to": to,
        "others": [one for one in SPARKS if one != now_on],
        "back": to is not None and is_older(to, now_on),
        "changes": differences(now_on, to) if to is not None else (),
        "rows": rows,
        "can_preflight": not all(row.query.discovered for row in rows),
        "command": command(to) if to is not None and to not in installed_sparks() else "",
    }
    if request.method == "GET" or to is None or to == now_on:
        return render(request, "definitions/spark.html", context)
    try:
        if request.POST.get("do") == "try":
            begin_spark_trials(application=application, spark=to, **author(request))
            return redirect(f"{reverse('application-spark', args=[name])}?to={to}")
        revision = catalog.revise_application(
            application=application,
            spec=with_spark(application, to),
            expected_revision=whole(request.POST.get("base")),
            **author(request),
        )
    except HeadgateError as error:
        problem = {**context, "problem": str(error)}
        return render(request, "definitions/spark.html", problem, status=status_of(error))
    said = f"Revision {revision.number} of {name} was saved with Spark {to}."
    messages.success(request, f"{said} {_restarted(request, application)}")
    return redirect("application", name)


def _restarted(request: HttpRequest, application: Application) -> str:
    """Restart the driver if the user may and there is one; return what happens next."""
    if not application.target_revision_id or not request.user.has_perm(OPERATE):
        return "It takes effect when the application is restarted."
    try:
        request_application_restart(application=application, **actor_and_now(request))
    except HeadgateError as error:
        return f"It was not restarted: {error}"
    return "Its queries restart in a driver with that version."


urlpatterns += [
    path("applications/<str:name>/spark/", change_spark, name="application-spark"),
]
