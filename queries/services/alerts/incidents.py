"""Open, update and close incidents from current problems, and apply users' actions to them.

Each pass is complete and repeatable: if a worker dies, the next pass finishes its rows. Another
module (`deliveries`) decides on notifications from the incident's row; `announce_after` marks the
row as due.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, Q

from controlplane.nudge import changed
from listeners.loops.backlogs import loop_errors
from queries.domain.alerts.forms import EntryKind, IncidentKind, IncidentState, Selector
from queries.domain.alerts.incidents import (
    REOPENED_WITHIN,
    AlertCondition,
    IncidentAction,
    IncidentChange,
    RecordedIncident,
    changes,
    names_of,
    of_query,
)
from queries.domain.errors import Conflict, Invalid, Problem
from queries.models.alerts import Incident, IncidentEntry, Maintenance
from queries.selectors.alerts.troubles import troubles
from queries.services.system.health import system_health

logger = logging.getLogger(__name__)
_each = loop_errors("incidents", logger)


def watch_incidents(*, now: datetime) -> int:
    """Compare current problems with the known incidents; return how many have changed."""
    seen = list(_outside_maintenance(troubles(system_health(now).problems, now=now), now))
    count, lasting = 0, []
    for change in changes(_known(now), seen, now=now):
        if change.act is IncidentAction.PERSISTS and change.incident is not None:
            lasting.append(change.incident.id)
            continue
        about = change.trouble.title if change.trouble else f"incident {_id(change)}"
        with _each.isolate_errors(about):
            count += _carry_out(change, now)
    Incident.objects.filter(pk__in=lasting).update(seen_at=now)
    return count


def _outside_maintenance(seen: Iterable[AlertCondition], now: datetime) -> Iterable[AlertCondition]:
    windows = []
    for window in Maintenance.objects.filter(starts_at__lte=now, ends_at__gt=now):
        with _each.isolate_errors(f"maintenance window {window.name}"):
            windows.append(Selector.model_validate(window.selector))
    for trouble in seen:
        application = trouble.application.name if trouble.application else ""
        if not any(
            one.matches(
                kind=trouble.kind,
                severity=trouble.kind.severity,
                application=application,
                labels=trouble.labels,
            )
            for one in windows
        ):
            yield trouble


def _known(now: datetime) -> list[RecordedIncident]:
    lately = Q(closed_at__gt=now - REOPENED_WITHIN)
    rows = Incident.objects.filter(Q(state=IncidentState.OPEN) | lately).order_by("-opened_at")
    return [
        RecordedIncident(
            id=row.pk,
            fingerprint=row.fingerprint,
            open=row.state == IncidentState.OPEN,
            title=row.title,
            detail=row.detail,
            affected=row.affected_count,
            seen_at=row.seen_at,
            quiet_since=row.quiet_since,
            closed_by=row.closed_by,
        )
        for row in rows
    ]


def _carry_out(change: IncidentChange, now: datetime) -> int:
    if change.act is IncidentAction.OPEN and change.trouble is not None:
        return _open(change.trouble, now)
    if change.incident is None:
        return 0
    seen = Incident.objects.filter(pk=change.incident.id)
    with transaction.atomic():
        match change.act, change.trouble:
            case IncidentAction.REOPEN, AlertCondition() as trouble:
                done = _reopen(change.incident, trouble, now)
            case IncidentAction.UPDATE, AlertCondition() as trouble:
                done = _update(change.incident, trouble, now)
            case IncidentAction.QUIET, _:
                done = seen.filter(state=IncidentState.OPEN, quiet_since=None).update(
                    quiet_since=now
                )
                _tell(change.incident.id, EntryKind.QUIET, now, done=done)
            case _:
                done = seen.filter(
                    state=IncidentState.OPEN, quiet_since=change.incident.quiet_since
                ).update(state=IncidentState.CLOSED, closed_at=now, announce_after=now)
                _tell(change.incident.id, EntryKind.CLOSED, now, done=done)
    _changed(change.incident.id)
    return done


def _open(trouble: AlertCondition, now: datetime) -> int:
    try:
        with transaction.atomic():
            row = Incident.objects.create(
                fingerprint=trouble.fingerprint,
                opened_at=now,
                first_opened_at=now,
                announce_after=now,
                **_evidence(trouble, now),
            )
            _tell(row.pk, EntryKind.OPENED, now, text=trouble.detail)
    except IntegrityError:  # opened by another worker's pass
        return 0
    _changed(row.pk)
    return 1


def _reopen(known: RecordedIncident, trouble: AlertCondition, now: datetime) -> int:
    done = Incident.objects.filter(pk=known.id, state=IncidentState.CLOSED).update(
        state=IncidentState.OPEN,
        opened_at=now,
        closed_at=None,
        closed_by="",
        quiet_since=None,
        acknowledged_by="",
        acknowledged_at=None,
        acknowledged_until=None,
        occurrence=F("occurrence") + 1,
        announce_after=now,
        **_evidence(trouble, now),
    )
    _tell(known.id, EntryKind.REOPENED, now, text=trouble.detail, done=done)
    return done


def _update(known: RecordedIncident, trouble: AlertCondition, now: datetime) -> int:
    row = Incident.objects.filter(pk=known.id, state=IncidentState.OPEN)
    # Rules select kinds and severities: another channel may have to hear of it now.
    if row.exclude(kind=trouble.kind).update(announce_after=now):
        _tell(known.id, EntryKind.UPDATED, now, text=f"{trouble.title}. {trouble.detail}")
    done = row.update(quiet_since=None, **_evidence(trouble, now))
    if known.quiet_since is not None:
        _tell(known.id, EntryKind.UPDATED, now, text="The problem is back.", done=done)
    elif known.affected != len(trouble.queries):
        _tell(known.id, EntryKind.UPDATED, now, text=trouble.title, done=done)
    return done


def _evidence(trouble: AlertCondition, now: datetime) -> dict[str, object]:
    query = trouble.query
    return {
        "kind": trouble.kind,
        "severity": trouble.kind.severity,
        "title": trouble.title[:300],
        "detail": trouble.detail,
        "query_id": query.id if query else None,
        "application_id": trouble.application.id if trouble.application else None,
        "host": trouble.host,
        "affected": names_of(trouble),
        "affected_count": len(trouble.queries),
        "labels": dict(trouble.labels),
        "failure_group_id": trouble.group,
        "run_id": trouble.run,
        "seen_at": now,
    }


def _tell(
    incident: int,
    kind: EntryKind,
    now: datetime,
    *,
    text: str = "",
    actor: str = "",
    done: int = 1,
) -> None:
    if done:
        IncidentEntry.objects.create(
            incident_id=incident, at=now, kind=kind, actor=actor, text=text
        )


def _changed(incident: int) -> None:
    changed(f"incident:{incident}")


def _id(change: IncidentChange) -> int:
    return change.incident.id if change.incident else 0


def take_back(*, query: int, kind: IncidentKind, text: str, now: datetime) -> None:
    """Record in a query's newest incident of this kind, open or closed, that it was wrong."""
    about = Incident.objects.filter(fingerprint=of_query(kind, query)).order_by("-opened_at")
    if row := about.first():
        detail = f"{row.detail} Corrected: {text}" if text not in row.detail else row.detail
        Incident.objects.filter(pk=row.pk).update(detail=detail)
        _tell(row.pk, EntryKind.CORRECTED, now, text=text)
        _changed(row.pk)


