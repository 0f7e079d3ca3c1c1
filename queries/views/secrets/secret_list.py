"""Settings → Secrets: where each secret is used, and the bindings that admins have added."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.cache import never_cache

from queries.domain.errors import Invalid
from queries.domain.secrets.bindings import HolderKind
from queries.models.grants import SecretBinding
from queries.roles import ADMINISTER
from queries.selectors.secrets import holder_names, secrets
from queries.services.secrets import bindings
from queries.views.console.guard import by, needs

_FIELDS = ("secret", "holder_kind", "holder", "hosts")


@never_cache
@needs(ADMINISTER, "GET", "POST")
def secret_list(request: HttpRequest) -> HttpResponseBase:
    """List secrets by name, never by value; bind one with the form."""
    given = request.POST if request.method == "POST" else request.GET
    typed = {name: given.get(name, "").strip() for name in _FIELDS}
    problems: dict[str, Any] = {}
    if request.method == "POST":
        form = {**typed, "hosts": typed["hosts"].splitlines()}
        try:
            row = bindings.bind(form, **by(request))
        except Invalid as error:
            problems = {one.field.partition(".")[0]: one for one in error.problems}
        else:
            told = f"{row.secret} is bound to {row.holder_kind} {row.holder}."
            messages.success(
                request,
                f"{told} Queries that were refused without this binding can be started again.",
            )
            return redirect("secrets")
    context = {
        "secrets": secrets(),
        "holders": holder_names(),
        "kinds": list(HolderKind),
        "typed": typed,
        "problems": problems,
        "now": timezone.now(),
    }
    return render(request, "secrets/list.html", context, status=422 if problems else 200)


@needs(ADMINISTER, "POST")
def unbind(request: HttpRequest, binding_id: int) -> HttpResponse:
    """Remove a binding."""
    row = get_object_or_404(SecretBinding, pk=binding_id, taken_at=None)
    bindings.unbind(row, **by(request))
    told = f"{row.secret} is no longer bound to {row.holder_kind} {row.holder}."
    messages.success(request, f"{told} Running queries continue; their next start will be refused.")
    return redirect("secrets")


urlpatterns = [
    path("settings/secrets/", secret_list, name="secrets"),
    path("settings/secrets/<int:binding_id>/unbind/", unbind, name="secret-unbind"),
]
