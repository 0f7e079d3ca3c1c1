"""The audit log as a hash chain: each MAC covers an entry and the MAC before it.

Each entry is sealed twice. Its *seal* covers its content and is computed where the action is
recorded, so a row inserted with SQL alone never enters the chain. Its *MAC* is computed when the
entry is numbered and covers the number, the seal and the previous MAC, so no row can be removed,
moved or inserted. Both are HMAC-SHA-256 with a key that is not stored in any table.
"""

import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from queries.domain.counts import counted

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
    """The log differs from what was written; the message says where and how."""

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
