"""Decide which incidents to open, update, close or reopen, given the current problems."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from queries.domain.alerts.troubles import NAMED, AlertCondition

#: How long a problem must be gone before its incident closes, so a flapping problem is one
#: incident.
QUIET_BEFORE_CLOSING = timedelta(minutes=5)
#: A problem that returns within this time reopens its incident.
REOPENED_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RecordedIncident:
    """An incident that is open, or that was closed within `REOPENED_WITHIN`."""

    id: int
    fingerprint: str
    open: bool
    title: str
    detail: str
    affected: int
    seen_at: datetime
    quiet_since: datetime | None = None
    closed_by: str = ""  # a user; "": automatically


class IncidentAction(StrEnum):
    """What to do with an incident."""

    OPEN = "open"
    REOPEN = "reopen"
    UPDATE = "update"  # its evidence has changed, or its problem came back before it closed
    PERSISTS = "seen"  # its problem persists
    QUIET = "quiet"  # its problem has just cleared
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class IncidentChange:
    """One action: on which incident (None: a new one), and because of which problem."""

    act: IncidentAction
    incident: RecordedIncident | None = None
    trouble: AlertCondition | None = None


def changes(
    recorded: Iterable[RecordedIncident],
    troubles: Iterable[AlertCondition],
    *,
    now: datetime,
    quiet_period: timedelta = QUIET_BEFORE_CLOSING,
) -> list[IncidentChange]:
    """Return what to do; each incident and each problem appears in at most one change.

    `recorded` contains the open incidents and, for each fingerprint, the newest recently closed
    one. An incident closed by a user stays closed until its problem has been gone for
    `quiet_period`.
    """
    by_fingerprint: dict[str, RecordedIncident] = {}
    for incident in recorded:
        if incident.open or incident.fingerprint not in by_fingerprint:
            by_fingerprint[incident.fingerprint] = incident
    done: list[IncidentChange] = []
    for trouble in troubles:
        done.append(
            _change_for(by_fingerprint.pop(trouble.fingerprint, None), trouble, now, quiet_period)
        )
    for incident in by_fingerprint.values():
        if not incident.open:
            continue
        if incident.quiet_since is None:
            done.append(IncidentChange(IncidentAction.QUIET, incident))
        elif now - incident.quiet_since >= quiet_period:
            done.append(IncidentChange(IncidentAction.CLOSE, incident))
    return done


def _change_for(
    incident: RecordedIncident | None,
    trouble: AlertCondition,
    now: datetime,
    quiet_period: timedelta,
) -> IncidentChange:
    if incident is None:
        return IncidentChange(IncidentAction.OPEN, None, trouble)
    if not incident.open:
        lasts = incident.closed_by and now - incident.seen_at < quiet_period
        return IncidentChange(
            IncidentAction.PERSISTS if lasts else IncidentAction.REOPEN, incident, trouble
        )
    before = (incident.title, incident.detail, incident.affected)
    now_so = (trouble.title, trouble.detail, len(trouble.queries))
    if incident.quiet_since is not None or before != now_so:
        return IncidentChange(IncidentAction.UPDATE, incident, trouble)
    return IncidentChange(IncidentAction.PERSISTS, incident, trouble)


def names_of(trouble: AlertCondition) -> list[str]:
    """Return the names of the queries that a problem affects, up to `NAMED`."""
    return [query.name for query in trouble.queries[:NAMED]]
