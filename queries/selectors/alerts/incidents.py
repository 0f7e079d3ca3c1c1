"""Read incidents, filtered for lists, and the history of one incident."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet, Sum
from django.urls import reverse

from headgate_ground.wire import EventKind
from listeners.models import Event
from queries.domain.alerts.explanations import (
    OF_APPLICATION,
    OF_QUERY,
    Explanation,
    FailureTexts,
    IncidentScope,
    NextStepPage,
    explained,
    over,
)
from queries.domain.alerts.forms import (
    DeliveryState,
    EntryKind,
    IncidentKind,
    IncidentState,
    Severity,
)
from queries.domain.alerts.incidents import LOSS
from queries.domain.labels import verb_label
from queries.domain.readings import counted
from queries.domain.reasons import phrase
from queries.models.alerts import Delivery, Incident
from queries.models.checkpoints import Loss
from queries.models.history import Failure, Operation, Transition
from queries.selectors.failures.failures import advice_of
from queries.selectors.rows import first_or_missing

#: Events this long before an incident opened are part of its history.
BEFORE = timedelta(minutes=5)
#: Kinds of incidents that a thread dump explains.
_HANGING = (IncidentKind.STALLED, IncidentKind.STUCK_STOP, IncidentKind.LAGGING)
#: Most lines of a history that are shown; the newest are kept.
LINES = 200


def incidents(
    *, state: str = "", severity: str = "", search: str = "", query: str = ""
) -> QuerySet[Incident]:
    """Return the incidents with query, application and failure group; empty filters match all."""
    rows = Incident.objects.select_related("query", "application", "failure_group", "run")
    if state:
        rows = rows.filter(state=state)
    if severity:
        rows = rows.filter(severity=severity)
    if query:
        rows = rows.filter(query__name=query)
    if search:
        rows = rows.filter(
            Q(title__icontains=search)
            | Q(detail__icontains=search)
            | Q(application__name__icontains=search)
            | Q(host__icontains=search)
        )
    return rows


def incident(uuid: UUID) -> Incident:
    """Return an incident; raise `Missing` if there is none."""
    return first_or_missing(incidents().filter(uuid=uuid), f"Incident {uuid} does not exist.")


def incident_counts() -> dict[str, int]:
    """Return the numbers of incidents that are open, open and critical, and closed."""
    lasts = Q(state=IncidentState.OPEN)
    return Incident.objects.aggregate(
        open=Count("pk", filter=lasts),
        critical=Count("pk", filter=lasts & Q(severity=Severity.CRITICAL)),
        closed=Count("pk", filter=~lasts),
    )


def open_incidents() -> int:
    """Return the number of open incidents."""
    return Incident.objects.filter(state=IncidentState.OPEN).count()


def newest_failure(incident: Incident) -> Failure | None:
    """Return the newest failure of an incident's group; None if it has none."""
    group = incident.failure_group
    if group is None:
        return None
    rows = group.failures.select_related("run__query", "run__revision", "driver__application")
    if incident.closed_at is not None:  # a later one belongs to a later incident
        rows = rows.filter(at__lte=incident.closed_at)
    return rows.first()


@dataclass(frozen=True, slots=True)
class ExplainedIncident:
    """An incident's explanation, with the address of its next step's page, and the failure.

    Its evidence and next step no longer hold once it has `ended`, which then reports how.
    """

    why: Explanation
    address: str  # from the root of the console
    failure: Failure | None
    ended: str  # "" while it is open


def explain_incident(incident: Incident) -> ExplainedIncident:
    """Return the explanation of an incident that every channel and page shows."""
    failure, kind = newest_failure(incident), IncidentKind(incident.kind)
    listed = [incident.query.name] if incident.query else incident.affected
    about = explained(
        kind,
        incident.detail,
        IncidentScope(
            queries=listed,
            more=max(0, incident.affected_count - len(listed)),
            application=incident.application.name if incident.application else "",
            run=incident.run_id,
            host=incident.host,
        ),
        _fault(failure) if failure else None,
    )
    names: dict[NextStepPage, list[Any]] = {
        NextStepPage.SYSTEM: [],
        NextStepPage.CHANNELS: [],
        NextStepPage.RULES: [],
    }
    names |= dict.fromkeys(OF_QUERY, listed[:1])
    names |= {page: [incident.application and incident.application.name] for page in OF_APPLICATION}
    names |= {
        NextStepPage.INCIDENT: [incident.uuid],
        NextStepPage.FAILURE: [failure and failure.pk],
    }
    ended = incident.closed_at and over(kind, incident.closed_by, _accepted_losses(incident))
    return ExplainedIncident(
        about, reverse(about.page, args=names[about.page]), failure, ended or ""
    )


def _fault(failure: Failure) -> FailureTexts:
    advice = advice_of(failure)
    return FailureTexts(failure.shown(advice.title), advice.meaning, advice.way_out, failure.batch)


