"""The registered kinds of channels; models, forms, pages and the REST API derive from this list."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from queries.channels import chat, mail, pagerduty, webhook
from queries.channels.base import DeclaredKind, Message, Network, PermittedHosts, through
from queries.domain.secrets import ANYWHERE


class ChannelKind(StrEnum):
    """The kinds of channels."""

    MAIL = "mail"
    CHAT = "chat"
    PAGERDUTY = "pagerduty"
    WEBHOOK = "webhook"


KINDS: Mapping[ChannelKind, DeclaredKind] = {
    ChannelKind.MAIL: mail.KIND,
    ChannelKind.CHAT: chat.KIND,
    ChannelKind.PAGERDUTY: pagerduty.KIND,
    ChannelKind.WEBHOOK: webhook.KIND,
}


def choices() -> list[tuple[str, str]]:
    """Return the model's choices; migrations refer to this function, so a new kind needs none."""
    return [(kind, kind) for kind in ChannelKind]


def is_supported(kind: str) -> bool:
    """Return whether this is a kind; a channel of a kind that was removed stays as a row."""
    return kind in set(ChannelKind)


def destination_of(kind: str, settings: Mapping[str, Any]) -> str:
    """Return "host:port", or the name of a chat service with a fixed host ("slack").

    `ANYWHERE` if the settings do not determine it, for example if the URL is still a reference, or
    if the channel's kind is no longer supported.
    """
    return KINDS[ChannelKind(kind)].places.destination(settings) if is_supported(kind) else ANYWHERE


def way_of(kind: str, settings: Mapping[str, Any]) -> PermittedHosts:
    """Return the hosts that the outbound guard permits, for settings without references."""
    return KINDS[ChannelKind(kind)].places.way(settings)


def send(
    kind: str,
    settings: Mapping[str, Any],
    message: Message,
    *,
    timeout_s: float,
    allowed: Sequence[Network] = (),
) -> None:
    """Deliver a message through a channel of this kind, or raise `SendFailed`.

    Every kind goes through the outbound guard; `allowed` are the private networks that it permits.
    """
    with through(way_of(kind, settings), allowed=allowed):
        KINDS[ChannelKind(kind)].send(settings, message, timeout_s=timeout_s)
