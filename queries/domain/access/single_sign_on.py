"""What an identity provider says of a person, and by which addresses it may be asked."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from queries.domain.errors import Invalid, Problem

#: Characters, as the accounts' table holds them (allauth's `SocialAccount`).
LONGEST_ISSUER = 200
LONGEST_SUBJECT = 191
#: Of a group's name. Entra ID sends identifiers of 36, Keycloak paths.
LONGEST_GROUP = 255
#: Of a new account's name; what tells it from one of the same name comes on top.
LONGEST_NAME = 140
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9@.+_-]")


@dataclass(frozen=True, slots=True)
class Arrival:
    """Who an identity provider says has come."""

    issuer: str
    subject: str  # unique at the issuer, and never given to another
    name: str  # what the account is called; it identifies nobody
    groups: tuple[str, ...]


def may_be_asked(address: str, *, http_allowed: bool) -> bool:
    """Tell whether an identity provider may be spoken to at an address.

    That is by https, or by http on this machine or where a setting allows it.
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


def groups_in(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the groups that a claim names: a list of texts, or one text. Anything else is none."""
    said = claims.get(name)
    if isinstance(said, str):
        said = [said]
    if not isinstance(said, list):
        return ()
    return tuple(dict.fromkeys(group for group in said if isinstance(group, str) and group))


def name_in(claims: Mapping[str, Any]) -> str:
    """Return a name for a new account: letters, digits and @ . + - _ of what the provider says.

    Only ASCII letters: others can look like them.
    """
    for claim in ("preferred_username", "email", "name"):
        said = claims.get(claim)
        if isinstance(said, str) and (name := _NOT_OF_A_NAME.sub("", said)[:LONGEST_NAME]):
            return name
    return "user"


def read_group(text: str) -> str:
    """Return a group's name as it is compared: exactly; raise `Invalid` for one that cannot be."""
    name = text.strip()
    if not name or len(name) > LONGEST_GROUP or not name.isprintable():
        way_out = f"Use 1 to {LONGEST_GROUP} characters, as the provider writes them."
        raise Invalid([Problem("group", name[:200], "is not a group's name.", way_out)])
    return name
