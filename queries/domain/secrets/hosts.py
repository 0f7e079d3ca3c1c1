"""Hosts that a secret is sent to, and the patterns by which an admin allows them.

A pattern is one of these:

==================  ==================================================================
host                that host, any port
host:port           that port on the host
*.example.org       every host below the domain, at any depth, but not the domain itself
*.example.org:port  that port on those hosts
*                   anywhere, including places that cannot be known beforehand
==================  ==================================================================

Names are compared as text, ignoring case, and never resolved; an IP address matches only itself.
"""

import re

#: A destination that cannot be known: code, Spark or a service may send the secret anywhere.
ANYWHERE = "*"

_NAME = r"[0-9a-z_](?:[0-9a-z._\-]*[0-9a-z_])?"
_IP6 = r"\[[0-9a-f:.]+\]"
_HOST_PORT = re.compile(rf"(?P<host>{_NAME}|{_IP6})(?::(?P<port>[0-9]{{1,5}}))?")
_PATTERN = re.compile(rf"\*|(?:(?:\*\.)?{_NAME}|{_IP6})(?::[0-9]{{1,5}})?")
#: "SASL_SSL://host:9092", a valid entry of Kafka's bootstrap.servers.
_SERVER = re.compile(r"(?:\w+://)?(?P<place>.+:[0-9]{1,5})")
_URL = re.compile(r"https?://(?P<place>[^/?#]+)(?:[/?#].*)?", re.IGNORECASE)


def is_pattern(text: str) -> bool:
    """Return whether a text is a host pattern; patterns are in lower case."""
    return _PATTERN.fullmatch(text) is not None


def allows(pattern: str, host_port: str) -> bool:
    """Return whether a pattern matches a place: "host", "host:port", or `ANYWHERE`."""
    if pattern == ANYWHERE:
        return True
    match = _HOST_PORT.fullmatch(host_port.lower())
    if match is None:
        return False
    host, port = match["host"], match["port"]
    bare, _, wanted = pattern.rpartition(":") if _has_port(pattern) else (pattern, "", "")
    if wanted and wanted != port:
        return False
    return host.endswith(bare[1:]) if bare.startswith("*.") else host == bare


def servers(text: str) -> tuple[str, ...]:
    """Return the places in bootstrap.servers; `ANYWHERE` for each that cannot be parsed."""
    return tuple(_server(server.strip()) for server in text.split(",") if server.strip()) or (
        ANYWHERE,
    )


def of_url(text: str) -> str:
    """Return the place in an http URL; `ANYWHERE` if it cannot be parsed."""
    match = _URL.fullmatch(text.strip())
    return _host_port(match["place"]) if match else ANYWHERE


def of_endpoint(text: str) -> str:
    """Return the place in a store's endpoint, with or without http://; see `of_url`."""
    return of_url(text) if "://" in text else _host_port(text.strip())


def _server(text: str) -> str:
    match = _SERVER.fullmatch(text)
    return _host_port(match["place"]) if match else ANYWHERE


def _host_port(text: str) -> str:
    """Return a place in lower case; anything that clients might parse differently is `ANYWHERE`."""
    return text.lower() if _HOST_PORT.fullmatch(text.lower()) else ANYWHERE


def _has_port(pattern: str) -> bool:
    return re.search(r":[0-9]{1,5}$", pattern) is not None and not pattern.endswith("]")
