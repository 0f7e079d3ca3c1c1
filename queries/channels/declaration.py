"""Declare a kind of channel, in the module that sends its messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from queries.channels.base import Message
from queries.channels.places import Places
from queries.domain.alerts.channel_settings import ChannelSettings


class Sender(Protocol):
    """Delivers one message, or raises `SendFailed`; `settings` contain values, not references."""

    def __call__(self, settings: Mapping[str, Any], message: Message, *, timeout_s: float) -> None:
        """Deliver the message within `timeout_s` seconds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of channel: its settings, its destination, and how to send."""

    form: ChannelSettings
    places: Places
    send: Sender
