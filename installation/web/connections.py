"""Limit connections to the web processes: their number per IP address, and their idle time.

uvicorn limits neither. `front` limits the time for request bodies, with better error messages.
"""

import asyncio
import ipaddress
import logging
from collections import Counter
from typing import Any

import h11
from django.conf import settings
from uvicorn.protocols.http.h11_impl import H11Protocol

from installation.web.front import problem

logger = logging.getLogger(__name__)

#: Seconds from a connection's first byte, or its last answer, to the end of a request's head.
HEAD_S = 30.0

_open: Counter[str] = Counter()  # connections to this process by address


class Bounded(H11Protocol):
    """A connection: rejected above its address's limit, closed if no request arrives."""

    _counted = ""  # the address it counts for; "" if none
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, or answer 503 and close it."""
        super().connection_made(transport)
        self._counted = counted_as(self.client[0] if self.client else "")
        if self._counted:
            _open[self._counted] += 1
            if _open[self._counted] > settings.CONNECTIONS_PER_ADDRESS:
                self._refuse()
                return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting this connection."""
        self._stop_watching()
        if self._counted:
            _open[self._counted] -= 1
            if not _open[self._counted]:
                del _open[self._counted]
            self._counted = ""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle the data, with a timeout while no request is being processed."""
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        theirs, ours = self.conn.their_state, self.conn.our_state
        # A body still arriving after its answer counts as idle, as an incomplete head does.
        waits = theirs is h11.IDLE or (theirs is h11.SEND_BODY and ours is h11.DONE)
        if not waits or self.transport.is_closing():
            self._stop_watching()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self) -> None:
        most = settings.CONNECTIONS_PER_ADDRESS
        if _open[self._counted] == most + 1:  # once, not for each rejected connection
            logger.warning("rejecting connections above %d from %s", most, self._counted)
        body = problem(
            503,
            "too-many-connections",
            "Too many connections",
            f"Your IP address already has {most} connections to this process.",
            "Close some, or increase HEADGATE_CONNECTIONS_PER_ADDRESS.",
        )
        self.transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
            b"Retry-After: 5\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()


def counted_as(address: str) -> str:
    """Return the key under which an address is counted: for IPv6, its 64-bit network.

    "" for a trusted proxy, which represents many clients, and for a peer without an address.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return ""
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if any(
        ip in ipaddress.ip_network(network, strict=False) for network in settings.TRUSTED_PROXIES
    ):
        return ""
    if ip.version == 4:
        return str(ip)
    return str(ipaddress.ip_network((ip, 64), strict=False))
