"""Who hears of Headgate's own trouble, as the watcher keeps it for when no database answers."""

from dataclasses import dataclass
from typing import Any

from queries.domain.alerts.watching import KINDS
from queries.models.alerts import Channel
from queries.selectors.alerts.rules import rules_in_force


@dataclass(frozen=True, slots=True)
class Route:
    """A channel, with references in place of secrets."""

    name: str
    kind: str  # channels.base.ChannelKind
    settings: dict[str, Any]


def own_routes() -> dict[str, list[Route]]:
    """Return the channels that hear of each kind of own trouble, in five database queries."""
    channels = {one.pk: one for one in Channel.objects.filter(enabled=True)}
    routes: dict[str, list[Route]] = {}
    rules = rules_in_force()
    for kind in KINDS.values():
        told: dict[int, None] = {}
        for rule in rules:
            if rule.selector.matches(kind=kind, severity=kind.severity, application="", labels={}):
                told |= dict.fromkeys(rule.channels)
        routes[str(kind)] = [
            Route(channels[pk].name, channels[pk].kind, channels[pk].settings) for pk in told
        ]
    return routes
