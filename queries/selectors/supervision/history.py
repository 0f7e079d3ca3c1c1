"""Read the history of a query: operations, transitions, runs, and the marks on its charts."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any

from django.db.models import Count, QuerySet
from django.db.models.functions import TruncDate

from listeners import selectors as heard
from listeners.models import Progress
from queries.domain.definitions.spec import ENDING_TRIGGERS
from queries.domain.labels import verb_label
from queries.domain.reasons import phrase, why
from queries.domain.states import (
    BLOCKED_PHASES,
    PLAIN_VERBS,
    STOPPED_PHASES,
    TROUBLED_PHASES,
    Completion,
    Desired,
    OperationOutcome,
    RunOutcome,
    Verb,
)
from queries.models.alerts import Incident
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, Operation, Transition
from queries.selectors import visible
from queries.selectors.failures.failures import failures_of_run
from queries.selectors.rows import first_or_missing


def operations() -> QuerySet[Operation]:
    """Return all operations, newest first, with query, application and parent."""
    rows = Operation.objects.select_related("query", "application", "parent")
    return rows.order_by("-created_at", "-pk")


def operation(uuid: Any) -> Operation:
    """Return an operation; raise `Missing` if there is none."""
    return first_or_missing(operations().filter(uuid=uuid), f"Operation {uuid} does not exist.")


def completion(operation: Operation) -> Completion | None:
    """Return how the work that a start or restart of one query requested has ended.

    None while it continues, which includes automatic restarts, and for other operations.
    """
    query = operation.query
    if query is None or operation.verb not in (Verb.START, Verb.RESTART):
        return None
    runs = visible.runs().filter(query=query, generation=operation.generation)
    if runs.filter(outcome=RunOutcome.COMPLETED).exists():
        return Completion.COMPLETED
    if query.generation != operation.generation:
        return Completion.SUPERSEDED
    if query.phase in BLOCKED_PHASES:
        return Completion.FAILED
    stopped = query.desired == Desired.STOPPED and query.phase in STOPPED_PHASES
    return Completion.STOPPED if stopped else None


@dataclass(frozen=True, slots=True)
class OperationLine:
    """The outcome for one of an operation's many objects."""

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
    """Return the state changes of a query, of an application, or all; newest first."""
    rows = Transition.objects.select_related("query", "application", "driver", "run", "operation")
    if query is not None:
        rows = rows.filter(query=query)
    if application is not None:
        rows = rows.filter(application=application)
    return rows.order_by("-at", "-pk")


def audit() -> QuerySet[Transition]:
    """Return the changes that users and CI made, newest first."""
    return transitions().exclude(actor="")


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
    """Return whether a run ends on its own once it has read all available data."""
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


#: Most marks drawn per kind, so that a chart stays readable. The newest are kept.
MOST = 50


class MarkKind(StrEnum):
    """The kind of event; each kind has its own page."""

    RUN = "run"
    DEATH = "death"
    FAILURE = "failure"
    REVISION = "revision"
    OPERATION = "operation"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True)
class ChartMark:
    """An event on a chart."""

    at: datetime
    kind: MarkKind
    text: str
    key: str  # of its page: run or failure number, UUID, revision number


@dataclass(frozen=True, slots=True)
class Outage:
    """A period in which the query should have run but did not; `until` is None if it is ongoing."""

    since: datetime
    until: datetime | None
    text: str


def marks(query: Query, *, since: datetime, until: datetime) -> list[ChartMark]:
    """Return the events in [since, until), in order."""
    return sorted(_marks(query, since, until), key=lambda mark: mark.at)


def _marks(query: Query, since: datetime, until: datetime) -> Iterator[ChartMark]:
    of = {"query": query}
    runs = visible.runs().filter(**of, created_at__gte=since, created_at__lt=until)
    for run in runs.order_by("-epoch")[:MOST]:
        by = f" by {run.actor}" if run.actor else ""
        text = f"Run {run.pk}: {phrase(run.cause)}{by}"
        yield ChartMark(run.created_at, MarkKind.RUN, text, str(run.pk))
    died = visible.runs().filter(**of, outcome=RunOutcome.DRIVER_ENDED)
    for run in died.filter(ended_at__gte=since, ended_at__lt=until).order_by("-epoch")[:MOST]:
        assert run.ended_at is not None, "only such are asked for"
        yield ChartMark(run.ended_at, MarkKind.DEATH, f"Run {run.pk}: its driver died", str(run.pk))
    failed = visible.failures().filter(run__query=query, at__gte=since, at__lt=until)
    for failure in failed.select_related("group").order_by("-at")[:MOST]:
        yield ChartMark(failure.at, MarkKind.FAILURE, failure.group.title, str(failure.pk))
    revisions = query.revisions.filter(created_at__gte=since, created_at__lt=until)
    for revision in revisions.order_by("-number")[:MOST]:
        text = f"Revision {revision.number} by {revision.author}"
        yield ChartMark(revision.created_at, MarkKind.REVISION, text, str(revision.number))
    operations = Operation.objects.filter(**of, created_at__gte=since, created_at__lt=until)
    for row in operations.exclude(verb__in=sorted(PLAIN_VERBS)).order_by("-created_at")[:MOST]:
        text = f"{verb_label(row.verb)} by {row.actor}"
        yield ChartMark(row.created_at, MarkKind.OPERATION, text, str(row.uuid))
    opened = Incident.objects.filter(**of, opened_at__gte=since, opened_at__lt=until)
    for incident in opened.order_by("-opened_at")[:MOST]:
        yield ChartMark(incident.opened_at, MarkKind.INCIDENT, incident.title, str(incident.uuid))


def outages(query: Query, *, since: datetime, until: datetime) -> list[Outage]:
    """Return the periods within [since, until) in which the query was in a failed phase."""
    moves = Transition.objects.filter(query=query, subject="phase", at__lt=until)
    before = moves.filter(at__lt=since).order_by("-at", "-pk").first()
    within = list(moves.filter(at__gte=since).order_by("at", "pk")[: 20 * MOST])
    steps = [*([before] if before else []), *within, None]
    periods: list[Outage] = []
    for move, following in pairwise(steps):
        if move is None or move.after not in TROUBLED_PHASES:
            continue
        text = why(move.reason, move.detail).text
        ended = following.at if following else None
        begun = max(move.at, since)
        if periods and periods[-1].until == begun:  # consecutive phases are one outage
            periods[-1] = Outage(periods[-1].since, ended, periods[-1].text)
        else:
            periods.append(Outage(begun, ended, text))
    return periods
