"""Guard outbound connections of alerts: check hosts by name and connections by IP address.

All messages pass through this outbound guard. CPython reports each look-up and each connection
before it is made (`sys.addaudithook`, PEP 578), and a hook can prevent it by raising an error. So
whichever library sends a message, even an apprise plug-in, the address that is checked is the one
to which it connects; this also applies to redirects.
"""

import ipaddress
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from queries.channels.base import SendFailed

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: RFC 6052, the well-known prefix, and RFC 8215, the one for local use.
_NAT64 = tuple(ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")  # RFC 4291, 2.5.5.1
_UNICAST = ipaddress.IPv6Network("2000::/3")  # everything that IANA has assigned as global unicast
#: Events that no sender needs, and that would bypass the checks. The checks apply to one thread,
#: and CPython 3.11 does not report when another thread is started: tests verify that no accepted
#: service starts one.
_REFUSED = frozenset({"socket.sendto", "socket.sendmsg", "subprocess.Popen", "os.system"})


@dataclass(frozen=True, slots=True)
class PermittedHosts:
    """The hosts and networks to which one message is allowed to go."""

    hosts: tuple[str, ...]  # names or addresses that may be looked up
    plain: bool = False  # without TLS: only in allowed networks
    relay: bool = False  # a private network is allowed if its host is specified


@dataclass(slots=True)
class _Door:
    way: PermittedHosts
    allowed: Sequence[Network]
    refused: str = field(default="")  # the first refusal, in words; after that, nothing is allowed

    def judge(self, event: str, args: tuple[Any, ...]) -> None:
        """Raise PermissionError if the event is not allowed."""
        if event == "socket.getaddrinfo":
            self.refused = self.refused or self._of_name(args[0])
        elif event == "socket.connect":
            self.refused = self.refused or self._of_address(args[1])
        elif event in _REFUSED:
            self.refused = self.refused or (
                f"Its sender tried {event}, which senders are not allowed to do."
            )
        else:
            return
        if self.refused:
            raise PermissionError(self.refused)

    def _of_name(self, host: object) -> str:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
        named = (_plain(allowed_host) for allowed_host in self.way.hosts)
        return "" if _plain(name) in named else _ANOTHER

    def _of_address(self, to: object) -> str:
        try:
            address = ipaddress.ip_address(str(to[0]))  # type: ignore[index]
        except (ValueError, TypeError, IndexError):
            return "Its sender tried to connect to something other than an IP address."
        inner = unwrapped(address)
        if any(candidate in network for candidate in (address, inner) for network in self.allowed):
            return ""
        if self.way.relay:
            return "" if is_public(address) or _is_private(inner) else _NO_HOST
        if not is_public(address):
            return (
                "Its address is in a private network. To allow this, add the network to "
                "HEADGATE_ALERT_NETWORKS."
            )
        if self.way.plain:
            return (
                "Its URL is not https, so messages would not be private. Use TLS, or add its "
                "network to HEADGATE_ALERT_NETWORKS."
            )
        return ""


#: This message does not show the host: the part of the address parsed as the host may be a secret.
_ANOTHER = (
    "The message would be sent to a host that is not in the channel's URL. Add the host, as in "
    "ntfys://ntfy.sh/topic or zulip://bot@team.zulipchat.com/token."
)
_NO_HOST = "Its address is link-local, multicast or reserved and cannot be a host."
_door: ContextVar[_Door | None] = ContextVar("door", default=None)
_watching = False


@contextmanager
def through(way: PermittedHosts, *, allowed: Sequence[Network] = ()) -> Iterator[None]:
    """Restrict this thread's connections to the hosts in `way` while the block runs.

    Raises `SendFailed` if a connection was refused, even if the sender ignored that.
    """
    global _watching
    if not _watching:  # a hook cannot be removed, so install it only in processes that send
        sys.addaudithook(_hook)
        _watching = True
    door = _Door(way, allowed)
    token = _door.set(door)
    try:
        yield
    except Exception:
        if not door.refused:
            raise
    finally:
        _door.reset(token)
    if door.refused:
        raise SendFailed(door.refused, lasting=True)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if (door := _door.get()) is not None:
        door.judge(event, args)


def is_public(address: Address) -> bool:
    """Return whether an address, or the one embedded in it, belongs to a single Internet host."""
    inner = unwrapped(address)
    if isinstance(inner, ipaddress.IPv6Address) and inner not in _UNICAST:
        return False  # multicast, site-local, unique local and unassigned
    return inner.is_global and not inner.is_multicast


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 address, otherwise the address itself.

    IPv4-mapped, 6to4, NAT64 and IPv4-compatible addresses embed an IPv4 address.
    """
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour or address
    holds = any(address in network for network in (*_NAT64, _COMPATIBLE))
    if holds and not (address.is_loopback or address.is_unspecified):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_private(address: Address) -> bool:
    """Return whether an address belongs to a private network, including this machine."""
    reserved = address.is_link_local or address.is_unspecified or address.is_reserved
    return address.is_loopback or not (address.is_global or reserved)


def _plain(host: str) -> str:
    """Return a host's name for comparison: lower case, punycode, no brackets or final dot."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name
