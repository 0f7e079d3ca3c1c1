"""Say whether a query that came in a script is one of those that went."""

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
from queries.views.console.guard import by, needs


@needs(DEFINE, "GET", "POST")
def question(request: HttpRequest, name: str) -> HttpResponseBase:
    """Ask which query the new one is; take the answer on POST."""
    detail = application_detail(name)
    back = reverse("application", args=[name])
    if request.method == "POST":
        sent = {key: request.POST.get(key, "") for key in ("identity", "same_as")}
        ask = partial(answer_script, application=detail.application, **(sent | by(request)))
        same = f"It is {sent['same_as']}." if sent["same_as"] else "It is another query."
        return answered(request, ask, f"{same} The script of {name} goes on.", back)
    asked = asking(detail.script)
    if asked is None:
        messages.info(request, f"The script of {name} has no question.")
        return redirect(back)
    context = {
        "application": detail.application,
        "what": f"What is the query {asked.query}?",
        "consequences": [
            "The script starts it, and has not started what it started before: "
            f"{', '.join(asked.missing)}.",
            "Nothing of it has started. The script starts again once this is answered.",
        ],
        "fields": [("identity", asked.identity)],
        "choices": ("same_as", _choices(asked)),
        "action": reverse("application-question", args=[name]),
        "back": back,
    }
    return render(request, "scripts/question.html", context)


def _choices(asked: Asking) -> list[tuple[str, str, str]]:
    same = "It goes on from that checkpoint, and has its history."
    other = "It begins with a checkpoint of its own. What was started before is kept as it is."
    return [
        *((name, f"The same as {name}", same) for name in asked.missing),
        ("", "Another query", other),
    ]


urlpatterns = [
    path("applications/<str:name>/question/", question, name="application-question"),
]
