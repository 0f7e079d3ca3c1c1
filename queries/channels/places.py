"""Where a channel's messages and secrets are sent, for bindings and for the outbound guard."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from headgate_ground.masking import is_reference
from queries.channels import opsgenie, pagerduty
from queries.channels.base import ChannelKind
from queries.channels.chat import FIXED, PLAIN, scheme_of
from queries.channels.door import Way
from queries.channels.mail import TLS
from queries.domain.secrets.hosts import ANYWHERE

_DEFAULT_URLS = {ChannelKind.PAGERDUTY: pagerduty.URL, ChannelKind.OPSGENIE: opsgenie.URL}
_PORTS = {"https": 443, "http": 80}


def place_of(kind: str, settings: Mapping[str, Any]) -> str:
    """Return "host:port", or the name of a chat service with a fixed host ("slack").

    `ANYWHERE` if the settings do not determine it, as with an address that is still a reference.
    """
    if kind == ChannelKind.MAIL:
        return _mail_server(settings)
    url = str(settings.get("url") or _DEFAULT_URLS.get(ChannelKind(kind), ""))
    if is_reference(url):
        return ANYWHERE
    scheme = scheme_of(url)
    if kind == ChannelKind.CHAT and scheme in FIXED:
        return scheme
    try:
        parts = urlsplit(url.strip())
        name, port = parts.hostname or "", parts.port
    except ValueError:
        return ANYWHERE
    port = port or _PORTS.get(scheme)
    return (_host(name) + (f":{port}" if port else "")) if name else ANYWHERE


def way_of(kind: str, settings: Mapping[str, Any]) -> Way:
    """Return the hosts that the outbound guard permits, for settings without references."""
    if kind == ChannelKind.MAIL:
        return Way((str(settings.get("host", "")).strip(),), relay=True)
    return way_of_url(
        str(settings.get("url") or _DEFAULT_URLS.get(ChannelKind(kind), "")),
        chat=kind == ChannelKind.CHAT,
    )


def way_of_url(url: str, *, chat: bool = False) -> Way:
    """Return the way to a URL's host; a way without hosts if it cannot be parsed."""
    scheme = scheme_of(url)
    if chat and scheme in FIXED:
        return Way(FIXED[scheme])
    try:
        name = urlsplit(url.strip()).hostname
    except ValueError:
        name = None
    return Way((name,) if name else (), plain=scheme in (PLAIN if chat else ("http",)))


def _mail_server(settings: Mapping[str, Any]) -> str:
    host = str(settings.get("host", "")).strip().lower()
    if not host or is_reference(host):
        return ANYWHERE
    port = settings.get("port") or (465 if settings.get("security") == TLS else 587)
    return f"{_host(host)}:{port}"


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name
