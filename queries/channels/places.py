"""Find where a channel sends messages and secrets, for bindings and for the outbound guard."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from headgate_ground.masking import is_reference
from queries.channels.door import PermittedHosts
from queries.domain.secrets.hosts import ANYWHERE

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
