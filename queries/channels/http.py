"""Post to an address that a person typed in, without being led into our own networks.

The name is resolved once, every address that it has is judged, and the connection goes to the
address that was judged: a name that changes its answer in between leads nowhere else. No
redirect is followed.
"""

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import urllib3

from queries.channels.base import SendFailed

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Of an answer, for the sentence that says why it was refused. Bytes.
MOST_READ = 2048


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads: its name, and the one address that the connection goes to."""

    scheme: str
    name: str
    address: str
    port: int
    path: str  # with its query string


def target(url: str, *, allowed: Sequence[Network] = ()) -> Target:
    """Return where a URL leads.

    Raises `SendFailed` for anything but https, and for an address that is not public; both are
    let through for addresses in `allowed`.
    """
    try:
        parts = urlsplit(url)
        scheme, name, port = parts.scheme.lower(), parts.hostname or "", parts.port
    except ValueError:
        raise SendFailed("Its address is not a URL.", lasting=True) from None
    if scheme not in ("https", "http") or not name or parts.username or parts.password:
        raise SendFailed("Its address is not a URL that begins with https://.", lasting=True)
    port = port or (443 if scheme == "https" else 80)
    address = _resolved(name, port, allowed)
    if scheme == "http" and not _within(address, allowed):
        raise SendFailed("Its address is not https; plain http is not private.", lasting=True)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, name, address, port, path)


def _resolved(name: str, port: int, allowed: Sequence[Network]) -> str:
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise SendFailed("The name of its host has no address.") from None
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not ipaddress.ip_address(address).is_global and not _within(address, allowed):
            raise SendFailed(
                "Its address is in a private network. Name the network in "
                "HEADGATE_ALERT_NETWORKS if messages may go there.",
                lasting=True,
            )
    return addresses[0]


def _within(address: str, allowed: Sequence[Network]) -> bool:
    return any(ipaddress.ip_address(address) in network for network in allowed)


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    allowed: Sequence[Network] = (),
) -> None:
    """Post a body; return where the answer is 2xx, else raise `SendFailed`.

    Trying again does not help where the answer is 4xx, but for 408, 425 and 429.
    """
    to = target(url, allowed=allowed)
    timeout = urllib3.Timeout(total=timeout_s)
    pool: urllib3.HTTPConnectionPool
    if to.scheme == "https":
        pool = urllib3.HTTPSConnectionPool(
            to.address,
            to.port,
            timeout=timeout,
            retries=False,
            server_hostname=to.name,
            assert_hostname=to.name,
        )
    else:
        pool = urllib3.HTTPConnectionPool(to.address, to.port, timeout=timeout, retries=False)
    default = to.port == (443 if to.scheme == "https" else 80)
    host = f"[{to.name}]" if ":" in to.name else to.name
    named = {**headers, "Host": host if default else f"{host}:{to.port}"}
    try:
        with pool:
            answer = pool.urlopen(
                "POST",
                to.path,
                body=body,
                headers=named,
                redirect=False,
                assert_same_host=False,
                preload_content=False,
            )
            answer.read(MOST_READ)
            answer.close()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise SendFailed(f"It could not be reached: {_plainly(error)}.") from None
    if not 200 <= answer.status < 300:
        lasting = 400 <= answer.status < 500 and answer.status not in (408, 425, 429)
        raise SendFailed(
            f"It answered {answer.status} {answer.reason or ''}".strip(), lasting=lasting
        )


def _plainly(error: Exception) -> str:
    """Return what went wrong, without the address."""
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no answer in time"
    if isinstance(error, urllib3.exceptions.SSLError):
        return "its certificate is not valid"
    return "no connection"
