"""What was asked and what changed: operations and transitions, newest first."""

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from queries.domain.states import OperationOutcome
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.history import Operation, Transition
from queries.selectors.found import found


def operations() -> QuerySet[Operation]:
    """Return all operations, newest first, with query, application and parent."""
    rows = Operation.objects.select_related("query", "application", "parent")
    return rows.order_by("-created_at", "-pk")


def operation(uuid: Any) -> Operation:
    """Return an operation; raise `Missing` where there is none."""
    return found(operations().filter(uuid=uuid), f"Operation {uuid} does not exist.")


@dataclass(frozen=True, slots=True)
class Line:
    """One of the many that an operation is about."""

    name: str
    row: Query | Application | None  # None: it is gone
    outcome: str  # "" while it is under way
    detail: str
    way_out: str
    operation: str  # UUID of the one that does it; "" where none was begun
    failure: int | None


def lines_of(operation: Operation) -> list[Line]:
    """Return what became of each of many: what did not succeed first, then what is under way."""
    held: list[dict[str, Any]] = operation.result.get("queries", [])
    ids = {of: [one["id"] for one in held if bool(one.get("of")) is of] for of in (False, True)}
    queries = Query.objects.in_bulk(ids[False])
    applications = Application.objects.in_bulk(ids[True])
    lines = [
        Line(
            name=one["name"],
            row=(applications if one.get("of") else queries).get(one["id"]),
            outcome=one["outcome"] or "",
            detail=one["detail"] or "",
            way_out=one.get("way_out") or "",
            operation=one["operation"] or "",
            failure=one.get("failure"),
        )
        for one in held
    ]
    places = {OperationOutcome.OPEN: 1, OperationOutcome.DONE: 2}
    return sorted(lines, key=lambda one: places.get(one.outcome, 0))  # type: ignore[call-overload]


def transitions(
    *, query: Query | None = None, application: Application | None = None
) -> QuerySet[Transition]:
    """Return changes of state, newest first, of a query, an application or all."""
    rows = Transition.objects.select_related("query", "application", "driver", "run", "operation")
    if query is not None:
        rows = rows.filter(query=query)
    if application is not None:
        rows = rows.filter(application=application)
    return rows.order_by("-at", "-pk")


def audit() -> QuerySet[Transition]:
    """Return what users and CI changed, newest first."""
    return transitions().exclude(actor="")
