"""Read runs, newest first, and one run with its neighbours and its first and last batches."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from listeners import selectors as heard
from listeners.models import Progress
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.failures import Failure
from queries.models.history import Operation, Transition
from queries.selectors.failures.failures import failures_of_run
from queries.selectors.first_or_missing import found


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with its previous and next runs, and its first and last batches."""

    run: Run
    previous: Run | None
    next: Run | None
    failures: list[Failure]  # including the driver's death, if that ended it
    summary: dict[str, Any] | None  # listeners.selectors.run_summary
    transitions: list[Transition]  # oldest first


@dataclass(frozen=True, slots=True)
class EdgeBatch:
    """One batch of a run: its time, size and offsets."""

    batch: int
    at: datetime
    rows: int
    duration_ms: int
    repaired: bool
    sources: list[tuple[str, Any, Any]]  # (description, start offset, end offset)


def runs() -> QuerySet[Run]:
    """Return all runs, newest first, with query, driver, application, revision, checkpoint."""
    return Run.objects.select_related(
        "query",
        "driver__application",
        "driver__application_revision",
        "revision",
        "checkpoint",
    ).order_by("-epoch")


def runs_of(query: Query) -> QuerySet[Run]:
    """Return a query's runs, newest first."""
    return runs().filter(query=query)


def drivers_of_query(query: Query, *, most: int = 20) -> list[Driver]:
    """Return the drivers of a query's runs, newest first."""
    hosts = Run.objects.filter(query=query).order_by().values("driver")
    rows = Driver.objects.filter(pk__in=hosts).select_related("application", "application_revision")
    return list(rows.order_by("-epoch")[:most])


def first_attempt(operation: Operation) -> Run | None:
    """Return the first run that a start or restart led to; None if there is none."""
    rows = Run.objects.filter(query=operation.query_id, generation=operation.generation)
    return rows.order_by("epoch").first()


def run_with_neighbours(*, run_id: int) -> RunDetail:
    """Return a run by its number; raise `Missing` if there is none."""
    rows = runs().select_related("driver__application_revision").filter(pk=run_id)
    run = found(rows, f"Run {run_id} does not exist.")
    others = Run.objects.filter(query=run.query_id)
    return RunDetail(
        run=run,
        previous=others.filter(epoch__lt=run.epoch).order_by("-epoch").first(),
        next=others.filter(epoch__gt=run.epoch).order_by("epoch").first(),
        failures=list(failures_of_run(run)),
        summary=heard.run_summary(run.pk),
        transitions=list(run.transitions.order_by("at", "pk")),
    )


def edge_batches(run_id: int) -> tuple[EdgeBatch, EdgeBatch] | None:
    """Return the first and the last executed batch of a run; None if no batch is stored."""
    rows = Progress.objects.filter(run=run_id).order_by("batch")
    first, last = rows.first(), rows.last()
    return (_edge(first), _edge(last)) if first and last else None


def _edge(row: Progress) -> EdgeBatch:
    sources = row.body.get("sources") or ()
    return EdgeBatch(
        batch=row.batch,
        at=row.at,
        rows=row.num_input_rows,
        duration_ms=row.batch_duration_ms,
        repaired=row.repaired,
        sources=[
            (str(one.get("description", "")), one.get("startOffset"), one.get("endOffset"))
            for one in sources
        ],
    )
