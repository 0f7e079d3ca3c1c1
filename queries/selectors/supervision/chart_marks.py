"""Read events of a query as marks on its charts: starts, deaths, failures, changes."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise

from queries.domain.reasons import phrase, why
from queries.domain.states import PLAIN_VERBS, TROUBLED_PHASES, RunOutcome
from queries.models.alerts import Incident
from queries.models.definitions import Query
from queries.models.history import Operation, Transition
from queries.selectors import visible

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
        text = f"{row.verb.capitalize()} by {row.actor}"
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
