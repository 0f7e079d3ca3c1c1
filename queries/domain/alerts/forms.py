"""Kinds of incidents, and the JSON form of users' alert configuration: channels, rules, windows.

The pages and the REST API read and show these forms; the database rows are created from them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from headgate_ground.masking import is_reference
from queries.domain.accepted_values import zone_problem
from queries.domain.definitions.labels import Selection, Term, matches, parse_labels, terms
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import MOST_THRESHOLDS, Longest, StrictForm, Threshold
from queries.domain.errors import Invalid, Problem
from queries.domain.validation.thresholds import threshold_problems


class Severity(StrEnum):
    """How soon a user must act."""

    CRITICAL = "critical"  # nothing is processed, or data is lost for good
    WARNING = "warning"  # it still works, but will not for long


class IncidentKind(StrEnum):
    """What an incident is about. Its label and severity are defined only here."""

    label: str  # shown on pages and in messages
    severity: Severity

    def __new__(cls, code: str, label: str = "", severity: Severity = Severity.CRITICAL) -> Self:
        """Return a member whose value is only its code."""
        member = str.__new__(cls, code)
        member._value_, member.label, member.severity = code, label, severity
        return member

    # about a query
    FAILED = "failed", "Failed"
    ON_HOLD = "on-hold", "On hold"
    CRASH_LOOP = "crash-loop", "Crash loop"
    STALLED = "stalled", "Stalled"
    QUERY_MISSING = "query-missing", "Query missing"
    NO_TELEMETRY = "no-telemetry", "No telemetry", Severity.WARNING
    LAGGING = "lagging", "Lagging", Severity.WARNING
    AT_RISK = "at-risk", "Unread records at risk"
    AT_RISK_STOPPED = (
        "at-risk-stopped",
        "Unread records of a stopped query are about to be deleted",
        Severity.WARNING,
    )
    SQL_REFUSED = "sql-refused", "Spark rejects SQL that was saved unchecked", Severity.WARNING
    SOURCE_UNREACHABLE = "source-unreachable", "Source unreachable"
    RECORDS_LOST = "records-lost", "Records lost"
    LATE_RECORDS = "late-records", "Records dropped as late", Severity.WARNING
    EVENTS_DROPPED = "events-dropped", "Events dropped beyond repair", Severity.WARNING
    STATE_LIMIT = "state-limit", "State will reach its limit soon", Severity.WARNING
    THRESHOLD = "threshold", "Threshold crossed", Severity.WARNING
    REPLAY = "replay", "A restart would replay a lot", Severity.WARNING
    CHECKPOINT_MOVED = "checkpoint-moved", "A script changed its checkpoint", Severity.WARNING
    STUCK_STOP = "stuck-stop", "Stop hangs", Severity.WARNING
    PREFLIGHT_FAILING = "preflight-failing", "Required preflight fails", Severity.WARNING
    # about an application or a host
    DRIVER_DEATHS = "driver-deaths", "Driver fails repeatedly"
    QUERY_IDENTITY = "query-identity", "Script waits for an answer"
    HOST_SILENT = "host-silent", "Host silent"
    # about Headgate itself
    DISK = "disk", "Disk full"
    WEB_DOWN = "web-down", "Console is not responding"
    DATABASE_DOWN = "database-down", "No database"
    REDIS_DOWN = "redis-down", "No Redis"
    WORKER_DOWN = "worker-down", "No worker"
    TICKS_LATE = "ticks-late", "Periodic work is late"
    INGESTER_DOWN = "ingester-down", "No ingester"
    DATA_OLD = "data-old", "Data is stale", Severity.WARNING
    NO_CHANNEL = "no-channel", "Rule notifies nobody", Severity.WARNING
    CHANNEL_DEAD = "channel-dead", "Channel delivers nothing", Severity.WARNING


class IncidentState(StrEnum):
    """Whether an incident is open."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"


class NotificationStep(StrEnum):
    """Why a notification is sent, in the order in which an incident goes through them."""

    OPENED = "opened"
    ESCALATED = "escalated"
    REMINDER = "reminder"
    RESOLVED = "resolved"


class EntryKind(StrEnum):
    """What one entry in an incident's history reports."""

    OPENED = "opened"
    UPDATED = "updated"
    REOPENED = "reopened"
    QUIET = "quiet"  # the cause is gone; closed after the hold time
    CLOSED = "closed"
    ACKNOWLEDGED = "acknowledged"
    SNOOZED = "snoozed"
    ASSIGNED = "assigned"
    NOTE = "note"
    CORRECTED = "corrected"  # what it reported turned out to be wrong
    MERGED = "merged"  # the same problem of another query was added


class DeliveryState(StrEnum):
    """The state of one message to one channel."""

    WAITING = "WAITING"
    SENT = "SENT"
    GIVEN_UP = "GIVEN_UP"  # not delivered within a day
    SKIPPED = "SKIPPED"  # the incident ended, or was acknowledged, before it was sent


