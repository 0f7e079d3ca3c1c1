"""Find rows by what users remember: part of a name, words of an error, a number."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, Q, QuerySet, Value, When

from headgate_ground.tolerant.values import whole
from queries.domain.alerts.kinds import IncidentState
from queries.domain.states import GroupStatus
from queries.models.alerts import Incident
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.failures import FailureGroup
from queries.models.history import Operation
from queries.selectors import visible

#: Rows shown per kind; to find others, type more.
MOST = 6


@dataclass(frozen=True, slots=True)
class SearchMatches:
    """Rows by kind, best match first."""

    queries: list[Query]
    applications: list[Application]
    groups: list[FailureGroup]
    incidents: list[Incident]
    runs: list[Run]
    operations: list[Operation]


def find(text: str) -> SearchMatches:
    """Return the matches for a text; none for an empty one."""
    if not text:
        return SearchMatches([], [], [], [], [], [])
    return SearchMatches(
        queries=list(named(visible.queries().select_related("application"), text)[:MOST]),
        applications=list(named(visible.applications().filter(own=False), text)[:MOST]),
        groups=list(_groups(text)[:MOST]),
        incidents=list(_incidents(text)[:MOST]),
        runs=_runs(text),
        operations=_operations(text),
    )


def named(rows: "QuerySet[Query] | QuerySet[Application]", text: str) -> "QuerySet[Any]":
    """Return the existing rows whose name contains the text; those starting with it come first."""
    rank = Case(
        When(name__iexact=text, then=Value(0)),
        When(name__istartswith=text, then=Value(1)),
        default=Value(2),
    )
    return rows.filter(archived_at=None, name__icontains=text).order_by(rank, "name")


def _groups(text: str) -> QuerySet[FailureGroup]:
    """Return failure groups with every word of the text in error class or title, open first."""
    rows = visible.failure_groups().select_related("query", "application")
    for word in text.split()[:8]:
        rows = rows.filter(Q(title__icontains=word) | Q(query__name__icontains=word))
    closed = Case(When(status=GroupStatus.OPEN, then=Value(0)), default=Value(1))
    return rows.order_by(closed, "-last_seen")


def _incidents(text: str) -> QuerySet[Incident]:
    rows = Incident.objects.filter(state=IncidentState.OPEN)
    for word in text.split()[:8]:
        rows = rows.filter(Q(title__icontains=word) | Q(detail__icontains=word))
    return rows.order_by("-opened_at")


def _runs(text: str) -> list[Run]:
    """Return the run with this number ("41", "run 41"), or with this Spark run id."""
    number = whole(text.lower().removeprefix("run").strip())
    if number is not None:
        rows = visible.runs().filter(pk=number)
    elif len(text) >= 8 and set(text.lower()) <= set("0123456789abcdef-"):
        rows = visible.runs().filter(spark_run_id__istartswith=text)
    else:
        return []
    return list(rows.select_related("query")[:MOST])


def _operations(text: str) -> list[Operation]:
    try:
        uuid = UUID(text)
    except ValueError:
        return []
    return list(Operation.objects.filter(uuid=uuid).select_related("query", "application"))
