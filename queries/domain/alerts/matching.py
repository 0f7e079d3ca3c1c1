"""Which incidents a selector means: that of a rule, or of a maintenance window."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from queries.domain.alerts.kinds import IncidentKind, Severity


@dataclass(frozen=True, slots=True)
class Selector:
    """What must hold of an incident; an empty part holds of every one.

    Labels must all be there with these values; of kinds, severities and applications, one must be
    the incident's.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    kinds: Collection[str] = ()
    severities: Collection[str] = ()
    applications: Collection[str] = ()  # names

    def matches(
        self,
        *,
        kind: IncidentKind,
        severity: Severity,
        application: str,
        labels: Mapping[str, str],
    ) -> bool:
        """Return whether an incident is meant; `application` is "" where it is of none."""
        return (
            all(labels.get(name) == value for name, value in self.labels.items())
            and (not self.kinds or kind in self.kinds)
            and (not self.severities or severity in self.severities)
            and (not self.applications or application in self.applications)
        )
