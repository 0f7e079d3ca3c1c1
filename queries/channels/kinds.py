"""The kinds of channels: the settings that each needs, how it sends, and where to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from queries.channels import chat, mail, opsgenie, pagerduty, webhook
from queries.channels.base import ChannelKind, Message


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
    url: str = ""  # of the service, unless the settings have another


KINDS: Mapping[ChannelKind, Kind] = {
    ChannelKind.MAIL: Kind(
        mail.send,
        ("host", "sender", "recipients"),
        ("port", "security", "username", "password"),
        ("password",),
    ),
    ChannelKind.CHAT: Kind(chat.send, ("url",), (), ("url",)),
    ChannelKind.PAGERDUTY: Kind(
        pagerduty.send, ("routing_key",), ("url",), ("routing_key",), pagerduty.URL
    ),
    ChannelKind.OPSGENIE: Kind(opsgenie.send, ("api_key",), ("url",), ("api_key",), opsgenie.URL),
    ChannelKind.WEBHOOK: Kind(webhook.send, ("url", "secret"), (), ("url", "secret")),
}
