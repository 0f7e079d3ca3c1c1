"""Definitions: validated, stored as immutable revisions, never half-done."""

from datetime import datetime
from typing import Any

from queries.models.applications import Application, ApplicationRevision, SchedulerPool
from queries.models.definitions import Query, QueryRevision


def create_application(
    *, name: str, spec: dict[str, Any], actor: str, now: datetime, own: bool = False
) -> Application:
    """Create an application with revision 1. Raises `Invalid` with every problem found."""
    raise NotImplementedError


def revise_application(
    *,
    application: Application,
    spec: dict[str, Any],
    expected_revision: int | None,
    actor: str,
    now: datetime,
) -> ApplicationRevision:
    """Add a revision. Raises `StaleRevision` where `expected_revision` is not the newest.

    The living driver keeps what it was launched with; the next launch takes the newest.
    A spec equal to the newest adds nothing and returns that one.
    """
    raise NotImplementedError


def save_pool(
    *, application: Application, spec: dict[str, Any], actor: str, now: datetime
) -> SchedulerPool:
    """Create or change a pool by name. Takes effect with the application's next driver."""
    raise NotImplementedError


def delete_pool(*, pool: SchedulerPool, actor: str, now: datetime) -> None:
    """Delete a pool; raises `Conflict` naming the queries that use it."""
    raise NotImplementedError


def create_query(
    *,
    name: str,
    spec: dict[str, Any],
    actor: str,
    now: datetime,
    application: str = "",
    application_spec: dict[str, Any] | None = None,
    checkpoint: str = "",
) -> Query:
    """Create a query with revision 1, its checkpoint row and, unless one is named, an
    application of its own (with `application_spec` or the defaults), in one transaction.

    An empty `checkpoint` is `file://CHECKPOINTS_DIR/NAME`. Raises `Invalid` with every
    problem found (name taken, checkpoint held or nested, naming the holder, …).
    """
    raise NotImplementedError


def revise_query(
    *,
    query: Query,
    spec: dict[str, Any],
    expected_revision: int | None,
    actor: str,
    now: datetime,
) -> QueryRevision:
    """Add a revision; it runs from the next start or restart on. See `revise_application`."""
    raise NotImplementedError


def check_query(
    *,
    name: str,
    spec: dict[str, Any],
    application: str = "",
    application_spec: dict[str, Any] | None = None,
    checkpoint: str = "",
    query: Query | None = None,
) -> None:
    """Validate without writing; raises `Invalid`. `query` is the one being edited, if any."""
    raise NotImplementedError