def _accepted_losses(incident: Incident) -> str:
    """Return a sentence on the losses of its query that were accepted while it lasted, or ""."""
    if incident.kind not in LOSS or incident.query_id is None:
        return ""
    rows = Loss.objects.filter(
        query=incident.query_id, accepted_at__gte=incident.opened_at, accepted_at__isnull=False
    )
    if incident.closed_at is not None:
        rows = rows.filter(accepted_at__lte=incident.closed_at)
    by = sorted(set(rows.order_by().values_list("accepted_by", flat=True)))
    if not by:
        return ""
    offsets = rows.aggregate(sum=Sum("offsets"))["sum"] or 0
    return f"The loss of {counted(offsets, 'offset')} was accepted by {', '.join(by)}."


def thread_dump(incident: Incident) -> Event | None:
    """Return the newest thread dump of an incident's query while it lasted; None if none was taken.

    A driver takes one when a query hangs, often before the incident opens.
    """
    if incident.query_id is None or incident.kind not in _HANGING:
        return None
    rows = Event.objects.filter(query=incident.query_id, kind=EventKind.THREAD_DUMP)
    rows = rows.filter(at__gt=incident.opened_at - timedelta(minutes=30))
    if incident.closed_at is not None:
        rows = rows.filter(at__lt=incident.closed_at)
    return rows.order_by("-at").first()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an incident's history."""

    at: datetime
    who: str  # "" for Headgate
    what: str
    tone: str = ""  # as for badges
    text: str = ""
    operation: UUID | None = None
    run: int | None = None


_WORDS = {
    EntryKind.OPENED: ("Opened", "bad"),
    EntryKind.UPDATED: ("Updated", ""),
    EntryKind.REOPENED: ("Reopened", "bad"),
    EntryKind.QUIET: ("Cause cleared", "ok"),
    EntryKind.CLOSED: ("Closed", "ok"),
    EntryKind.ACKNOWLEDGED: ("Acknowledged", ""),
    EntryKind.SNOOZED: ("Snoozed", ""),
    EntryKind.ASSIGNED: ("Assigned", ""),
    EntryKind.NOTE: ("Note", ""),
    EntryKind.CORRECTED: ("Corrected", ""),
    EntryKind.MERGED: ("Updated", ""),
}


def story(incident: Incident) -> list[Line]:
    """Return the events, actions by Headgate and by users, and notifications, oldest first."""
    until = (incident.closed_at or incident.seen_at) + BEFORE
    since = incident.first_opened_at - BEFORE
    lines = [*_deliveries(incident), *_entries(incident)]
    if incident.application_id is not None:
        lines += _operations(incident, since, until)
        lines += _transitions(incident, since, until)
    # Each kind comes newest first; at the same time, events precede notifications.
    lines.reverse()
    return sorted(lines, key=lambda line: line.at)[-LINES:]


def _entries(incident: Incident) -> Iterator[Line]:
    for entry in incident.entries.order_by("-at", "-pk")[:LINES]:
        what, tone = _WORDS.get(EntryKind(entry.kind), (entry.kind, ""))
        yield Line(entry.at, entry.actor, what, tone, entry.text)


def _deliveries(incident: Incident) -> Iterator[Line]:
    rows = incident.deliveries.select_related("channel").order_by("-created_at")[:LINES]
    for row in rows:
        yield delivery_line(row)


def delivery_line(row: Delivery) -> Line:
    """Return a line with the result of a message's delivery."""
    step = f"“{row.step}”" + (f" number {row.repeat}" if row.repeat else "")
    match row.state:
        case DeliveryState.SENT:
            what, tone = f"Notified {row.channel.name}", "ok"
        case DeliveryState.GIVEN_UP:
            what, tone = f"Could not notify {row.channel.name}", "bad"
        case DeliveryState.SKIPPED:
            what, tone = f"No need to notify {row.channel.name}", ""
        case _:
            what, tone = f"Notifying {row.channel.name}", "busy"
    tries = f", attempt {row.attempts}" if row.attempts > 1 else ""
    text = f"{step}{tries}{': ' if row.last_error else ''}{row.last_error}"
    return Line(row.sent_at or row.created_at, "", what, tone, text)


def _of(incident: Incident) -> Q:
    if incident.query_id is not None:
        return Q(query=incident.query_id) | Q(query=None, application=incident.application_id)
    return Q(application=incident.application_id)


def _transitions(incident: Incident, since: datetime, until: datetime) -> Iterator[Line]:
    rows = Transition.objects.filter(_of(incident), at__gte=since, at__lte=until)
    for row in rows.select_related("query", "operation").order_by("-at", "-pk")[:LINES]:
        about = row.query.name if row.query else row.subject
        detail = f": {row.detail}" if row.detail else ""
        yield Line(
            row.at,
            row.actor,
            f"{about} {row.moved_from} → {row.after}" if row.moved_from else f"{about} {row.after}",
            "",
            f"{phrase(row.reason)}{detail}",
            row.operation.uuid if row.operation else None,
            row.run_id,
        )


def _operations(incident: Incident, since: datetime, until: datetime) -> Iterator[Line]:
    rows = Operation.objects.filter(_of(incident), created_at__gte=since, created_at__lte=until)
    for row in rows.order_by("-created_at")[:LINES]:
        outcome = row.outcome or "in progress"
        yield Line(
            row.created_at,
            row.actor,
            f"Requested {verb_label(row.verb).lower()}",
            "",
            outcome.lower(),
            row.uuid,
        )
