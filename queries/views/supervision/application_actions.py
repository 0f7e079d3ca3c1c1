"""Restart and stop an application, after saying who is affected."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import path, reverse

from queries.domain.states import HANGING_REASONS, LIVE_PHASES, Desired
from queries.roles import OPERATE
from queries.selectors.supervision.applications import ApplicationDetail, application_detail
from queries.services.supervision.application_operations import (
    request_application_restart,
    request_application_stop,
    request_script_start,
)
from queries.views.console.errors import answered
from queries.views.console.guard import by, needs
from queries.views.supervision.consequences import STOP_MODES, named, stop_mode


@needs(OPERATE, "GET", "POST")
def act(request: HttpRequest, name: str, *, restart: bool) -> HttpResponseBase:
    """Say which queries a restart or a stop of their application affects; ask for it on POST."""
    detail = application_detail(name)
    if request.method == "GET":
        return _confirm(request, detail, restart=restart)
    request_it: Callable[..., Any]
    if restart:
        said, request_it = f"{name} will restart in a new driver.", request_application_restart
    else:
        what = "script" if detail.script else "queries"
        said = f"The {what} of {name} will stop."
        request_it = partial(request_application_stop, mode=stop_mode(request.POST))
    ask = partial(request_it, application=detail.application, **by(request))
    return answered(request, ask, said, reverse("application", args=[name]))


def _confirm(request: HttpRequest, detail: ApplicationDetail, *, restart: bool) -> HttpResponse:
    verb = "restart" if restart else "stop"
    name = detail.application.name
    hanging = _hanging(detail)
    live = [
        query.name
        for query in detail.queries
        if query.phase in LIVE_PHASES and query.name not in hanging
    ]
    context = {
        "application": detail.application,
        "restart": restart,
        "what": f"{verb.capitalize()} {name}?",
        "consequences": (_restart_words if restart else _stop_words)(detail, live),
        "action": reverse(f"application-{verb}", args=[name]),
        "cancel": reverse("application", args=[name]),
        "choices": () if restart else ("mode", STOP_MODES),
    }
    return render(request, "supervision/applications/confirm.html", context)


def _hanging(detail: ApplicationDetail) -> list[str]:
    """Return the queries of which a thread does not end in the driver."""
    return [query.name for query in detail.queries if query.phase_reason in HANGING_REASONS]


def _restart_words(detail: ApplicationDetail, live: list[str]) -> list[str]:
    if detail.script is not None:
        return [
            "Its queries stop after the batches in flight; then the script ends.",
            "It runs again in a new driver, on the newest revision and the code as it is now.",
            "Queries with a temporary checkpoint start from the beginning.",
            "Other applications are not affected.",
        ]
    hanging = _hanging(detail)
    ends = [
        f"A thread of {named(hanging)} does not end: the driver is ended by force once the other "
        "queries have stopped. A batch that the thread is writing may be written in part, and is "
        "executed again by the next start."
    ]
    if not live:
        none = "None of its other queries" if hanging else "None of its queries"
        return [*(ends if hanging else ()), f"{none} is running: nothing is interrupted."]
    newer = ", ".join(detail.needs_restart)
    return [
        *(ends if hanging else ()),
        f"{named(live)} {'stops' if len(live) == 1 else 'stop'} after the batch in flight and "
        f"{'continues' if len(live) == 1 else 'continue'} in a new driver from "
        f"{'its checkpoint' if len(live) == 1 else 'their checkpoints'}.",
        "A new driver commits its first batch after about 5 to 15 seconds.",
        f"It picks up what changed since the driver started: {newer}."
        if newer
        else "There are no changes to pick up: revision, pools and code are the same.",
        "Other applications are not affected.",
    ]


def _stop_words(detail: ApplicationDetail, live: list[str]) -> list[str]:
    if detail.script is not None:
        return [
            "Its queries stop after the batches in flight; then the script ends. One that goes on "
            "though nothing runs is ended.",
            "It will not run until a user starts it again.",
            "Checkpoints are kept, temporary ones excepted.",
            "Other applications are not affected.",
        ]
    wanted = [query.name for query in detail.queries if query.desired == Desired.RUNNING]
    if not wanted and not live:
        return ["None of its queries is running or set to run: nothing changes."]
    return [
        f"{named(sorted({*wanted, *live}))} will not run until a user starts "
        f"{'it' if len({*wanted, *live}) == 1 else 'them'} again.",
        "Its driver ends when the last of them has stopped.",
        "Checkpoints are kept: a start continues where the query stopped.",
        "Other applications are not affected.",
    ]


@needs(OPERATE, "POST")
def start(request: HttpRequest, name: str) -> HttpResponseBase:
    """Start the script of an application."""
    ask = partial(
        request_script_start, application=application_detail(name).application, **by(request)
    )
    return answered(
        request, ask, f"The script of {name} will start.", reverse("application", args=[name])
    )


urlpatterns = [
    path("applications/<str:name>/start/", start, name="application-start"),
    *(
        path(
            f"applications/<str:name>/{verb}/",
            act,
            {"restart": verb == "restart"},
            name=f"application-{verb}",
        )
        for verb in ("restart", "stop")
    ),
]
