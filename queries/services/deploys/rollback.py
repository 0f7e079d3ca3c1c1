"""The definitions in use before a deploy, and the rollback of one query to an earlier revision."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.nudge import changed
from queries.domain.deploys.request import ChangeKind
from queries.domain.errors import Conflict, NotAllowed
from queries.domain.states import FAILED_PHASES, Desired
from queries.models.applications import Application
from queries.models.definitions import Query, QueryRevision
from queries.models.deploys import DeployChange
from queries.models.history import Operation
from queries.roles import AuthorRights
from queries.selectors.deploys.evidence import query_of
from queries.services.definitions import catalog
from queries.services.definitions.catalog import save_pool
from queries.services.definitions.rights import (
    former_revision,
    insist_query,
    parsed,
    restore_application,
    restore_query,
)
from queries.services.definitions.writing import one_at_a_time
from queries.services.supervision import operations


def is_changed(change: DeployChange) -> bool:
    """Return whether a user has changed a definition since the deploy wrote it.

    A deploy restores only definitions that it wrote. If a query only restarts with its application,
    its newest definition may be waiting for a start, or its script may have created it.
    """
    if not change.is_written:
        return False
    owner = _owner(change)
    newest = owner.revisions.order_by("-number").values_list("number", flat=True).first()
    return owner.archived_at is not None or newest not in (
        change.to_revision,
        change.back_revision,
    )


def application_revision(changes: Iterable[DeployChange], change: DeployChange) -> int | None:
    """Return the application revision that a query ran with before; None for the newest."""
    own = (
        candidate.from_revision
        for candidate in changes
        if candidate.kind == ChangeKind.APPLICATION
        and candidate.application_id == change.application_id
    )
    return next(own, None)


def restore(change: DeployChange, *, actor: str, now: datetime) -> None:
    """Make a former definition the newest again, in the caller's transaction."""
    assert change.from_revision is not None, "what is new was nothing before"
    owner = _owner(change)
    by: dict[str, Any] = {"actor": actor, "now": now}
    if isinstance(owner, Query):
        made = restore_query(owner, change.from_revision, **by).number
        changed(f"query:{owner.pk}")
    else:
        made = restore_application(owner, change.from_revision, **by).number
        for pool in change.former.get("pools", []):  # a new pool is kept; it is harmless
            save_pool(application=owner, spec=pool, **by)
        changed(f"application:{owner.pk}")
    change.back_revision = made
    change.save(update_fields=["back_revision"])


def _owner(change: DeployChange) -> Query | Application:
    if change.kind == ChangeKind.QUERY:
        return query_of(change)
    assert change.application_id is not None, "what was written is there"
    return Application.objects.get(pk=change.application_id)


def rollback_query(
    *,
    query: Query,
    revision: int,
    actor: str,
    now: datetime,
    rights: AuthorRights,
    accept_state_change: bool = False,
) -> Operation:
    """Make an earlier revision the newest again, and run the query on it.

    The checkpoint does not change, so offsets continue; a preflight shows beforehand whether the
    revision can continue from it. Raises `Missing` if there is no such revision, `NotAllowed` for
    the newest one, `Invalid` if the revision could not be saved today, `Forbidden` if it adds code
    and `rights` do not allow the actor to write it, `Conflict` while a deploy changes the query
    or, unless `accept_state_change`, if it changes the meaning of the state.
    """
    former = _former(query, revision, rights=rights)
    catalog.plan_query(query=query, spec=former.spec, rights=rights)
    with transaction.atomic():
        one_at_a_time()
        _refuse_beside_a_deploy(query)
        _former(query, revision, rights=rights)  # a new one may have been saved since
        restore_query(query, revision, actor=actor, now=now)
        changed(f"query:{query.pk}")
        accepts = accept_state_change
        return run_newest(query, actor=actor, now=now, accept_state_change=accepts)


def _former(query: Query, number: int, *, rights: AuthorRights) -> QueryRevision:
    """Return the revision to go back to; raise if it is the newest one or adds forbidden code."""
    former = former_revision(query, number)
    if former.number == query.revisions.order_by("-number")[0].number:
        way_out = "Restart the query to run that revision."
        raise NotAllowed(
            f"Revision {number} is already the newest of {query.name}.", way_out=way_out
        )
    insist_query(rights, parsed(former.spec), query)
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
