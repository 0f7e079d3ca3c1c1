"""Release an object from its file's owner; from then on, it is only changed by hand."""

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.urls import path, reverse

from queries.models.alerts import AlertRule
from queries.roles import ADMINISTER, DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.manifests.owners import managed_of
from queries.selectors.supervision import applications
from queries.services.manifests.ownership import release
from queries.views.console.errors import answered
from queries.views.console.guard import actor_and_now, needs
from queries.views.console.shell import next_address


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


urlpatterns = [
    path("queries/<query:name>/release/", release_query, name="query-release"),
    path("applications/<str:name>/release/", release_application, name="application-release"),
    path("alerts/rules/<str:name>/release/", release_rule, name="alert-rule-release"),
]