#: One day, so that users who are not on call see it in time.
STOPPED_WITHIN = timedelta(hours=24)


class Selector(StrictForm):
    """Which incidents match; empty fields match everything."""

    labels: dict[str, str] = Field(default_factory=dict)
    kinds: list[IncidentKind] = Field(default_factory=list)
    severities: list[Severity] = Field(default_factory=list)
    applications: list[str] = Field(default_factory=list)
    stopped: bool = True  # include stopped queries whose unread records will soon be deleted
    #: Hours before that deletion; None: `STOPPED_WITHIN`.
    stopped_within_hours: Annotated[int, Field(ge=1, le=8760)] | None = None

    @property
    def stopped_within(self) -> timedelta:
        """Return how long before its unread records are deleted a stopped query starts to match."""
        hours = self.stopped_within_hours
        return STOPPED_WITHIN if hours is None else timedelta(hours=hours)

    @property
    def about_queries(self) -> Selection:
        """Return its conditions on a query: labels and applications."""
        return terms(self.labels, application=self.applications)

    def matches(
        self,
        *,
        kind: IncidentKind,
        severity: Severity,
        application: str,
        labels: Mapping[str, str],
    ) -> bool:
        """Return whether an incident matches; `application` is "" if it has none."""
        selection = (*self.about_queries, *terms(kind=self.kinds, severity=self.severities))
        if not self.stopped:
            selection = (*selection, Term("kind", (IncidentKind.AT_RISK_STOPPED,), is_not=True))
        fields = {"kind": kind, "severity": severity, "application": application}
        return matches(selection, fields, labels)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a channel kind, and how the form shows it."""

    name: str
    label: str
    needed: bool = True
    secret: bool = False  # written as a reference: file:NAME or env:NAME
    lines: bool = False  # a list, entered line by line


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """The settings of a kind of channel, in the order in which they are shown."""

    settings: tuple[Setting, ...]
    #: Returns what else is wrong with the values; None if there is nothing else to check.
    check: Callable[[Mapping[str, Any]], list[Problem]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all settings."""
        return tuple(setting.name for setting in self.settings)

    @property
    def needed(self) -> tuple[str, ...]:
        """Return the names of the settings that must have a value."""
        return tuple(setting.name for setting in self.settings if setting.needed)

    @property
    def secret(self) -> tuple[str, ...]:
        """Return the names of the secret settings."""
        return tuple(setting.name for setting in self.settings if setting.secret)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


class QuietHoursForm(StrictForm):
    """Hours in which only critical incidents are sent."""

    zone: str = "UTC"
    start: str = Field(alias="from")  # "22:00"
    until: str  # "07:00"; on the next day unless later than `start`
    days: list[Annotated[int, Field(ge=0, le=6)]] = Field(default_factory=list)  # Monday is 0

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class RuleForm(StrictForm):
    """A complete rule.

    selector: labels, kinds, severities, applications; stopped, stopped_within_hours. Empty: all.
    thresholds: figure, value or factor, window_minutes; for queries that the selector matches.
    channels: Names of the channels to notify.
    quiet_hours: zone, from, until, days (Monday is 0); warnings are held until they end.
    """

    #: Fields of REST's answer, which a changed answer that is sent back has too.
    ignored: ClassVar[tuple[str, ...]] = ("created_at", "created_by")

    name: Annotated[str, Longest(80)]
    enabled: bool = True
    position: Annotated[int, Field(ge=0, le=10_000)] = 0
    selector: Selector = Field(default_factory=Selector)
    channels: list[str]
    quiet_hours: QuietHoursForm | None = None
    escalate_after_minutes: Annotated[int, Field(ge=1, le=10_080)] | None = None
    escalate_to: list[str] = Field(default_factory=list)
    remind_every_hours: Annotated[int, Field(ge=1, le=720)] | None = None
    #: Checked for every query that the selector's labels and applications match.
    thresholds: list[Threshold] = Field(default_factory=list, max_length=MOST_THRESHOLDS)


class MaintenanceForm(StrictForm):
    """A maintenance window.

    selector: The same as for a rule.
    """

    name: Annotated[str, Longest(80)]
    selector: Selector = Field(default_factory=Selector)
    starts_at: datetime
    ends_at: datetime


def _known(kind: Any, info: ValidationInfo) -> Any:
    """Return a registered kind of channel; otherwise raise the error that a Literal would raise."""
    kinds: Mapping[str, ChannelSettings] = info.context or {}
    if isinstance(kind, str) and kind in kinds:
        return kind
    *others, last = (f"'{one}'" for one in kinds)
    expected = f"{', '.join(others)} or {last}" if others else last
    raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})


