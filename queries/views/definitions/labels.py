"""The page for changing the labels of a query or an application."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path

from queries.domain.definitions.labels import labels_text, read_labels
from queries.domain.errors import Invalid
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.supervision import applications
from queries.services.definitions.labels import relabel
from queries.views.console.guard import actor_and_now, needs


@needs(DEFINE, "GET", "POST")
def query_labels(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show a query's own labels for editing; save them."""
    query = definitions.query(name)
    return _labels(request, query, "query", {"inherited": query.application.labels})


@needs(DEFINE, "GET", "POST")
def application_labels(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show an application's labels for editing; save them."""
    return _labels(request, applications.application(name), "application", {})


def _labels(
    request: HttpRequest, row: Query | Application, kind: str, more: dict[str, Any]
) -> HttpResponseBase:
    context = {**more, "row": row, "kind": kind, "typed": labels_text(row.labels)}
    if request.method == "GET":
        return render(request, "definitions/labels.html", context)
    context["typed"] = request.POST.get("labels", "")
    try:
        relabel(row, read_labels(str(context["typed"])), **actor_and_now(request))
    except Invalid as error:
        context["problems"] = error.problems
        return render(request, "definitions/labels.html", context, status=422)
    messages.success(request, f"The labels of {row.name} were saved. Nothing is restarted.")
    return redirect(kind, row.name)


urlpatterns = [
    path("queries/<query:name>/labels/", query_labels, name="query-labels"),
    path("applications/<str:name>/labels/", application_labels, name="application-labels"),
]
