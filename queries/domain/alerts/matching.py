"""The selector of a rule or a maintenance window: which incidents it matches."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from queries.domain.alerts.kinds import IncidentKind, Severity
from queries.domain.definitions.selection import Selection, Term, matches, terms
from queries.domain.definitions.spec import StrictForm

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
