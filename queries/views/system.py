"""The state of Headgate itself, part by part, and the isolation (walls) of drivers on this host."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone

from queries.roles import VIEW
from queries.services.system.health import system_health
from queries.views.console.guard import needs


@needs(VIEW, "GET")
def system(request: HttpRequest) -> HttpResponse:
    """Show each part with its sentence."""
    health = system_health(timezone.now())
    return render(request, "console/settings/system.html", {"health": health})


urlpatterns = [path("settings/system/", system, name="system")]
