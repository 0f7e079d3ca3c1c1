"""Send a message through a channel of any kind."""

from collections.abc import Mapping, Sequence
from typing import Any

from queries.channels.base import ChannelKind, Message
from queries.channels.door import Network, through
from queries.channels.kinds import KINDS
from queries.channels.places import way_of


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
