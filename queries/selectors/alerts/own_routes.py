"""Who hears of Headgate's own trouble, as the watcher keeps it for when no database answers."""

from dataclasses import dataclass
from typing import Any

from queries.domain.alerts.kinds import IncidentKind
from queries.domain.alerts.matching import Selector
from queries.domain.alerts.watching import KINDS
from queries.models.alerts import AlertRule


@dataclass(frozen=True, slots=True)
class Route:
    """A channel, with references in place of secrets."""

    name: str
    kind: str  # channels.base.ChannelKind
    settings: dict[str, Any]


def own_routes() -> dict[str, list[Route]]:
    """Return the channels that hear of each kind of own trouble, in three database queries."""
    rules = AlertRule.objects.filter(enabled=True).prefetch_related("channels")
    routes: dict[IncidentKind, dict[str, Route]] = {kind: {} for kind in KINDS.values()}
    for rule in rules:
        selector = Selector(**rule.selector)
        for kind, found in routes.items():
            if not selector.matches(kind=kind, severity=kind.severity, application="", labels={}):
                continue
            for channel in rule.channels.all():
                if channel.enabled:
                    found[channel.name] = Route(channel.name, channel.kind, channel.settings)
    return {str(kind): list(found.values()) for kind, found in routes.items()}
