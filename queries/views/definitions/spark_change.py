"""The page that changes an application's Spark: what it does to each checkpoint, tried first."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse

from queries.domain.errors import HeadgateError
from queries.domain.sparks import SPARKS, command, is_older, spark_of
from queries.models.applications import Application
from queries.roles import DEFINE, OPERATE
from queries.selectors.definitions.definitions import application_definition
from queries.selectors.definitions.spark_change import spark_rows
from queries.selectors.definitions.sparks import installed_sparks
from queries.services.definitions import catalog
from queries.services.probes.preflight import with_spark
from queries.services.probes.spark_trials import begin_spark_trials
from queries.services.supervision.application_operations import request_application_restart
from queries.views.console.errors import status_of
from queries.views.console.guard import actor_and_now, author, needs
from queries.views.console.numbers import whole


@needs(DEFINE, "GET", "POST")
def change_spark(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what another Spark does with each checkpoint; try it, or save it and restart."""
    found = application_definition(name)
    application, now_on = found.application, spark_of(found.newest.spec)
    given = (request.POST if request.method == "POST" else request.GET).get("to", "")
    to = next((one for one in SPARKS if one == given), None)
    context = {
        "found": found,
        "application": application,
        "now_on": now_on,
        "to": to,
        "others": [one for one in SPARKS if one != now_on],
        "back": to is not None and is_older(to, now_on),
        "rows": spark_rows(application, to) if to is not None and to != now_on else [],
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


urlpatterns = [
    path("applications/<str:name>/spark/", change_spark, name="application-spark"),
]
