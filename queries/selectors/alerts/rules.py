"""The rules in force, as the decision reads them; and the channels by name."""

from datetime import time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from queries.domain.alerts.matching import Selector
from queries.domain.alerts.routing import QuietHours, Rule, in_force
from queries.models.alerts import AlertRule, Channel
from queries.selectors.found import found


def rules_in_force() -> list[Rule]:
    """Return the enabled rules, or the default one where there is none, to enabled channels."""
    enabled = list(Channel.objects.filter(enabled=True).values_list("pk", flat=True))
    usable = frozenset(enabled)
    rows = AlertRule.objects.filter(enabled=True).prefetch_related("channels", "escalate_to")
    return list(in_force([_rule(row, usable) for row in rows], enabled))


def _rule(row: AlertRule, usable: frozenset[int]) -> Rule:
    return Rule(
        name=row.name,
        selector=Selector(**row.selector),
        channels=_of(row.channels.all(), usable),
        quiet=quiet_hours(row.quiet_hours),
        escalate_after=_minutes(row.escalate_after_minutes),
        escalate_to=_of(row.escalate_to.all(), usable),
        remind_every=_minutes(60 * row.remind_every_hours if row.remind_every_hours else None),
    )


def rule_named(name: str) -> AlertRule:
    """Return a rule; raise `Missing` where there is none of this name."""
    return found(AlertRule.objects.filter(name=name), f"Rule {name[:80]} does not exist.")


def quiet_hours(form: dict[str, Any]) -> QuietHours | None:
    """Return the quiet hours of a rule's JSON form; {} is none."""
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
