"""Read the rules in the form that routing uses, and for last week's incidents."""

import logging
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import QuerySet

from listeners.loops.backlogs import loop_errors
from queries.domain.alerts.forms import STOPPED_WITHIN, IncidentKind, Selector, Severity
from queries.domain.alerts.routing import QuietHours, RoutedIncident, RoutingRule, in_force, plan
from queries.models.alerts import AlertRule, Channel, Incident
from queries.selectors.rows import first_or_missing

_each = loop_errors("alert rules", logging.getLogger(__name__))


def rules_in_force() -> list[RoutingRule]:
    """Return the enabled rules, with enabled channels only; without rules, the default one.

    An unreadable rule is skipped, and the System page names it.
    """
    enabled = list(Channel.objects.filter(enabled=True).values_list("pk", flat=True))
    usable = frozenset(enabled)
    rows = _enabled().prefetch_related("channels", "escalate_to")
    rules: list[RoutingRule] = []
    for row in rows:
        with _each.isolate_errors(f"rule {row.name}"):
            rules.append(_rule(row, usable))
    return list(in_force(rules, enabled))


def stopped_within() -> timedelta:
    """Return how long before it a deletion of a stopped query's unread records is a problem.

    This is the longest time in any rule that includes stopped queries.
    """
    selectors: list[Selector] = []
    for name, row in _enabled().values_list("name", "selector"):
        with _each.isolate_errors(f"the selector of rule {name}"):
            selectors.append(Selector.model_validate(row))
    named = [
        one.stopped_within
        for one in selectors
        if one.stopped and (not one.kinds or IncidentKind.AT_RISK_STOPPED in one.kinds)
    ]
    return max(named, default=STOPPED_WITHIN)


def gone_at(incident: Incident) -> datetime | None:
    """Return when a stopped query's unread records are deleted; None for other incidents."""
    stopped = incident.kind == IncidentKind.AT_RISK_STOPPED and incident.query is not None
    return incident.query.risk_at if stopped and incident.query else None


def _enabled() -> QuerySet[AlertRule]:
    return AlertRule.objects.filter(enabled=True)


def _rule(row: AlertRule, usable: frozenset[int]) -> RoutingRule:
    return RoutingRule(
        name=row.name,
        selector=Selector.model_validate(row.selector),
        channels=_of(row.channels.all(), usable),
        quiet=quiet_hours(row.quiet_hours),
        escalate_after=_minutes(row.escalate_after_minutes),
        escalate_to=_of(row.escalate_to.all(), usable),
        remind_every=_minutes(60 * row.remind_every_hours if row.remind_every_hours else None),
    )


def rule_named(name: str) -> AlertRule:
    """Return the rule with this name; raise `Missing` if there is none."""
    return first_or_missing(
        AlertRule.objects.filter(name=name), f"Rule {name[:80]} does not exist."
    )


def quiet_hours(form: dict[str, Any]) -> QuietHours | None:
    """Return the quiet hours from a rule's JSON form; None for {}."""
    if not form:
        return None
    return QuietHours(
        ZoneInfo(form["zone"]),
        time.fromisoformat(form["from"]),
        time.fromisoformat(form["until"]),
        frozenset(form.get("days") or range(7)),
    )


def _of(channels: Any, usable: frozenset[int]) -> tuple[int, ...]:
    return tuple(channel.pk for channel in channels if channel.pk in usable)


def _minutes(count: int | None) -> timedelta | None:
    return timedelta(minutes=count) if count else None


WEEK = timedelta(days=7)
_each_incident = loop_errors("the last week's incidents", logging.getLogger(__name__))

#: Most incidents tried, newest first.
MOST = 200


@dataclass(frozen=True, slots=True)
class Heard:
    """An incident, and who would have been notified of it, and when."""

    incident: Incident
    channels: list[str]  # names
    later: datetime | None  # because of quiet hours


def last_week(*, now: datetime) -> list[Heard]:
    """Return last week's incidents, newest first, with those who would have been notified."""
    rules = rules_in_force()
    names = dict(Channel.objects.values_list("pk", "name"))
    rows = Incident.objects.filter(opened_at__gt=now - WEEK).select_related("application")
    found = []
    for row in rows[:MOST]:
        with _each_incident.isolate_errors(f"incident {row.uuid}"):
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
