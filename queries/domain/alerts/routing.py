"""Decide who is notified of an incident, and when: rules, quiet hours, escalation, reminders.

Pure: computed from an incident, the rules and the messages already sent. A plan can safely be
executed twice, because a message that has been sent is no longer due.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from queries.domain.alerts.kinds import IncidentKind, Severity, Step
from queries.domain.alerts.matching import Selector


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Hours in which only critical incidents are sent; `until` may be on the next day."""

    zone: ZoneInfo
    start: time
    until: time
    days: frozenset[int] = frozenset(range(7))  # days on which they start; Monday is 0

    def ends(self, now: datetime) -> datetime | None:
        """Return when the quiet hours that contain `now` end; None outside quiet hours."""
        local = now.astimezone(self.zone)
        for back in (0, 1):
            day = local.date() - timedelta(days=back)
            if day.weekday() not in self.days:
                continue
            start = datetime.combine(day, self.start, self.zone)
            end = datetime.combine(day, self.until, self.zone)
            if end <= start:
                end = datetime.combine(day + timedelta(days=1), self.until, self.zone)
            if start <= local < end:
                return end.astimezone(now.tzinfo)
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """Which incidents go to which channels."""

    name: str
    selector: Selector
    channels: tuple[int, ...]
    quiet: QuietHours | None = None
    escalate_after: timedelta | None = None
    escalate_to: tuple[int, ...] = ()
    remind_every: timedelta | None = None


@dataclass(frozen=True, slots=True)
class RoutedIncident:
    """The parts of an incident that routing depends on."""

    kind: IncidentKind
    severity: Severity
    application: str
    open: bool
    opened_at: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    acknowledged: bool = False
    acknowledged_until: datetime | None = None
    snoozed_until: datetime | None = None
    gone_at: datetime | None = None  # when a stopped query's records are deleted

    def taken(self, now: datetime) -> bool:
        """Return whether a user is working on the incident."""
        until = self.acknowledged_until
        return self.acknowledged and (until is None or until > now)


@dataclass(frozen=True, slots=True)
class Telling:
    """One message to one channel; `repeat` counts reminders from 1."""

    step: Step
    channel: int
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The messages to send now, and when to check again (None: when the incident changes)."""

    tellings: tuple[Telling, ...] = ()
    again_at: datetime | None = None


def plan(
    told: RoutedIncident, rules: Iterable[Rule], heard: Sequence[Telling], *, now: datetime
) -> Plan:
    """Return the messages due for an occurrence of an incident; `heard` are those already sent.

    Everyone who was notified also gets the "resolved" message, at any hour.
    """
    if not told.open:
        ends = {one.channel for one in heard if one.step is Step.RESOLVED}
        knew = {one.channel for one in heard if one.step is not Step.RESOLVED}
        return Plan(tuple(Telling(Step.RESOLVED, channel) for channel in sorted(knew - ends)))
    if told.snoozed_until is not None and told.snoozed_until > now:
        return Plan(again_at=told.snoozed_until)
    if told.taken(now):
        return Plan(again_at=told.acknowledged_until)
    due: dict[Telling, None] = {}
    again: list[datetime] = []
    for rule in rules:
        if not rule.selector.matches(
            kind=told.kind,
            severity=told.severity,
            application=told.application,
            labels=told.labels,
        ):
            continue
        if told.gone_at is not None and told.gone_at - now > rule.selector.stopped_within:
            again.append(told.gone_at - rule.selector.stopped_within)
            continue
        quiet = rule.quiet.ends(now) if rule.quiet is not None else None
        if quiet is not None and told.severity is not Severity.CRITICAL:
            again.append(quiet)
            continue
        tellings, times = _of_rule(rule, told, now)
        due |= dict.fromkeys(tellings)
        again += times
    new = tuple(one for one in due if one not in heard)
    return Plan(new, min(again, default=None))


def _of_rule(
    rule: Rule, told: RoutedIncident, now: datetime
) -> tuple[list[Telling], list[datetime]]:
    due = [Telling(Step.OPENED, channel) for channel in rule.channels]
    again: list[datetime] = []
    listening = rule.channels
    if rule.escalate_after is not None:
        at = told.opened_at + rule.escalate_after
        if at <= now:
            due += [Telling(Step.ESCALATED, channel) for channel in rule.escalate_to]
            listening = (*listening, *rule.escalate_to)
        else:
            again.append(at)
    if rule.remind_every is not None:
        count = int((now - told.opened_at) / rule.remind_every)
        if count:
            due += [Telling(Step.REMINDER, channel, count) for channel in listening]
        again.append(told.opened_at + (count + 1) * rule.remind_every)
    return due, again


def in_force(rules: Sequence[Rule], channels: Iterable[int]) -> Sequence[Rule]:
    """Return the rules; if there are none, the default: every channel gets everything."""
    if rules:
        return rules
    return (Rule("default", Selector(), tuple(channels)),)
