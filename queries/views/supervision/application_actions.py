"""Restart and stop an application, after saying who is affected."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import path, reverse

from queries.domain.states import LIVE_PHASES
from queries.roles import OPERATE
from queries.selectors.supervision.applications import ApplicationDetail, application_detail
from queries.services.supervision import application_operations
from queries.views.console.errors import answered
from queries.views.console.guard import asked_by, needs
from queries.views.supervision.consequences import STOP_MODES, named, stop_mode


@needs(OPERATE, "GET", "POST")
def restart_application(request: HttpRequest, name: str) -> HttpResponseBase:
    """Say who is affected by a fresh driver; ask for it."""
    detail = application_detail(name)
    if request.method == "GET":
        return _confirm(request, detail, restart=True)
    return answered(
        request,
        lambda: application_operations.request_application_restart(
            application=detail.application, **asked_by(request)
        ),
        f"{name} gets a fresh driver.",
        reverse("application", args=[name]),
    )


@needs(OPERATE, "GET", "POST")
def stop_application(request: HttpRequest, name: str) -> HttpResponseBase:
    """Say which queries stop with their application; ask for it."""
    detail = application_detail(name)
    if request.method == "GET":
        return _confirm(request, detail, restart=False)
    return answered(
        request,
        lambda: application_operations.request_application_stop(
            application=detail.application, mode=stop_mode(request.POST), **asked_by(request)
        ),
        f"The queries of {name} stop.",
        reverse("application", args=[name]),
    )


def _confirm(request: HttpRequest, detail: ApplicationDetail, *, restart: bool) -> HttpResponse:
    name = detail.application.name
    live = [query.name for query in detail.queries if query.phase in LIVE_PHASES]
    context = {
        "application": detail.application,
        "restart": restart,
        "what": f"{'Restart' if restart else 'Stop'} {name}?",
        "consequences": (_restart_words if restart else _stop_words)(detail, live),
        "action": reverse("application-restart" if restart else "application-stop", args=[name]),
        "cancel": reverse("application", args=[name]),
        "choices": () if restart else ("mode", STOP_MODES),
    }
    return render(request, "supervision/applications/confirm.html", context)


def _restart_words(detail: ApplicationDetail, live: list[str]) -> list[str]:
    if not live:
        return ["None of its queries is running: nothing is interrupted."]
    newer = ", ".join(detail.needs_restart)
    return [
        f"{named(live)} {'stops' if len(live) == 1 else 'stop'} after the batch in flight and "
        f"{'goes' if len(live) == 1 else 'go'} on in a fresh driver from "
        f"{'its checkpoint' if len(live) == 1 else 'their checkpoints'}.",
        "A fresh driver commits its first batch after some 5 to 15 seconds.",
        f"It takes up what is newer than the driver: {newer}."
        if newer
        else "It takes up no change: revision, pools and code are the same.",
        "Other applications see nothing.",
    ]


def _stop_words(detail: ApplicationDetail, live: list[str]) -> list[str]:
    wanted = [query.name for query in detail.queries if query.desired == "RUNNING"]
    if not wanted and not live:
        return ["None of its queries is running or wanted: nothing changes."]
    return [
        f"{named(sorted({*wanted, *live}))} will not run until somebody starts "
        f"{'it' if len({*wanted, *live}) == 1 else 'them'} again.",
        "Its driver ends when the last of them has stopped.",
        "Checkpoints stay: a start goes on where the stop was.",
        "Other applications see nothing.",
    ]


urlpatterns = [
    path("applications/<str:name>/restart/", restart_application, name="application-restart"),
    path("applications/<str:name>/stop/", stop_application, name="application-stop"),
]
