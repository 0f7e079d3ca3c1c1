"""Determine who would have been notified of last week's incidents by the current rules."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from listeners.loops.troubles import loop_errors
from queries.domain.alerts.kinds import IncidentKind, Severity
from queries.domain.alerts.routing import RoutedIncident, RoutingRule, plan
from queries.models.alerts import Channel, Incident
from queries.selectors.alerts.rules import gone_at, rules_in_force

WEEK = timedelta(days=7)
_each = loop_errors("the last week's incidents", logging.getLogger(__name__))

#: Most incidents tried, newest first.
MOST = 200


@dataclass(frozen=True, slots=True)
class Heard:
    """An incident, and who would have been notified of it, and when."""

    incident: Incident
    channels: list[str]  # names
    later: datetime | None  # because of quiet hours


def last_week(*, now: datetime) -> list[Heard]:
    """Return last week's incidents, newest first, with who would have been notified."""
    rules = rules_in_force()
    names = dict(Channel.objects.values_list("pk", "name"))
    rows = Incident.objects.filter(opened_at__gt=now - WEEK).select_related("application")
    found = []
    for row in rows[:MOST]:
        with _each.isolate_errors(f"incident {row.uuid}"):
            found.append(_heard(row, rules, names))
    return found


def _heard(row: Incident, rules: list[RoutingRule], names: dict[int, str]) -> Heard:
    told = RoutedIncident(
        kind=IncidentKind(row.kind),
        severity=Severity(row.severity),
        application=row.application.name if row.application else "",
        open=True,
        opened_at=row.opened_at,
        labels=row.labels,
        gone_at=gone_at(row),
    )
    at_once = plan(told, rules, (), now=row.opened_at)
    later = at_once.again_at if not at_once.tellings else None
    due = plan(told, rules, (), now=later) if later else at_once
    return Heard(row, [names[one.channel] for one in due.tellings], later)
