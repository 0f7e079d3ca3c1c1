"""Who would have heard of the incidents of the last week by the rules as they are now."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.domain.alerts.kinds import IncidentKind, Severity
from queries.domain.alerts.routing import RoutedIncident, plan
from queries.models.alerts import Channel, Incident
from queries.selectors.alerts.rules import rules_in_force

WEEK = timedelta(days=7)
#: Incidents that are tried, the newest first.
MOST = 200


@dataclass(frozen=True, slots=True)
class Heard:
    """One incident, who would have been told when it was opened, and when at the latest."""

    incident: Incident
    channels: list[str]  # names
    later: datetime | None  # for quiet hours


def last_week(*, now: datetime) -> list[Heard]:
    """Return the incidents of the last week, the newest first, with who would have heard."""
    rules = rules_in_force()
    names = dict(Channel.objects.values_list("pk", "name"))
    rows = Incident.objects.filter(opened_at__gt=now - WEEK).select_related("application")
    found = []
    for row in rows[:MOST]:
        told = RoutedIncident(
            kind=IncidentKind(row.kind),
            severity=Severity(row.severity),
            application=row.application.name if row.application else "",
            open=True,
            opened_at=row.opened_at,
            labels=row.labels,
        )
        at_once = plan(told, rules, (), now=row.opened_at)
        later = at_once.again_at if not at_once.tellings else None
        due = plan(told, rules, (), now=later) if later else at_once
        found.append(Heard(row, [names[one.channel] for one in due.tellings], later))
    return found
