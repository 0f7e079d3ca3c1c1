"""Roll one query back to an earlier revision, on a user's request."""

from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.errors import Conflict, NotAllowed
from queries.domain.states import FAILED_PHASES, Desired
from queries.models.definitions import Query, QueryRevision
from queries.models.deploys.receipts import DeployChange
from queries.models.history import Operation
from queries.services.definitions import catalog
from queries.services.definitions.code_rights import insist_query, parsed
from queries.services.definitions.revisions import former_revision, restore_query
from queries.services.definitions.writing import one_at_a_time
from queries.services.supervision import operations


def rollback_query(
    *,
    query: Query,
    revision: int,
    actor: str,
    now: datetime,
    python: bool,
    accept_state_change: bool = False,
) -> Operation:
    """Make an earlier revision the newest again, and run the query on it.

    The checkpoint does not change, so offsets continue; a preflight shows beforehand whether the
    revision can continue from it. Raises `Missing` if there is no such revision, `NotAllowed` for
    the newest one, `Invalid` if the revision could not be saved today, `Forbidden` if it adds code
    and `python` does not allow the actor to write it, `Conflict` while a deploy changes the query
    or, unless `accept_state_change`, if it changes the meaning of the state.
    """
    former = _former(query, revision, python=python)
    catalog.plan_query(query=query, spec=former.spec, python=python)
    with transaction.atomic():
        one_at_a_time()
        _refuse_beside_a_deploy(query)
        _former(query, revision, python=python)  # a new one may have been saved since
        restore_query(query, revision, actor=actor, now=now)
        changed(f"query:{query.pk}")
        accepts = accept_state_change
        return run_newest(query, actor=actor, now=now, accept_state_change=accepts)


def _former(query: Query, number: int, *, python: bool) -> QueryRevision:
    """Return the revision to go back to; raise if it is the newest one or adds forbidden code."""
    former = former_revision(query, number)
    if former.number == query.revisions.order_by("-number")[0].number:
        way_out = "Restart the query to run that revision."
        raise NotAllowed(
            f"Revision {number} is already the newest of {query.name}.", way_out=way_out
        )
    insist_query(python, parsed(former.spec), query)
    return former


def run_newest(query: Query, *, actor: str, now: datetime, accept_state_change: bool) -> Operation:
    """Run a query on its newest revision, whether or not it is running now."""
    row = Query.objects.get(pk=query.pk)
    how: dict[str, Any] = {"actor": actor, "now": now, "accept_state_change": accept_state_change}
    if row.desired != Desired.RUNNING:
        return operations.request_start(query=row, **how)
    if row.phase in FAILED_PHASES:
        return operations.request_start(query=row, keep_params=True, **how)
    return operations.request_restart(query=row, **how)


def _refuse_beside_a_deploy(query: Query) -> None:
    change = DeployChange.objects.filter(query=query, over=False).select_related("deploy").first()
    if change is not None:
        raise Conflict(
            f"{query.name} is being deployed.",
            way_out=(
                f"Cancel deploy {change.deploy.uuid}, which rolls it back, or wait for it to end."
            ),
        )
