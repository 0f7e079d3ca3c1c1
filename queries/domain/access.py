"""Who acted, and who a user is: the audit log's actions and its hash chain, and single sign-on's
reports.

Each entry is sealed twice. Its *seal* covers its content and is computed where the action is
recorded, so a row inserted with SQL alone never enters the chain. Its *MAC* is computed when the
entry is numbered and covers the number, the seal and the previous MAC, so no row can be removed,
moved or inserted. Both are HMAC-SHA-256 with a key that is not stored in any table.
"""

import hmac
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any

from queries.domain.errors import Invalid, Problem
from queries.domain.readings import counted


class Act(StrEnum):
    """The kind of an audit entry. Values are stored and sealed with the entry: never rename one."""

    SIGNED_IN = "signed-in"
    SIGN_IN_FAILED = "sign-in-failed"
    LOCKED_OUT = "locked-out"
    SIGNED_OUT = "signed-out"
    SESSIONS_ENDED = "sessions-ended"
    PASSWORD_CHANGED = "password-changed"
    PASSWORD_RESET = "password-reset"
    USER_CREATED = "user-created"
    USER_ACTIVATED = "user-activated"
    USER_DEACTIVATED = "user-deactivated"
    ROLE_GIVEN = "role-given"
    RIGHTS_GIVEN = "rights-given"
    GROUP_ROLES = "group-roles"
    TEAM = "team"
    TOKEN_CREATED = "token-created"
    TOKEN_REVOKED = "token-revoked"
    SECRET_BOUND = "secret-bound"
    SECRET_UNBOUND = "secret-unbound"
    ALLOWED_PATH = "data-root"  # audit logs are never rewritten
    CODE_UPLOADED = "code-uploaded"
    CODE_HOST = "code-host"
    CATALOG = "catalog"
    INSTALLED = "installed"
    DEFINITION = "definition"
    QUERY_IDENTITY = "query-identity"
    APPLIED = "applied"
    RELEASED = "released"
    FAILURES = "failures"
    ALERTS = "alerts"
    LOSS_CORRECTED = "loss-corrected"
    OPERATION = "operation"
    SCHEDULE = "schedule"
    PROBE = "probe"
    BULK = "bulk"
    BULK_ITEM = "bulk-item"
    CANCELLED = "cancelled"
    DEPLOY = "deploy"
    EXPORTED = "exported"
    LOG_PRUNED = "log-pruned"


#: The label that pages show for each action.
ACT_WORDS = {
    Act.SIGNED_IN: "signed in",
    Act.SIGN_IN_FAILED: "sign-in failed",
    Act.LOCKED_OUT: "locked out",
    Act.SIGNED_OUT: "signed out",
    Act.SESSIONS_ENDED: "ended sessions",
    Act.PASSWORD_CHANGED: "changed the password",
    Act.PASSWORD_RESET: "reset a password",
    Act.USER_CREATED: "created a user",
    Act.USER_ACTIVATED: "activated a user",
    Act.USER_DEACTIVATED: "deactivated a user",
    Act.ROLE_GIVEN: "assigned a role",
    Act.RIGHTS_GIVEN: "assigned rights",
    Act.GROUP_ROLES: "changed group roles",
    Act.TEAM: "changed a team",
    Act.TOKEN_CREATED: "created a token",
    Act.TOKEN_REVOKED: "revoked a token",
    Act.SECRET_BOUND: "granted a secret",
    Act.SECRET_UNBOUND: "revoked a secret",
    Act.ALLOWED_PATH: "allowed or removed a path",
    Act.CODE_UPLOADED: "uploaded code",
    Act.CODE_HOST: "added or removed a git host",
    Act.CATALOG: "changed a catalog",
    Act.INSTALLED: "installed or removed Spark or a connector",
    Act.DEFINITION: "changed a definition",
    Act.QUERY_IDENTITY: "identified a script's query",
    Act.APPLIED: "applied manifests",
    Act.RELEASED: "released from owner",
    Act.FAILURES: "marked failures",
    Act.ALERTS: "changed alerts",
    Act.LOSS_CORRECTED: "corrected the loss ledger",
    Act.OPERATION: "requested an operation",
    Act.SCHEDULE: "paused or resumed a schedule",
    Act.PROBE: "requested a probe or snapshot",
    Act.BULK: "requested a bulk action",
    Act.BULK_ITEM: "bulk action on one object",
    Act.CANCELLED: "cancelled an operation",
    Act.DEPLOY: "deployed, or ended a deploy",
    Act.EXPORTED: "exported",
    Act.LOG_PRUNED: "removed old entries",
}


