"""Settings → Data roots: where all applications, and single ones, can store data."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone

from queries.domain.errors import Invalid
from queries.models.grants import GivenRoot
from queries.roles import ADMINISTER
from queries.selectors.secrets import holder_names
from queries.services.definitions.places_in_use import proposals
from queries.services.secrets import roots
from queries.views.console.guard import by, needs


@needs(ADMINISTER, "GET", "POST")
def data_roots(request: HttpRequest) -> HttpResponseBase:
    """List the roots, and the locations in use outside them; assign one with the form."""
    typed = {name: request.POST.get(name, "").strip() for name in ("application", "root")}
    problems: dict[str, Any] = {}
    if request.method == "POST":
        try:
            row = roots.give_root(typed, **by(request))
        except Invalid as error:
            problems = {one.field: one for one in error.problems}
        else:
            told = f"{row.application} can use {row.root}."
            messages.success(request, f"{told} A running driver must be restarted to use it.")
            return redirect("data-roots")
    context = {
        "for_all": settings.DATA_ROOTS,
        "given": GivenRoot.objects.filter(taken_at=None),
        "proposals": proposals(),
        "applications": holder_names()["application"],
        "typed": typed,
        "problems": problems,
        "now": timezone.now(),
    }
    return render(request, "secrets/data_roots.html", context, status=422 if problems else 200)


@needs(ADMINISTER, "POST")
def take(request: HttpRequest, root_id: int) -> HttpResponse:
    """Remove a root."""
    row = get_object_or_404(GivenRoot, pk=root_id, taken_at=None)
    roots.take_root(row, **by(request))
    told = f"{row.application} can no longer use {row.root}."
    messages.success(request, f"{told} Running queries continue; their next start will be refused.")
    return redirect("data-roots")


urlpatterns = [
    path("settings/data-roots/", data_roots, name="data-roots"),
    path("settings/data-roots/<int:root_id>/take/", take, name="data-root-take"),
]