class ChannelForm(StrictForm):
    """A notification channel; `settings` depend on its kind."""

    ignored: ClassVar[tuple[str, ...]] = (
        *("created_at", "created_by", "last_sent_at", "failing_since", "last_error"),
    )

    name: Annotated[str, Longest(80)]
    kind: Annotated[str, BeforeValidator(_known)]
    settings: dict[str, str | int | list[str]]
    enabled: bool = True


_Form = TypeVar("_Form", RuleForm, MaintenanceForm, ChannelForm)


def parse_rule(raw: Mapping[str, Any]) -> RuleForm:
    """Return a rule; raise `Invalid` with every error by field."""
    form = parsed(RuleForm.model_validate, raw)
    problems = [*_name(form.name), *_selector(form.selector)]
    problems += threshold_problems(form.thresholds)
    if not form.channels:
        problems.append(
            Problem("channels", "", "has no channels.", "Choose the channels to notify.")
        )
    if form.escalate_to and form.escalate_after_minutes is None:
        way_out = "Set the number of minutes, or remove the channels to escalate to."
        problems.append(Problem("escalate_after_minutes", "", "is missing.", way_out))
    if form.escalate_after_minutes is not None and not form.escalate_to:
        problems.append(
            Problem("escalate_to", "", "has no channels.", "Choose the channels to escalate to.")
        )
    if form.quiet_hours is not None:
        problems += _quiet(form.quiet_hours)
    return _sound(form, problems)


def parse_maintenance(raw: Mapping[str, Any], *, now: datetime) -> MaintenanceForm:
    """Return a window; raise `Invalid` with every error by field."""
    form = parsed(MaintenanceForm.model_validate, raw)
    problems = [*_name(form.name), *_selector(form.selector)]
    for field, at in (("starts_at", form.starts_at), ("ends_at", form.ends_at)):
        if at.tzinfo is None:
            way_out = "Include the offset: 2026-01-05T03:00:00+00:00."
            problems.append(Problem(field, str(at), "has no time zone.", way_out))
    if not problems and form.ends_at <= max(form.starts_at, now):
        way_out = "Choose a time that is after the start and in the future."
        problems.append(Problem("ends_at", str(form.ends_at), "is already over.", way_out))
    return _sound(form, problems)


def parse_channel(raw: Mapping[str, Any], kinds: Mapping[str, ChannelSettings]) -> ChannelForm:
    """Return a channel; raise `Invalid` with every error by field.

    `kinds` maps each registered kind to its settings. Secrets are written as references, never as
    plain text.
    """
    form = parsed(lambda given: ChannelForm.model_validate(given, context=kinds), raw)
    kind = kinds[form.kind]
    problems = _name(form.name)
    for name in kind.needed:
        if not form.settings.get(name):
            problems.append(Problem(f"settings.{name}", "", "is missing.", "Set it."))
    for name, value in form.settings.items():
        field = f"settings.{name}"
        if name not in kind.names:
            known = ", ".join(kind.names)
            problems.append(
                Problem(field, "", f"is not a setting of {form.kind}.", f"Settings: {known}.")
            )
        elif name in kind.secret and value and not (isinstance(value, str) and is_reference(value)):
            way_out = "Write file:NAME or env:NAME; the value belongs in the secrets folder."
            problems.append(Problem(field, "", "is a plain-text secret.", way_out))
    if kind.check is not None:
        problems += kind.check(form.settings)
    return _sound(form, problems)


def _name(name: str) -> list[Problem]:
    if _NAME.fullmatch(name):
        return []
    way_out = "Use 1 to 80 letters, digits, spaces and . _ -, starting with a letter or digit."
    return [Problem("name", name[:200], "is not a valid name.", way_out)]


def _selector(form: Selector) -> list[Problem]:
    try:
        parse_labels(form.labels)
    except Invalid as error:
        return [
            Problem(f"selector.{one.field}", one.value, one.message, one.way_out)
            for one in error.problems
        ]
    return []


def _quiet(form: QuietHoursForm) -> list[Problem]:
    problems = []
    for field, value in (("from", form.start), ("until", form.until)):
        if not _TIME.fullmatch(value):
            way_out = "Write hours and minutes, such as 22:00."
            problems.append(
                Problem(f"quiet_hours.{field}", value[:200], "is not a valid time.", way_out)
            )
    if not problems and time.fromisoformat(form.start) == time.fromisoformat(form.until):
        way_out = "Choose another time, or remove the quiet hours."
        problems.append(
            Problem("quiet_hours.until", form.until, "is the same as the start.", way_out)
        )
    if wrong := zone_problem("quiet_hours.zone", form.zone):
        problems.append(wrong)
    return problems


def _sound(form: _Form, problems: list[Problem]) -> _Form:
    if problems:
        raise Invalid(problems)
    return form