#: The MAC before the first entry.
START = "0" * 64


@dataclass(frozen=True, slots=True)
class Key:
    """A key and its name, which is recorded in the entries that it sealed."""

    secret: bytes

    @property
    def name(self) -> str:
        """Return 8 hexadecimal digits that identify the key without revealing it."""
        return sha256(b"headgate audit key:" + self.secret).hexdigest()[:8]

    def seal(self, content: Mapping[str, Any]) -> str:
        """Return the seal for the content of an entry or an anchor."""
        return self._mac(["content", dict(content)])

    def link(self, before: str, number: int, seal: str) -> str:
        """Return the MAC of the entry with this number and seal, after the MAC `before`."""
        return self._mac(["link", before, number, seal])

    def _mac(self, said: list[Any]) -> str:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hmac.new(self.secret, text.encode(), sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the chain: the number of an entry, and its MAC."""

    number: int
    mac: str


#: The start of a log that was never pruned.
BEGINNING = Mark(0, START)


@dataclass(frozen=True, slots=True)
class Link:
    """A stored entry."""

    number: int
    key: str  # name of the key that sealed it
    content: Mapping[str, Any]
    seal: str
    mac: str


class Broken(Exception):
    """The log differs from the written one; the message says where and how."""

    def __init__(self, number: int, what: str) -> None:
        self.number = number
        self.what = what
        super().__init__(f"entry {number}: {what}")


def is_sealed(content: Mapping[str, Any], seal: str, key: Key) -> bool:
    """Return whether a seal was computed for this content with this key."""
    return hmac.compare_digest(key.seal(content), seal)


def walk(
    links: Iterable[Link],
    *,
    begin: Mark,
    head: Mark,
    keys: Mapping[str, Key],
    earlier: Mark = BEGINNING,
) -> Mark:
    """Return the last entry's mark; raise `Broken` at the first entry that was changed.

    `links` are all entries after `begin` (the newest anchor), ordered by number, up to `head` (the
    last number assigned). `earlier` is a previously exported head: the chain must pass through it.
    If it is before `begin`, the anchor vouches for it, and only a holder of the key can create an
    anchor.
    """
    at = begin
    _same(at, earlier)
    for link in links:
        _follows(link, at, keys)
        at = Mark(link.number, link.mac)
        _same(at, earlier)
        _same(at, head)
    if at.number < earlier.number:
        raise Broken(at.number + 1, f"missing: the exported head is entry {earlier.number}")
    if at.number < head.number:
        raise Broken(
            at.number + 1, f"missing: {counted(head.number, 'entry was,entries were')} written"
        )
    return at


def _same(at: Mark, other: Mark) -> None:
    """Raise `Broken` if two marks with the same number have different MACs."""
    if at.number == other.number and at.mac != other.mac:
        raise Broken(at.number, "its MAC differs from the one in the head")


def _follows(link: Link, at: Mark, keys: Mapping[str, Key]) -> None:
    """Raise `Broken` unless a link directly follows `at`."""
    if link.number != at.number + 1:
        raise Broken(at.number + 1, "missing" if link.number > at.number else "appears twice")
    key = keys.get(link.key)
    if key is None:
        raise Broken(
            link.number,
            f"is sealed with another key ({link.key}); supply the SECRET_KEY used at that time",
        )
    if not is_sealed(link.content, link.seal, key):
        raise Broken(link.number, "its content was changed")
    if not hmac.compare_digest(key.link(at.mac, link.number, link.seal), link.mac):
        raise Broken(link.number, "does not follow the entry before it")


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
