"""Decide whether a script's new query is one of those that are missing."""

from functools import partial

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse

from queries.roles import DEFINE
from queries.selectors.scripts import Asking, asking
from queries.selectors.supervision.applications import application_detail
from queries.services.supervision.application_operations import answer_script
from queries.views.console.errors import answered
from queries.views.console.guard import actor_and_now, needs


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


urlpatterns = [
    path("applications/<str:name>/question/", question, name="application-question"),
]
