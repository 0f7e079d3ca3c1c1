"""Where a channel's messages, and its secrets with them, go: what a binding of a secret allows."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from queries.channels import opsgenie, pagerduty
from queries.channels.base import ChannelKind
from queries.channels.chat import FIXED
from queries.channels.mail import TLS
from queries.domain.masking import is_reference
from queries.domain.secrets.hosts import ANYWHERE

_DEFAULT_URLS = {ChannelKind.PAGERDUTY: pagerduty.URL, ChannelKind.OPSGENIE: opsgenie.URL}
_PORTS = {"https": 443, "http": 80}


def place_of(kind: str, settings: Mapping[str, Any]) -> str:
    """Return "host:port", or a chat service by its name ("slack"), whose host is fixed.

    `ANYWHERE` where the settings do not tell, as an address that is still a reference.
    """
    if kind == ChannelKind.MAIL:
        return _mail_server(settings)
    url = str(settings.get("url") or _DEFAULT_URLS.get(ChannelKind(kind), ""))
    if is_reference(url):
        return ANYWHERE
    try:
        parts = urlsplit(url.strip())
        scheme, name, port = parts.scheme.lower(), parts.hostname or "", parts.port
    except ValueError:
        return ANYWHERE
    if kind == ChannelKind.CHAT and scheme in FIXED:
        return scheme
    port = port or _PORTS.get(scheme)
    return (_host(name) + (f":{port}" if port else "")) if name else ANYWHERE


def _mail_server(settings: Mapping[str, Any]) -> str:
    host = str(settings.get("host", "")).strip().lower()
    if not host or is_reference(host):
        return ANYWHERE
    port = settings.get("port") or (465 if settings.get("security") == TLS else 587)
    return f"{_host(host)}:{port}"


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name
