"""What an identity provider reports about a user, and the URLs at which it may be queried."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from queries.domain.errors import Invalid, Problem

#: Maximum length in characters; limited by the accounts table (allauth's `SocialAccount`).
LONGEST_SUBJECT = 191
#: Maximum length of a group name. Entra ID sends 36-character identifiers, Keycloak sends paths.
LONGEST_GROUP = 255
#: Maximum length of a new account's name, before a suffix is added to make it unique.
LONGEST_NAME = 140
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9@.+_-]")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A user as identified by the identity provider at sign-in."""

    issuer: str
    subject: str  # unique at the issuer, never reassigned
    name: str  # display name of the account; not an identifier
    groups: tuple[str, ...]


def groups_in(claims: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the group names in a claim, which is a list of strings or one string; () otherwise."""
    said = claims.get(name)
    if isinstance(said, str):
        said = [said]
    if not isinstance(said, list):
        return ()
    return tuple(dict.fromkeys(group for group in said if isinstance(group, str) and group))


def name_in(claims: Mapping[str, Any]) -> str:
    """Return a name for a new account: the letters, digits and @ . + - _ of the provider's name.

    Only ASCII letters are kept, because other letters can look like ASCII letters.
    """
    for claim in ("preferred_username", "email", "name"):
        said = claims.get(claim)
        if isinstance(said, str) and (name := _NOT_OF_A_NAME.sub("", said)[:LONGEST_NAME]):
            return name
    return "user"


def read_group(text: str) -> str:
    """Return a group's name, which is compared exactly; raise `Invalid` if it is invalid."""
    name = text.strip()
    if not name or len(name) > LONGEST_GROUP or not name.isprintable():
        way_out = f"Use 1 to {LONGEST_GROUP} characters, exactly as the provider sends them."
        raise Invalid([Problem("group", name[:200], "is not a valid group name.", way_out)])
    return name
