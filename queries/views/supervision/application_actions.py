"""Restart and stop an application, after showing which queries are affected."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import path, reverse

from queries.domain.errors import NotAllowed
from queries.domain.states import HANGING_REASONS, LIVE_PHASES, Desired
from queries.roles import OPERATE
from queries.selectors.hosts import away
from queries.selectors.supervision.applications import (
    ApplicationDetail,
    application,
    application_detail,
)
from queries.services.supervision.application_operations import (
    request_application_restart,
    request_application_stop,
    request_script_start,
)
from queries.services.system.installation import declare_host_gone
from queries.views.console.errors import answered
from queries.views.console.shell import actor_and_now, needs
from queries.views.supervision.actions import STOP_MODES, named, stop_mode, while_away


@needs(OPERATE, "GET", "POST")
def act(request: HttpRequest, name: str, *, restart: bool) -> HttpResponseBase:
    """Show which queries a restart or stop of their application affects; request it on POST."""
    detail = application_detail(name)
    if request.method == "GET":
        return _confirm(request, detail, restart=restart)
    request_it: Callable[..., Any]
    if restart:
        message, request_it = f"{name} will restart in a new driver.", request_application_restart
    else:
        what = "script" if detail.script else "queries"
        message = f"The {what} of {name} will stop."
        request_it = partial(request_application_stop, mode=stop_mode(request.POST))
    perform = partial(request_it, application=detail.application, **actor_and_now(request))
    return answered(request, perform, message, reverse("application", args=[name]))


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
        "heading": f"{verb.capitalize()} {name}",
        "button": verb.capitalize(),
        "what": f"{verb.capitalize()} {name}?",
        "consequences": [
            *while_away(away(detail.application), verb),
            *(_restart_words if restart else _stop_words)(detail, live),
        ],
        "action": reverse(f"application-{verb}", args=[name]),
        "cancel": reverse("application", args=[name]),
        "choices": () if restart else ("mode", STOP_MODES),
    }
    return render(request, "supervision/applications/confirm.html", context)


def _hanging(detail: ApplicationDetail) -> list[str]:
    """Return the queries with a thread in the driver that does not end."""
    return [query.name for query in detail.queries if query.phase_reason in HANGING_REASONS]


def _restart_words(detail: ApplicationDetail, live: list[str]) -> list[str]:
    if detail.script is not None:
        return [
            "Its queries stop after the batches in flight; then the script ends.",
            "The script runs again in a new driver, with the newest revision and current code.",
            "Queries with a temporary checkpoint start from the beginning.",
            "Other applications are not affected.",
        ]
    hanging = _hanging(detail)
    ends = [
        f"A thread of {named(hanging)} does not end: the driver is killed once the other "
        "queries have stopped. A batch that the thread is writing may be partly written; the "
        "next start executes it again."
    ]
    if not live:
        none = "None of its other queries" if hanging else "None of its queries"
        return [*(ends if hanging else ()), f"{none} is running, so nothing is interrupted."]
    newer = ", ".join(detail.needs_restart)
    return [
        *(ends if hanging else ()),
        f"{named(live)} {'stops' if len(live) == 1 else 'stop'} after the batch in flight and "
        f"{'continues' if len(live) == 1 else 'continue'} in a new driver from "
        f"{'its checkpoint' if len(live) == 1 else 'their checkpoints'}.",
        "A new driver commits its first batch after about 5 to 15 seconds.",
        f"It picks up changes since the driver started: {newer}."
        if newer
        else "There are no changes to pick up: revision, pools and code are the same.",
        "Other applications are not affected.",
    ]


def _stop_words(detail: ApplicationDetail, live: list[str]) -> list[str]:
    if detail.script is not None:
        return [
            "Its queries stop after the batches in flight; then the script ends. If it "
            "is still running after that, it is terminated.",
            "It will not run until a user starts it again.",
            "Checkpoints are kept, except temporary ones.",
            "Other applications are not affected.",
        ]
    wanted = [query.name for query in detail.queries if query.desired == Desired.RUNNING]
    if not wanted and not live:
        return ["None of its queries is running or set to run, so nothing changes."]
    return [
        f"{named(sorted({*wanted, *live}))} will not run until a user starts "
        f"{'it' if len({*wanted, *live}) == 1 else 'them'} again.",
        "Its driver ends when the last of them has stopped.",
        "Checkpoints are kept; a start continues where the query stopped.",
        "Other applications are not affected.",
    ]


@needs(OPERATE, "POST")
def start(request: HttpRequest, name: str) -> HttpResponseBase:
    """Start the script of an application."""
    perform = partial(
        request_script_start,
        application=application_detail(name).application,
        **actor_and_now(request),
    )
    return answered(
        request, perform, f"The script of {name} will start.", reverse("application", args=[name])
    )


@needs(OPERATE, "GET", "POST")
def host_gone(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the risks of declaring an application's host gone; on POST, with its name, do it."""
    row, back = application(name), reverse("application", args=[name])
    silent = away(row)
    if request.method == "POST":
        perform = partial(
            declare_host_gone,
            application=row,
            host=request.POST.get("typed", "").strip(),
            **actor_and_now(request),
        )
        return answered(request, perform, f"The driver of {name} is now considered dead.", back)
    if silent is None:
        raise NotAllowed(
            f"The host of {name} is sending heartbeats.",
            way_out="Stop or restart the application instead.",
        )
    context = {
        "application": row,
        "heading": "Declare the host gone",
        "what": f"Declare host {silent.name} gone for {name}?",
        "consequences": [
            f"The driver of {name} on {silent.name} is considered dead. If it still runs "
            "there, it ends within seconds. If it cannot reach Redis, it continues to write "
            "to its sinks until that host is back; the worker there then ends it first.",
            f"Checkpoints stored on {silent.name} stay there: their queries wait for the "
            "host, unless you reset them to start on another host without their state.",
            "If all checkpoints are in shared storage, another host starts the queries.",
            "Other applications are not affected. The declaration is recorded in the audit log.",
        ],
        "action": reverse("application-host-gone", args=[name]),
        "cancel": back,
        "button": "Declare it gone",
        "name_to_type": silent.name,
    }
    return render(request, "supervision/applications/confirm.html", context)


urlpatterns = [
    path("applications/<str:name>/host-gone/", host_gone, name="application-host-gone"),
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
