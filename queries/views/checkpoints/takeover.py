"""The page on which an author takes over another installation's checkpoint."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse

from queries.roles import DEFINE
from queries.selectors.definitions.definitions import query_definition
from queries.services.supervision import operations
from queries.views.console.guard import by, needs


@needs(DEFINE, "GET", "POST")
def take_over(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the risks of a takeover; confirm it, and start the query."""
    found = query_definition(name)
    address = reverse("query", args=[name])
    if request.method == "POST":
        operations.confirm_takeover(query=found.query, **by(request))
        messages.success(request, f"{name} takes over its checkpoint and starts.")
        return redirect(address)
    context = {
        "query": found.query,
        "what": f"Take over the checkpoint of {name}?",
        "consequences": [
            f"The owner file next to {found.checkpoint} names another Headgate installation.",
            "If that installation still runs the query, both will write: batches are executed "
            "twice and the checkpoint can be damaged. Make sure that it does not.",
            f"{name} then starts here and continues where the other one stopped.",
        ],
        "action": request.path,
        "cancel": address,
    }
    return render(request, "failures/takeover.html", context)


urlpatterns = [path("queries/<query:name>/takeover/", take_over, name="query-takeover")]
