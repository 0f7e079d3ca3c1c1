"""Deploys: the list, the reports, and the buttons to cancel a deploy or roll a query back."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils import timezone

from queries.domain.deploys.request import ROLLBACK_STAGES, DeployStage, DeployState, OnFailure
from queries.domain.errors import NotAllowed
from queries.models.deploys import Deploy
from queries.roles import DEFINE, VIEW
from queries.selectors.definitions.definitions import query_definition
from queries.selectors.deploys.reports import deploy_of, deploy_report, deploys
from queries.selectors.lineage import in_words
from queries.selectors.probes import change_of, sentences
from queries.services.deploys.requesting import cancel_deploy
from queries.services.deploys.rollback import rollback_query
from queries.views.console.errors import answered
from queries.views.console.fragments import (
    Changes,
    Drawn,
    filters,
    fragments,
    page_of,
    parts,
    whole,
)
from queries.views.console.shell import actor_and_now, author, needs, next_address

_MOVING = ("status", "report")


@needs(VIEW)
def deploy_list(request: HttpRequest) -> HttpResponseBase:
    """List deploys, newest first."""
    list_filters = filters(request.GET, ("query", "owner"), state=("", *DeployState))
    rows = deploys(**list_filters)
    context = {
        "page": page_of(rows, by="created_at", cursor=request.GET.get("after", "")),
        "filters": list_filters,
        "states": list(DeployState),
        "filtered": any(list_filters.values()),
        "now": timezone.now(),
    }
    return render(request, "deploys/list.html", context)


@needs(VIEW)
def deploy_page(request: HttpRequest, uuid: UUID) -> HttpResponseBase:
    """Show one deploy report, which covers its progress so far."""
    return render(request, "deploys/deploy.html", _moving(deploy_of(uuid), timezone.now()))


def _moving(row: Deploy, now: datetime) -> dict[str, Any]:
    stage = DeployStage(row.stage) if row.stage else None
    goes_on = row.ended_at is None and row.stage not in ROLLBACK_STAGES
    return {
        "deploy": row,
        "report": deploy_report(row),
        "unsure": in_words(row.unsure),
        "stage": stage,
        "going_back": row.stage in ROLLBACK_STAGES,
        "can_cancel": goes_on and not row.cancelled_by,
        "good": _good(row.good),
        "now": now,
    }


def _good(criteria: dict[str, Any]) -> list[str]:
    """Describe the conditions for a good query."""
    conditions = ["its first commit or an idle trigger"] if criteria["first_commit"] else []
    conditions += [f"{criteria['batches']} batches"] if criteria["batches"] else []
    conditions += [f"{criteria['minutes']} minutes of running"] if criteria["minutes"] else []
    conditions += ["lag no worse than before"] if criteria["lag_not_worse"] else []
    conditions += ["no new failures"] if criteria["no_new_failures"] else []
    return conditions


@fragments("deploys", hears=("deploys",))
def draw_deploys(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the states of the newest deploys."""
    for row in deploys()[:50]:
        context = {"deploy": row, "now": now}
        yield f"deploy-row-{row.pk}", render_to_string("deploys/_row.html", context)


@fragments("deploy", hears=("deploy",), own_key_only=("deploy",))
def draw_deploy(key: str, changes: Changes, now: datetime) -> Drawn:
    """Draw the parts of a deploy's page that change."""
    row = deploys().filter(pk=whole(key) or 0).first()
    if row is not None:
        yield from parts(_MOVING, "deploy", "deploys", key, _moving(row, now))


@needs(DEFINE, "GET", "POST")
def cancel(request: HttpRequest, uuid: UUID) -> HttpResponseBase:
    """Show what cancelling leaves behind; cancel on POST."""
    row = deploy_of(uuid)
    back = next_address(request, reverse("deploy", args=[uuid]))
    if request.method == "POST":
        perform = partial(cancel_deploy, row, **actor_and_now(request))
        return answered(request, perform, "The deploy is being cancelled.", back)
    if row.ended_at is not None or row.stage in ROLLBACK_STAGES:
        raise NotAllowed(
            "The deploy can no longer be cancelled.", way_out="Check the deploy report."
        )
    rolls_back = row.on_failure == OnFailure.ROLLBACK
    left = (
        "Its changes are rolled back, and the changed queries restart."
        if rolls_back
        else "Its changes are kept."
    )
    context = {
        "deploy": row,
        "what": "Cancel this deploy?",
        "consequences": ["No further waves start.", left],
        "action": reverse("deploy-cancel", args=[uuid]),
        "back": back,
    }
    return render(request, "deploys/cancel.html", context)


@needs(DEFINE, "GET", "POST")
def rollback(request: HttpRequest, name: str, number: int) -> HttpResponseBase:
    """Show what a rollback does; roll back on POST."""
    definition = query_definition(name)
    former = definition.numbered(number)
    back = next_address(request, reverse("query-definition", args=[name]))
    if request.method == "POST":
        accepted = request.POST.get("accept_state_change") == "1"
        how = {"accept_state_change": accepted, **author(request)}
        perform = partial(rollback_query, query=definition.query, revision=number, **how)
        message = f"{name} is restarting on revision {number}."
        return answered(request, perform, message, back)
    change = change_of(definition.query, former.spec, former.state, former.state_by)
    changed = sentences(change) if change is not None and change.silent else []
    context = {
        "query": definition.query,
        "what": f"Roll {name} back to revision {number}?",
        "consequences": [
            *changed,
            f"Revision {number}, by {former.author}, becomes the newest again as revision "
            f"{definition.newest.number + 1}.",
            "The query restarts on that revision; a stopped query starts.",
            "The checkpoint does not change, and reading continues from its offsets. If the "
            "definitions keep different state, run a preflight first.",
        ],
        "action": reverse("query-rollback", args=[name, number]),
        "button": "Roll back with the old state" if changed else "Roll back",
        "tone": "bad" if changed else "",
        "fields": [("accept_state_change", "1")] if changed else [],
        "back": back,
    }
    return render(request, "deploys/rollback.html", context)


urlpatterns = [
    path("deploys/", deploy_list, name="deploys"),
    path("deploys/<uuid:uuid>/", deploy_page, name="deploy"),
    path("deploys/<uuid:uuid>/cancel/", cancel, name="deploy-cancel"),
    path("queries/<query:name>/revisions/<int:number>/rollback/", rollback, name="query-rollback"),
]
