"""The kinds of channels: the settings that each needs, and how it sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from queries.channels import chat, mail, opsgenie, pagerduty, webhook
from queries.channels.base import ChannelKind, Message
from queries.channels.door import Network, through
from queries.channels.places import way_of


class Sender(Protocol):
    """Deliver one message, or raise `SendFailed`; `settings` contain values, not references."""

    def __call__(self, settings: Mapping[str, Any], message: Message, *, timeout_s: float) -> None:
        """Deliver the message within `timeout_s` seconds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The settings that a kind of channel needs, and which of them are secrets."""

    send: Sender
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()  # written as references: file:NAME or env:NAME


KINDS: Mapping[ChannelKind, Kind] = {
    ChannelKind.MAIL: Kind(
        mail.send,
        ("host", "sender", "recipients"),
        ("port", "security", "username", "password"),
        ("password",),
    ),
    ChannelKind.CHAT: Kind(chat.send, ("url",), (), ("url",)),
    ChannelKind.PAGERDUTY: Kind(pagerduty.send, ("routing_key",), ("url",), ("routing_key",)),
    ChannelKind.OPSGENIE: Kind(opsgenie.send, ("api_key",), ("url",), ("api_key",)),
    ChannelKind.WEBHOOK: Kind(webhook.send, ("url", "secret"), (), ("url", "secret")),
}


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
