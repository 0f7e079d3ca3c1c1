"""Match incidents against the selector of a rule or a maintenance window."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from queries.domain.alerts.kinds import IncidentKind, Severity

#: One day, so that users who are not on call see it in time.
STOPPED_WITHIN = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions on an incident; empty fields match everything.

    The incident must have all of these labels with these values, and its kind, severity and
    application must each be one of those listed.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    kinds: Collection[str] = ()
    severities: Collection[str] = ()
    applications: Collection[str] = ()  # names
    stopped: bool = True  # include stopped queries whose unread records will soon be deleted
    #: Hours before that deletion; None: `STOPPED_WITHIN`.
    stopped_within_hours: int | None = None

    @property
    def stopped_within(self) -> timedelta:
        """Return how long before its unread records are deleted a stopped query starts to match."""
        hours = self.stopped_within_hours
        return STOPPED_WITHIN if hours is None else timedelta(hours=hours)

    def matches(
        self,
        *,
        kind: IncidentKind,
        severity: Severity,
        application: str,
        labels: Mapping[str, str],
    ) -> bool:
        """Return whether an incident matches; `application` is "" if it has none."""
        return (
            all(labels.get(name) == value for name, value in self.labels.items())
            and (not self.kinds or kind in self.kinds)
            and (self.stopped or kind is not IncidentKind.AT_RISK_STOPPED)
            and (not self.severities or severity in self.severities)
            and (not self.applications or application in self.applications)
        )
