"""The common parts of channels: declaration, message, and the guard of outbound connections.

All messages pass through this outbound guard. CPython reports each look-up and each connection
before it is made (`sys.addaudithook`, PEP 578), and a hook can prevent it by raising an error. So
whichever library sends a message, even an apprise plug-in, the address that is checked is the one
to which it connects; this also applies to redirects.
"""

import ipaddress
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import urllib3

from headgate_ground.masking import is_reference
from queries.domain.alerts.forms import ChannelSettings
from queries.domain.secrets import ANYWHERE


@dataclass(frozen=True, slots=True)
class Message:
    """One message about one incident, in a form that every channel can send.

    `key` is the same for all messages about one occurrence of an incident: PagerDuty uses
    it as its deduplication key, so that "resolved" closes the alert that "opened" created.
    """

    key: str
    step: str  # domain.alerts.routing.NotificationStep
    severity: str  # domain.alerts.forms.Severity
    kind: str  # domain.alerts.forms.IncidentKind
    title: str  # one line, without secrets
    text: str  # what happened and what to do, plain text, without secrets
    url: str  # of the incident's page; "" if unknown
    at: datetime  # timezone-aware, UTC
    labels: dict[str, str] = field(default_factory=dict)
    facts: tuple[tuple[str, str], ...] = ()  # name and value, in display order
    repeat: bool = False  # it may have been delivered before


class SendFailed(Exception):
    """A message was not delivered; `lasting` means that retrying cannot help.

    The message is shown on pages and stored, so it does not contain URLs or secrets.
    """

    def __init__(self, sentence: str, *, lasting: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting


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
    is_reserved = address.is_link_local or address.is_unspecified or address.is_reserved
    return address.is_loopback or not (address.is_global or is_reserved)


def _plain(host: str) -> str:
    """Return a host's name for comparison: lower case, punycode, no brackets or final dot."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> None:
    """Post a body; return normally if the response is 2xx, otherwise raise `SendFailed`.

    Trying again does not help if the response is 4xx, except for 408, 425 and 429.
    """
    request("POST", url, body=body, headers=headers, timeout_s=timeout_s)


def request(
    method: str,
    url: str,
    *,
    timeout_s: float,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Make one HTTP request, like `post`."""
    try:
        target = urllib3.util.parse_url(url)
    except urllib3.exceptions.HTTPError:
        raise SendFailed("Its URL is not valid.", lasting=True) from None
    if target.scheme not in ("https", "http") or not target.host or target.auth:
        raise SendFailed(
            "Its URL is not an https:// URL with a host and without a login.", lasting=True
        )
    try:
        with urllib3.PoolManager(timeout=urllib3.Timeout(total=timeout_s), retries=False) as pool:
            answer = pool.request(
                method,
                url,
                body=body,
                headers=dict(headers or {}),
                redirect=False,
                preload_content=False,
            )
            answer.close()  # the body of the response is not read, since it could be endless
            answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise SendFailed(f"It could not be reached: {_plainly(error)}.") from None
    if not 200 <= answer.status < 300:
        lasting = 400 <= answer.status < 500 and answer.status not in (408, 425, 429)
        raise SendFailed(
            f"It responded with {answer.status} {answer.reason or ''}".strip(), lasting=lasting
        )


def _plainly(error: Exception) -> str:
    """Return a description of the error, without the URL."""
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "its host name cannot be resolved"
    if isinstance(error, urllib3.exceptions.NewConnectionError):  # it is also a TimeoutError
        return "no connection"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no response in time"
    if isinstance(error, urllib3.exceptions.SSLError):
        return "its certificate is not valid"
    return "no connection"


_PORTS = {"https": 443, "http": 80}
#: Schemes of URLs without TLS.
_PLAIN = frozenset({"http"})


class Destinations(Protocol):
    """The destinations of one kind of channel, according to the channel's settings."""

    def destination(self, settings: Mapping[str, Any]) -> str:
        """Return "host:port", or a service's name; `ANYWHERE` if settings do not determine it."""

    def way(self, settings: Mapping[str, Any]) -> PermittedHosts:
        """Return the hosts that the outbound guard permits, for settings without references."""


@dataclass(frozen=True, slots=True)
class AtUrl:
    """The host in the `url` setting."""

    default: str = ""  # the URL if the setting is empty
    #: Scheme of a service with fixed hosts, whatever its address says -> those hosts.
    fixed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    plain: Collection[str] = _PLAIN  # schemes without TLS

    def destination(self, settings: Mapping[str, Any]) -> str:
        """Return "host:port", or the name of a service with a fixed host ("slack").

        `ANYWHERE` if the settings do not determine it, for example if the URL is still a reference.
        """
        url = self._url(settings)
        if is_reference(url):
            return ANYWHERE
        scheme = scheme_of(url)
        if scheme in self.fixed:
            return scheme
        try:
            parts = urlsplit(url.strip())
            name, port = parts.hostname or "", parts.port
        except ValueError:
            return ANYWHERE
        port = port or _PORTS.get(scheme)
        return (bracketed(name) + (f":{port}" if port else "")) if name else ANYWHERE

    def way(self, settings: Mapping[str, Any]) -> PermittedHosts:
        """Return the way to the URL's host; a way without hosts if it cannot be parsed."""
        url = self._url(settings)
        scheme = scheme_of(url)
        if scheme in self.fixed:
            return PermittedHosts(self.fixed[scheme])
        try:
            name = urlsplit(url.strip()).hostname
        except ValueError:
            name = None
        return PermittedHosts((name,) if name else (), plain=scheme in self.plain)

    def _url(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("url") or self.default)


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, in lower case."""
    return url.partition("://")[0].strip().lower()


def bracketed(name: str) -> str:
    """Return a host in the form used before a port."""
    return f"[{name}]" if ":" in name else name


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
