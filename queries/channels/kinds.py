"""The kinds of channels: what each needs to be set up, and how it sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from queries.channels import chat, mail, opsgenie, pagerduty, webhook
from queries.channels.base import ChannelKind, Message
from queries.channels.http import Network


class Sender(Protocol):
    """Deliver one message, or raise `SendFailed`; `settings` hold values, not references."""

    def __call__(
        self,
        settings: Mapping[str, Any],
        message: Message,
        *,
        timeout_s: float,
        allowed: Sequence[Network] = (),
    ) -> None:
        """Deliver it within `timeout_s` seconds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of channel needs: settings by name, and which of them are secrets."""

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
    """Deliver a message by a channel of that kind; raise `SendFailed` where it is not."""
    KINDS[ChannelKind(kind)].send(settings, message, timeout_s=timeout_s, allowed=allowed)
