"""The kinds of incidents, their severities, and the events that trigger notifications."""

from enum import StrEnum
from typing import Self


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
    BROKEN = "broken", "On hold as broken"
    CRASH_LOOP = "crash-loop", "Crash loop"
    STALLED = "stalled", "Stalled"
    ZOMBIE = "zombie", "Zombie"
    BLIND = "blind", "No events arrive", Severity.WARNING
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
