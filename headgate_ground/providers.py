"""The URLs at which an identity provider can be contacted."""

import ipaddress
from urllib.parse import urlsplit

#: Maximum length, that of the accounts' table (allauth's `SocialAccount`).
LONGEST_ISSUER = 200


def is_allowed_address(address: str, *, http_allowed: bool) -> bool:
    """Return whether an identity provider can be contacted at a URL.

    https is always allowed; http is allowed on this machine, or if a setting allows it.
    """
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return False
    if not host or parts.username is not None:
        return False
    return parts.scheme == "https" or (
        parts.scheme == "http" and (http_allowed or _is_this_machine(host))
    )


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