# --- users' actions -----------------------------------------------------------------------


def acknowledge(
    incident: Incident, *, actor: str, now: datetime, until: datetime | None = None
) -> None:
    """Acknowledge an incident: stop its notifications until it closes or `until` has passed."""
    _must_be_later(until, now, "until")
    _act(
        incident,
        EntryKind.ACKNOWLEDGED,
        actor,
        now,
        text=f"until {until:%Y-%m-%d %H:%M} UTC" if until else "",
        acknowledged_by=actor,
        acknowledged_at=now,
        acknowledged_until=until,
    )


def snooze(incident: Incident, *, until: datetime, actor: str, now: datetime) -> None:
    """Suppress notifications until the given time."""
    _must_be_later(until, now, "until")
    text = f"until {until:%Y-%m-%d %H:%M} UTC"
    _act(incident, EntryKind.SNOOZED, actor, now, text=text, snoozed_until=until)


def assign(incident: Incident, *, to: str, actor: str, now: datetime) -> None:
    """Assign the incident to a user; "" unassigns it."""
    _act(incident, EntryKind.ASSIGNED, actor, now, text=to or "nobody", assignee=to)


def note(incident: Incident, *, text: str, actor: str, now: datetime) -> None:
    """Add a user's note; closed incidents accept notes too."""
    if not text.strip():
        raise Invalid([Problem("text", text, "The note is empty.", "Enter what you found.")])
    _tell(incident.pk, EntryKind.NOTE, now, text=text.strip()[:5000], actor=actor)
    _changed(incident.pk)


def close(incident: Incident, *, actor: str, now: datetime) -> None:
    """Close an incident; it does not reopen as long as its problem lasts without interruption."""
    _act(
        incident,
        EntryKind.CLOSED,
        actor,
        now,
        state=IncidentState.CLOSED,
        closed_at=now,
        closed_by=actor,
    )


def _act(
    incident: Incident,
    kind: EntryKind,
    actor: str,
    now: datetime,
    *,
    text: str = "",
    **columns: object,
) -> None:
    with transaction.atomic():
        done = Incident.objects.filter(pk=incident.pk, state=IncidentState.OPEN).update(
            announce_after=now, **columns
        )
        if not done:
            raise Conflict(
                "The incident is already closed.",
                way_out="It reopens automatically when the problem returns.",
            )
        _tell(incident.pk, kind, now, text=text, actor=actor)
    _changed(incident.pk)


def _must_be_later(until: datetime | None, now: datetime, field: str) -> None:
    if until is not None and until <= now + timedelta(seconds=1):
        shown = f"{until:%Y-%m-%d %H:%M} UTC"
        raise Invalid([Problem(field, shown, "It is not in the future.", "Choose a later time.")])
