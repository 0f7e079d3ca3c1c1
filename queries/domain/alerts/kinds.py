"""The kinds of incidents, how severe each is, and the steps in which people hear of one."""

from enum import StrEnum
from typing import Self


class Severity(StrEnum):
    """How soon somebody must act."""

    CRITICAL = "critical"  # nothing is processed, or data are lost for good
    WARNING = "warning"  # it still works, and will not for long


class IncidentKind(StrEnum):
    """What an incident is about; its label and severity stand here alone."""

    label: str  # the words that pages and messages show for it
    severity: Severity

    def __new__(cls, code: str, label: str = "", severity: Severity = Severity.CRITICAL) -> Self:
        """Return a member whose value is its code alone."""
        member = str.__new__(cls, code)
        member._value_, member.label, member.severity = code, label, severity
        return member

    # of a query
    FAILED = "failed", "Failed"
    BROKEN = "broken", "Held as broken"
    CRASH_LOOP = "crash-loop", "Crash loop"
    STALLED = "stalled", "Stalled"
    ZOMBIE = "zombie", "Zombie"
    BLIND = "blind", "No events arrive", Severity.WARNING
    LAGGING = "lagging", "Lagging", Severity.WARNING
    AT_RISK = "at-risk", "Unread records are about to be deleted"
    SOURCE_UNREACHABLE = "source-unreachable", "Source unreachable"
    RECORDS_LOST = "records-lost", "Records lost"
    LATE_RECORDS = "late-records", "Records dropped as late", Severity.WARNING
    EVENTS_DROPPED = "events-dropped", "Events dropped beyond repair", Severity.WARNING
    STATE_LIMIT = "state-limit", "State reaches its limit soon", Severity.WARNING
    REPLAY = "replay", "A restart would replay much", Severity.WARNING
    STUCK_STOP = "stuck-stop", "A stop hangs", Severity.WARNING
    PREFLIGHT_FAILING = "preflight-failing", "A required preflight fails", Severity.WARNING
    # of an application or a host
    DRIVER_DEATHS = "driver-deaths", "The driver dies again and again"
    QUERY_IDENTITY = "query-identity", "Which query is which?"
    HOST_SILENT = "host-silent", "Host silent"
    # of Headgate itself
    DISK = "disk", "Disk full"
    WEB_DOWN = "web-down", "The console does not answer"
    DATABASE_DOWN = "database-down", "No database"
    REDIS_DOWN = "redis-down", "No Redis"
    WORKER_DOWN = "worker-down", "No worker"
    BEAT_DOWN = "beat-down", "No beat"
    INGESTER_DOWN = "ingester-down", "No ingester"
    DATA_OLD = "data-old", "Data are old", Severity.WARNING
    CHANNEL_DEAD = "channel-dead", "A channel delivers nothing", Severity.WARNING


class IncidentState(StrEnum):
    """Whether an incident lasts."""

    OPEN = "OPEN"
    CLOSED = "CLOSED"


class Step(StrEnum):
    """Why somebody is told of an incident; the order is that of its life."""

    OPENED = "opened"
    ESCALATED = "escalated"
    REMINDER = "reminder"
    RESOLVED = "resolved"


class EntryKind(StrEnum):
    """What one line of an incident's story tells."""

    OPENED = "opened"
    UPDATED = "updated"
    REOPENED = "reopened"
    QUIET = "quiet"  # the cause is gone; closed after the hold time
    CLOSED = "closed"
    ACKNOWLEDGED = "acknowledged"
    SNOOZED = "snoozed"
    ASSIGNED = "assigned"
    NOTE = "note"
    MERGED = "merged"  # a trouble of one more query counts to it


class DeliveryState(StrEnum):
    """Where one message to one channel is."""

    WAITING = "WAITING"
    SENT = "SENT"
    GIVEN_UP = "GIVEN_UP"  # not delivered within a day
    SKIPPED = "SKIPPED"  # the incident ended, or was acknowledged, before it was sent
