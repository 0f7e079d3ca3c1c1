"""Decide who is notified, and when: rules, quiet hours, escalation; and of Headgate's own
problems.

Pure: computed from an incident, the rules and the messages already sent. A plan can safely be
executed twice, because a message that has been sent is no longer due.

The watcher monitors the worker, its ticks, Redis and the database from outside, and reports
problems that they cannot report themselves: see decisions/0015.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from queries.domain.alerts.forms import IncidentKind, NotificationStep, Selector, Severity


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
class RoutingRule:
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

    def is_acknowledged(self, now: datetime) -> bool:
        """Return whether a user is working on the incident."""
        until = self.acknowledged_until
        return self.acknowledged and (until is None or until > now)


@dataclass(frozen=True, slots=True)
class Telling:
    """One message to one channel; `repeat` counts reminders from 1."""

    step: NotificationStep
    channel: int
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """The messages to send now, and when to check again (None: when the incident changes)."""

    tellings: tuple[Telling, ...] = ()
    again_at: datetime | None = None


def plan(
    incident: RoutedIncident,
    rules: Iterable[RoutingRule],
    sent_messages: Sequence[Telling],
    *,
    now: datetime,
) -> DeliveryPlan:
    """Return an incident's messages that are due; `sent_messages` are those already sent.

    Everyone who was notified also gets the "resolved" message, at any hour.
    """
    if not incident.open:
        ends = {
            telling.channel
            for telling in sent_messages
            if telling.step is NotificationStep.RESOLVED
        }
        knew = {
            telling.channel
            for telling in sent_messages
            if telling.step is not NotificationStep.RESOLVED
        }
        return DeliveryPlan(
            tuple(Telling(NotificationStep.RESOLVED, channel) for channel in sorted(knew - ends))
        )
    if incident.snoozed_until is not None and incident.snoozed_until > now:
        return DeliveryPlan(again_at=incident.snoozed_until)
    if incident.is_acknowledged(now):
        return DeliveryPlan(again_at=incident.acknowledged_until)
    due: dict[Telling, None] = {}
    again: list[datetime] = []
    for rule in rules:
        if not rule.selector.matches(
            kind=incident.kind,
            severity=incident.severity,
            application=incident.application,
            labels=incident.labels,
        ):
            continue
        if incident.gone_at is not None and incident.gone_at - now > rule.selector.stopped_within:
            again.append(incident.gone_at - rule.selector.stopped_within)
            continue
        quiet = rule.quiet.ends(now) if rule.quiet is not None else None
        if quiet is not None and incident.severity is not Severity.CRITICAL:
            again.append(quiet)
            continue
        tellings, times = _of_rule(rule, incident, now)
        due |= dict.fromkeys(tellings)
        again += times
    new = tuple(telling for telling in due if telling not in sent_messages)
    return DeliveryPlan(new, min(again, default=None))


def _of_rule(
    rule: RoutingRule, incident: RoutedIncident, now: datetime
) -> tuple[list[Telling], list[datetime]]:
    due = [Telling(NotificationStep.OPENED, channel) for channel in rule.channels]
    again: list[datetime] = []
    listening = rule.channels
    if rule.escalate_after is not None:
        at = incident.opened_at + rule.escalate_after
        if at <= now:
            due += [Telling(NotificationStep.ESCALATED, channel) for channel in rule.escalate_to]
            listening = (*listening, *rule.escalate_to)
        else:
            again.append(at)
    if rule.remind_every is not None:
        count = int((now - incident.opened_at) / rule.remind_every)
        if count:
            due += [Telling(NotificationStep.REMINDER, channel, count) for channel in listening]
        again.append(incident.opened_at + (count + 1) * rule.remind_every)
    return due, again


def in_force(rules: Sequence[RoutingRule], channels: Iterable[int]) -> Sequence[RoutingRule]:
    """Return the rules; if there are none, the default: every channel gets everything."""
    if rules:
        return rules
    return (RoutingRule("default", Selector(), tuple(channels)),)


class Look(StrEnum):
    """The result of one check of a part."""

    WELL = "well"
    TROUBLE = "trouble"
    UNKNOWN = "unknown"  # hidden by another part's problem


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The state of one part at a check, with a sentence for users."""

    part: str
    look: Look
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class ProblemWatch:
    """What is remembered about a part that has a problem."""

    since: datetime  # first seen
    sentence: str
    reported_at: datetime | None = None  # when the problem was reported; None: not yet
    reminded_at: datetime | None = None
    well_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Saying:
    """One message to send: the part, and which of its problems (identified by when it began)."""

    part: str
    step: NotificationStep
    since: datetime
    sentence: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a problem and a recovery must last to be reported, and when to repeat a report."""

    trouble: timedelta = timedelta(seconds=45)  # a restarted worker is back within this time
    calm: timedelta = timedelta(seconds=60)
    remind: timedelta = timedelta(hours=4)


#: Parts needed for incidents and their delivery: if one has a problem, only the watcher can report
#: it.
PATH = ("database", "redis", "worker", "ticks")
#: Parts that the watcher reports on, with the incident kind for each.
KINDS: Mapping[str, IncidentKind] = {
    "web": IncidentKind.WEB_DOWN,
    "database": IncidentKind.DATABASE_DOWN,
    "redis": IncidentKind.REDIS_DOWN,
    "worker": IncidentKind.WORKER_DOWN,
    "ticks": IncidentKind.TICKS_LATE,
    "ingester": IncidentKind.INGESTER_DOWN,
    "disk": IncidentKind.DISK,
}
#: Parts that get ordinary incidents while every part of `PATH` works.
REPORTED_AS_INCIDENTS = ("ingester", "disk")


def due_reports(
    watched: Mapping[str, ProblemWatch],
    checks: Iterable[SelfCheck],
    *,
    now: datetime,
    patience: Patience,
) -> tuple[dict[str, ProblemWatch], list[Saying]]:
    """Return what to remember after a check, and what to report now.

    `checks` may contain parts that the watcher does not report on; they are ignored.
    """
    looks = {check.part: check for check in checks if check.part in KINDS}
    broken = any(looks[part].look is Look.TROUBLE for part in PATH if part in looks)
    after: dict[str, ProblemWatch] = {}
    sayings: list[Saying] = []
    for part in KINDS:
        before = watched.get(part)
        check = looks.get(part, SelfCheck(part, Look.UNKNOWN))
        if before is None and part in REPORTED_AS_INCIDENTS and not broken:
            continue
        watch, saying = _judge(before, check, now, patience)
        if watch is not None:
            after[part] = watch
        if saying is not None:
            sayings.append(saying)
    return after, sayings


def _judge(
    before: ProblemWatch | None, check: SelfCheck, now: datetime, patience: Patience
) -> tuple[ProblemWatch | None, Saying | None]:
    if check.look is Look.UNKNOWN:
        return before, None
    if check.look is Look.TROUBLE:
        watch = replace(before or ProblemWatch(now, ""), sentence=check.sentence, well_since=None)
        return _in_trouble(watch, check.part, now, patience)
    if before is None or before.reported_at is None:
        return None, None
    well_since = before.well_since or now
    if now - well_since < patience.calm:
        return replace(before, well_since=well_since), None
    return None, Saying(check.part, NotificationStep.RESOLVED, before.since, check.sentence)


def _in_trouble(
    watch: ProblemWatch, part: str, now: datetime, patience: Patience
) -> tuple[ProblemWatch, Saying | None]:
    if watch.reported_at is None:
        if now - watch.since < patience.trouble:
            return watch, None
        reported_watch = replace(watch, reported_at=now)
        return reported_watch, Saying(part, NotificationStep.OPENED, watch.since, watch.sentence)
    if now - (watch.reminded_at or watch.reported_at) < patience.remind:
        return watch, None
    reminded = replace(watch, reminded_at=now)
    return reminded, Saying(part, NotificationStep.REMINDER, watch.since, watch.sentence)


def drop_unreported(watched: Mapping[str, ProblemWatch]) -> dict[str, ProblemWatch]:
    """Return the state with which a restarted watcher continues.

    Problems that have not been reported yet are dropped, because they began before the restart: the
    restarted watcher first makes its own checks.
    """
    return {part: watch for part, watch in watched.items() if watch.reported_at is not None}
