"""Read runs, newest first, and one run with its neighbours and its first and last batches."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import Count, QuerySet
from django.db.models.functions import TruncDate

from listeners import selectors as heard
from listeners.models import Progress
from queries.domain.definitions.spec import ENDING_TRIGGERS
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.failures import Failure
from queries.models.history import Operation, Transition
from queries.selectors import visible
from queries.selectors.failures.failures import failures_of_run
from queries.selectors.first_or_missing import first_or_missing


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with its previous and next runs, and its first and last batches."""

    run: Run
    previous: Run | None
    next: Run | None
    failures: list[Failure]  # including the driver's death, if that ended it
    summary: dict[str, Any] | None  # listeners.selectors.run_summary
    written: int | None  # rows; None: not reported, or it does not end by itself
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
    return (
        visible.runs()
        .select_related(
            "query",
            "driver__application",
            "driver__application_revision",
            "revision",
            "checkpoint",
        )
        .order_by("-epoch")
    )


def runs_of(query: Query) -> QuerySet[Run]:
    """Return a query's runs, newest first."""
    return runs().filter(query=query)


def drivers_of_query(query: Query, *, most: int = 20) -> list[Driver]:
    """Return the drivers of a query's runs, newest first."""
    hosts = visible.runs().filter(query=query).order_by().values("driver")
    rows = (
        visible.drivers().filter(pk__in=hosts).select_related("application", "application_revision")
    )
    return list(rows.order_by("-epoch")[:most])


def first_attempt(operation: Operation) -> Run | None:
    """Return the first run that a start or restart led to; None if there is none."""
    rows = visible.runs().filter(query=operation.query_id, generation=operation.generation)
    return rows.order_by("epoch").first()


def run_with_neighbours(*, run_id: int) -> RunDetail:
    """Return a run by its number; raise `Missing` if there is none."""
    rows = runs().select_related("driver__application_revision").filter(pk=run_id)
    run = first_or_missing(rows, f"Run {run_id} does not exist.")
    others = visible.runs().filter(query=run.query_id)
    return RunDetail(
        run=run,
        previous=others.filter(epoch__lt=run.epoch).order_by("-epoch").first(),
        next=others.filter(epoch__gt=run.epoch).order_by("epoch").first(),
        failures=list(failures_of_run(run)),
        summary=heard.run_summary(run.pk),
        written=heard.run_rows([run.pk]).get(run.pk, (0, None))[1] if ends(run) else None,
        transitions=list(run.transitions.order_by("at", "pk")),
    )


def ends(run: Run) -> bool:
    """Return whether a run ends by itself once it has read all available data."""
    return run.revision.spec.get("trigger", {}).get("kind") in ENDING_TRIGGERS


#: Days that a calendar of runs covers, today included.
CALENDAR_DAYS = 90


def outcomes_by_day(query: Query, *, now: datetime) -> dict[date, Counter[str]]:
    """Return how many runs of each outcome started on each day (UTC) of the last 90 days.

    Days without runs are left out; the outcome of an open run is "".
    """
    since = now.astimezone(UTC).date() - timedelta(days=CALENDAR_DAYS - 1)
    first = datetime.combine(since, time(), UTC)
    rows = visible.runs().filter(query=query, created_at__gte=first)
    counts = rows.annotate(day=TruncDate("created_at", tzinfo=UTC)).values("day", "outcome")
    by_day: dict[date, Counter[str]] = {}
    for row in counts.annotate(runs=Count("pk")).order_by():
        by_day.setdefault(row["day"], Counter())[row["outcome"]] += row["runs"]
    return by_day


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
            (str(source.get("description", "")), source.get("startOffset"), source.get("endOffset"))
            for source in sources
        ],
    )
