"""Determine who is notified of Headgate's own problems; the watcher stores this for outages."""

from dataclasses import dataclass, field
from typing import Any

from queries.domain.alerts.routing import KINDS
from queries.domain.secrets import Bound, channel
from queries.models.alerts import Channel
from queries.selectors.alerts.rules import rules_in_force
from queries.selectors.secrets import all_bound


@dataclass(frozen=True, slots=True)
class Route:
    """A channel, with references instead of secrets."""

    name: str
    kind: str  # channels.base.ChannelKind
    settings: dict[str, Any]
    bound: dict[str, list[str]] = field(default_factory=dict)  # its secrets: the hosts allowed


def own_routes() -> dict[str, list[Route]]:
    """Return the channels for each kind of problem with Headgate, in six database queries."""
    channels = {one.pk: one for one in Channel.objects.filter(enabled=True)}
    routes: dict[str, list[Route]] = {}
    rules, bound = rules_in_force(), all_bound()
    for kind in KINDS.values():
        told: dict[int, None] = {}
        for rule in rules:
            if rule.selector.matches(kind=kind, severity=kind.severity, application="", labels={}):
                told |= dict.fromkeys(rule.channels)
        routes[str(kind)] = [
            _route(channels[pk], bound.get(channel(channels[pk].name), {})) for pk in told
        ]
    return routes


def _route(row: Channel, bound: Bound) -> Route:
    secrets = {secret: list(hosts) for secret, hosts in bound.items()}
    return Route(row.name, row.kind, row.settings, secrets)
