"""What was asked and what changed: operations and transitions, newest first."""

from typing import Any

from django.db.models import QuerySet

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
