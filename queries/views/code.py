"""Settings → Git hosts: the hosts from which definitions can take code."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path

from queries.domain.errors import Invalid
from queries.models.grants import CodeHost
from queries.roles import ADMINISTER
from queries.services.code.hosts import list_host, take_host
from queries.views.console.guard import by, needs


@needs(ADMINISTER, "GET", "POST")
def code_hosts(request: HttpRequest) -> HttpResponseBase:
    """List the hosts; add one with the form."""
    typed = request.POST.get("host", "").strip()
    problem: Any = None
    if request.method == "POST":
        try:
            row = list_host({"host": typed}, **by(request))
        except Invalid as error:
            problem = error.problems[0]
        else:
            messages.success(request, f"Definitions can use code from {row.host}.")
            return redirect("code-hosts")
    context = {
        "hosts": CodeHost.objects.filter(taken_at=None),
        "typed": typed,
        "problem": problem,
    }
    return render(request, "code/hosts.html", context, status=422 if problem else 200)


@needs(ADMINISTER, "POST")
def take(request: HttpRequest, host_id: int) -> HttpResponse:
    """Remove a host from the list."""
    row = get_object_or_404(CodeHost, pk=host_id, taken_at=None)
    take_host(row, **by(request))
    told = f"Code is no longer fetched from {row.host}."
    messages.success(request, f"{told} Code that was already fetched is kept.")
    return redirect("code-hosts")


urlpatterns = [
    path("settings/code-hosts/", code_hosts, name="code-hosts"),
    path("settings/code-hosts/<int:host_id>/take/", take, name="code-host-take"),
]
