"""Find the definitions that were in use before a deploy, and restore them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from controlplane.nudge import changed
from queries.domain.deploys.states import ChangeKind
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.deploys.receipts import DeployChange
from queries.selectors.deploys.evidence import query_of
from queries.services.definitions.catalog import save_pool
from queries.services.definitions.revisions import restore_application, restore_query


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
