"""Restore a query after the operation that switches off async tracking ended early."""

from typing import Any

from queries.domain.definitions.parsing import parse_query
from queries.domain.errors import HeadgateError
from queries.domain.states import DOWN_PHASES, Desired, OperationOutcome, StopMode
from queries.domain.triggers.async_progress import switched, tracking
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.history import Operation
from queries.selectors.triggers.replay_exposure import gap_of
from queries.services.definitions import catalog
from queries.services.procedures.engine import StepContext
from queries.services.supervision import operations


def newest_of(query: Query) -> QueryRevision:
    """Return a query's newest revision."""
    return query.revisions.order_by("-number")[0]


def base_of(context: StepContext) -> QueryRevision:
    """Return the revision that the operation began with."""
    return context.query.revisions.get(number=context.arguments["revision"])


def location_of(query: Query) -> str:
    """Return the location of a query's checkpoint."""
    return Checkpoint.objects.get(query=query, retired_at=None).location


def same(spec: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two stored definitions are equal; omitted values are defaults."""
    return parse_query(spec) == parse_query(other)


def put_back(context: StepContext) -> None:
    """Restore the definition and state after an operation that ended before its last step.

    If a user's start or stop has superseded the operation, the definition is restored, but the
    query runs or stops as the user requested. A query that had failed on the gap stays stopped.
    """
    try:
        left = _restore(context)
        if context.operation.outcome != OperationOutcome.SUPERSEDED:
            left += f" {_as_it_ran(context)}"
    except HeadgateError as error:
        left = f"Not everything could be restored: {error}"
    context.result["left"] = left.strip()


def _restore(context: StepContext) -> str:
    base, last = base_of(context), newest_of(context.query)
    ours = (switched(base.spec, 0), switched(base.spec, None))
    if last.number == base.number or same(last.spec, base.spec):
        return f"The definition is revision {last.number}, as before."
    if not any(same(last.spec, spec) for spec in ours):
        return f"The definition is revision {last.number}, saved by {last.author}."
    revision = catalog.revise_query(
        query=context.query,
        spec=base.spec,
        expected_revision=last.number,
        actor=context.operation.actor,
        now=context.now,
        gap_accepted=True,
        python=True,  # checked when it was requested
    )
    return f"Revision {revision.number} restores revision {base.number}."


def _as_it_ran(context: StepContext) -> str:
    """Return the query to running or stopped, as it was before."""
    children = Operation.objects.filter(parent=context.operation)
    if not children.exists():
        return ""  # its state was never touched
    if children.filter(created_at__gte=context.operation.ended_at).exists():
        return "The query is being returned to its previous state."  # by a worker that has died
    query, actor, within = context.query, context.operation.actor, context.operation
    runs_again = context.arguments["was"] == Desired.RUNNING and (
        tracking(base_of(context).spec) is not None or gap_of(location_of(query)) is None
    )
    if runs_again and query.desired == Desired.RUNNING and query.phase not in DOWN_PHASES:
        operations.request_restart(query=query, actor=actor, now=context.now, within=within)
        return "It restarts on that revision."
    if runs_again:
        operations.request_start(query=query, actor=actor, now=context.now, within=within)
        return "It starts on that revision."
    operations.request_stop(
        query=query, mode=StopMode.GRACEFUL, actor=actor, now=context.now, within=within
    )
    return "It stays stopped."
