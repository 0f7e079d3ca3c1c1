"""Read requests and changes: operations and transitions, newest first."""

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from queries.domain.states import (
    HELD_PHASES,
    STOPPED_PHASES,
    Completion,
    Desired,
    OperationOutcome,
    RunOutcome,
    Verb,
)
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.history import Operation, Transition
from queries.selectors import visible
from queries.selectors.first_or_missing import first_or_missing


def operations() -> QuerySet[Operation]:
    """Return all operations, newest first, with query, application and parent."""
    rows = Operation.objects.select_related("query", "application", "parent")
    return rows.order_by("-created_at", "-pk")


def operation(uuid: Any) -> Operation:
    """Return an operation; raise `Missing` if there is none."""
    return first_or_missing(operations().filter(uuid=uuid), f"Operation {uuid} does not exist.")


def completion(operation: Operation) -> Completion | None:
    """Return how the work that a start or restart of one query requested has ended.

    None while it goes on, which includes automatic restarts, and for other operations.
    """
    query = operation.query
    if query is None or operation.verb not in (Verb.START, Verb.RESTART):
        return None
    runs = visible.runs().filter(query=query, generation=operation.generation)
    if runs.filter(outcome=RunOutcome.COMPLETED).exists():
        return Completion.COMPLETED
    if query.generation != operation.generation:
        return Completion.SUPERSEDED
    if query.phase in HELD_PHASES:
        return Completion.FAILED
    stopped = query.desired == Desired.STOPPED and query.phase in STOPPED_PHASES
    return Completion.STOPPED if stopped else None


@dataclass(frozen=True, slots=True)
class OperationLine:
    """The outcome of one of the many objects of an operation."""

    name: str
    row: Query | Application | None  # None: deleted
    outcome: str  # "" while in progress
    detail: str
    way_out: str
    operation: str  # UUID of the operation that does it; "" if none was started
    failure: int | None


def lines_of(operation: Operation) -> list[OperationLine]:
    """Return the outcome of each object: failures first, then those in progress."""
    outcomes: list[dict[str, Any]] = operation.result.get("queries", [])
    ids = {
        of: [outcome["id"] for outcome in outcomes if bool(outcome.get("of")) is of]
        for of in (False, True)
    }
    queries = visible.queries().in_bulk(ids[False])
    applications = visible.applications().in_bulk(ids[True])
    lines = [
        OperationLine(
            name=outcome["name"],
            row=(applications if outcome.get("of") else queries).get(outcome["id"]),
            outcome=outcome["outcome"] or "",
            detail=outcome["detail"] or "",
            way_out=outcome.get("way_out") or "",
            operation=outcome["operation"] or "",
            failure=outcome.get("failure"),
        )
        for outcome in outcomes
    ]
    places = {OperationOutcome.OPEN: 1, OperationOutcome.DONE: 2}
    return sorted(lines, key=lambda outcome: places.get(outcome.outcome, 0))  # type: ignore[call-overload]


def transitions(
    *, query: Query | None = None, application: Application | None = None
) -> QuerySet[Transition]:
    """Return state changes, newest first: of a query, of an application, or all."""
    rows = Transition.objects.select_related("query", "application", "driver", "run", "operation")
    if query is not None:
        rows = rows.filter(query=query)
    if application is not None:
        rows = rows.filter(application=application)
    return rows.order_by("-at", "-pk")


def audit() -> QuerySet[Transition]:
    """Return the changes that users and CI made, newest first."""
    return transitions().exclude(actor="")
