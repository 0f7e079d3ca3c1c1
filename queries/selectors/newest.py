"""Read the newest revision, run and checkpoint of many queries, each in one database query."""

from typing import Any

from django.db.models import OuterRef, Subquery

from queries.domain.triggers.intervals import interval_ms
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Run


def newest_revisions(query_ids: list[int]) -> dict[int, QueryRevision]:
    """Return each query's newest revision, in one database query."""
    newest = QueryRevision.objects.filter(query=OuterRef("query")).order_by("-number")
    rows = QueryRevision.objects.filter(query__in=query_ids, pk=Subquery(newest.values("pk")[:1]))
    return {row.query_id: row for row in rows.order_by()}


def param_defaults(query: Query) -> dict[str, Any]:
    """Return the parameters of a query's newest definition, with their defaults."""
    params: dict[str, Any] = query.revisions.order_by("-number")[0].spec.get("params", {})
    return params


def newest_runs(query_ids: list[int]) -> dict[int, Run]:
    """Return each query's newest run with driver and revision, in one database query.

    At most one run of a query is open, and it is the newest, because epochs only increase.
    """
    if not query_ids:
        return {}
    newest = Run.objects.filter(query=OuterRef("query")).order_by("-epoch")
    rows = Run.objects.filter(query__in=query_ids, pk=Subquery(newest.values("pk")[:1]))
    rows = rows.select_related("driver__application_revision", "revision")
    return {row.query_id: row for row in rows.order_by()}


def newest_drivers(query_ids: list[int]) -> dict[int, int]:
    """Return the driver id of each query's newest run, in one database query."""
    newest = Run.objects.filter(query=OuterRef("query")).order_by("-epoch")
    rows = Run.objects.filter(query__in=query_ids, pk=Subquery(newest.values("pk")[:1]))
    return dict(rows.order_by().values_list("query", "driver"))


def current_checkpoints(query_ids: list[int]) -> dict[int, Checkpoint]:
    """Return each query's current checkpoint, in one database query."""
    rows = Checkpoint.objects.filter(query__in=query_ids, retired_at=None)
    return {row.query_id: row for row in rows.order_by()}


def interval_of(trigger: dict[str, Any]) -> int | None:
    """Return a processing-time trigger's interval in milliseconds; None for other triggers."""
    if trigger.get("kind") != "processing_time":
        return None
    return interval_ms(str(trigger.get("interval", "")))
