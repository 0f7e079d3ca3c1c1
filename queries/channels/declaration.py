"""Declare a kind of channel, in the module that sends its messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from queries.channels.base import Message
from queries.channels.places import Destinations
from queries.domain.alerts.channel_settings import ChannelSettings


class MessageSender(Protocol):
    """Delivers one message, or raises `SendFailed`; `settings` contain values, not references."""

    def __call__(self, settings: Mapping[str, Any], message: Message, *, timeout_s: float) -> None:
        """Deliver the message within `timeout_s` seconds."""


@dataclass(frozen=True, slots=True)
class DeclaredKind:
    """A kind of channel: its settings, its destination, and how to send."""

    form: ChannelSettings
    places: Destinations
    send: MessageSender
