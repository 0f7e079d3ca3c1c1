"""Pages for one decision about a definition: labels, release from its file, a script's new
query.
"""

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse

from queries.domain.definitions.labels import labels_text, read_labels
from queries.domain.errors import Invalid
from queries.models.alerts import AlertRule
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.roles import ADMINISTER, DEFINE
from queries.selectors.code import Asking, asking
from queries.selectors.definitions import definitions
from queries.selectors.manifests import managed_of
from queries.selectors.supervision import applications
from queries.selectors.supervision.applications import application_detail
from queries.services.definitions.revisions import relabel
from queries.services.manifests.ownership import release
from queries.services.supervision.application_operations import answer_script
from queries.views.console.errors import answered
from queries.views.console.guard import actor_and_now, needs
from queries.views.console.shell import next_address


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


@needs(DEFINE, "GET", "POST")
def release_query(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what a release does; release a query on POST."""
    row = definitions.query(name)
    return _release(request, row, "query-release", reverse("query-definition", args=[name]))


@needs(DEFINE, "GET", "POST")
def release_application(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what a release does; release an application on POST."""
    row = applications.application(name)
    return _release(request, row, "application-release", reverse("application", args=[name]))


@needs(ADMINISTER, "GET", "POST")
def release_rule(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what a release does; release an alert rule on POST."""
    row = get_object_or_404(AlertRule, name=name)
    return _release(request, row, "alert-rule-release", reverse("alert-rule", args=[name]))


def _release(request: HttpRequest, row: Any, address: str, back: str) -> HttpResponseBase:
    back = next_address(request, back)
    managed = managed_of(row)
    if request.method == "POST":
        perform = partial(release, managed, **actor_and_now(request))
        return answered(request, perform, f"{row.name} no longer has an owner.", back)
    context = {
        "name": row.name,
        "what": f"Release {row.name} from {managed.owner if managed else 'its owner'}?",
        "consequences": [
            "Its file no longer controls it: edits are not drift, and pruning skips it.",
            "The object itself does not change, and running queries continue.",
            "The next apply that includes this object restores its owner.",
        ],
        "action": reverse(address, args=[row.name]),
        "back": back,
    }
    return render(request, "manifests/release.html", context)


urlpatterns += [
    path("queries/<query:name>/release/", release_query, name="query-release"),
    path("applications/<str:name>/release/", release_application, name="application-release"),
    path("alerts/rules/<str:name>/release/", release_rule, name="alert-rule-release"),
]


@needs(DEFINE, "GET", "POST")
def question(request: HttpRequest, name: str) -> HttpResponseBase:
    """Ask which query the new one is; process the answer on POST."""
    detail = application_detail(name)
    back = reverse("application", args=[name])
    if request.method == "POST":
        sent = {key: request.POST.get(key, "") for key in ("identity", "same_as")}
        perform = partial(
            answer_script, application=detail.application, **(sent | actor_and_now(request))
        )
        same = f"It is {sent['same_as']}." if sent["same_as"] else "It is another query."
        return answered(request, perform, f"{same} Script {name} continues.", back)
    pending = asking(detail.script)
    if pending is None:
        messages.info(request, f"Script {name} is not waiting for an answer.")
        return redirect(back)
    context = {
        "application": detail.application,
        "what": f"Which query is {pending.query}?",
        "consequences": [
            "The script starts this query, but has not started queries that it started before: "
            f"{', '.join(pending.missing)}.",
            "The query has not been started. The script starts again once you have answered.",
        ],
        "fields": [("identity", pending.identity)],
        "choices": ("same_as", _choices(pending)),
        "action": reverse("application-question", args=[name]),
        "back": back,
    }
    return render(request, "scripts/question.html", context)


def _choices(pending: Asking) -> list[tuple[str, str, str]]:
    same = "It continues from that checkpoint and keeps its history."
    other = "It begins with its own checkpoint. The previous queries are kept unchanged."
    return [
        *((name, f"The same as {name}", same) for name in pending.missing),
        ("", "Another query", other),
    ]


urlpatterns += [
    path("applications/<str:name>/question/", question, name="application-question"),
]
