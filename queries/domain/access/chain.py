"""The audit log as a chain: each MAC covers what happened and the MAC before it.

An entry is sealed twice. Its *seal* covers its content and is made where the act is recorded, so
that a row written by SQL alone is never taken into the chain. Its *MAC* is made when the entry is
numbered and covers number, seal and the MAC before, so that no row can be taken out, moved or put
in between. Both are HMAC-SHA-256 with a key that no table holds.
"""

import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

#: The MAC before the first entry.
START = "0" * 64


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and the name by which an entry says that it was sealed with it."""

    secret: bytes

    @property
    def name(self) -> str:
        """Return 8 hexadecimal digits, from which the key cannot be found."""
        return sha256(b"headgate audit key:" + self.secret).hexdigest()[:8]

    def seal(self, content: Mapping[str, Any]) -> str:
        """Return the seal of an entry's or an anchor's content."""
        return self._mac(["content", dict(content)])

    def link(self, before: str, number: int, seal: str) -> str:
        """Return the MAC of the entry of this number and seal, which follows the MAC `before`."""
        return self._mac(["link", before, number, seal])

    def _mac(self, said: list[Any]) -> str:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hmac.new(self.secret, text.encode(), sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the chain: the number of an entry, and its MAC."""

    number: int
    mac: str


#: Where a log that was never pruned begins.
BEGINNING = Mark(0, START)


@dataclass(frozen=True, slots=True)
class Link:
    """An entry as it is stored."""

    number: int
    key: str  # name of the key that sealed it
    content: Mapping[str, Any]
    seal: str
    mac: str


class Broken(Exception):
    """The log is not what was written: at which number, and in which way."""

    def __init__(self, number: int, what: str) -> None:
        self.number = number
        self.what = what
        super().__init__(f"entry {number}: {what}")


def is_sealed(content: Mapping[str, Any], seal: str, key: Key) -> bool:
    """Tell whether a seal was made for this content with this key."""
    return hmac.compare_digest(key.seal(content), seal)


def walk(
    links: Iterable[Link],
    *,
    begin: Mark,
    head: Mark,
    keys: Mapping[str, Key],
    earlier: Mark = BEGINNING,
) -> Mark:
    """Return the last entry's mark; raise `Broken` at the first entry that is not as written.

    `links` are all entries after `begin`, the newest anchor, in the order of their numbers up to
    `head`, the last number that was given. `earlier` is a head that was exported at some time: the
    chain must go through it. One that lies before `begin` is vouched for by the anchor, which only
    somebody with the key can make.
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
        raise Broken(at.number + 1, f"missing: {head.number} entries were written")
    return at


def _same(at: Mark, other: Mark) -> None:
    """Raise `Broken` where two marks of one number differ in their MAC."""
    if at.number == other.number and at.mac != other.mac:
        raise Broken(at.number, "is another one than the head says")


def _follows(link: Link, at: Mark, keys: Mapping[str, Key]) -> None:
    """Raise `Broken` where a link is not the one that was written after `at`."""
    if link.number != at.number + 1:
        raise Broken(at.number + 1, "missing" if link.number > at.number else "appears twice")
    key = keys.get(link.key)
    if key is None:
        raise Broken(
            link.number,
            f"is sealed with another key ({link.key}); give the SECRET_KEY of that time",
        )
    if not is_sealed(link.content, link.seal, key):
        raise Broken(link.number, "its content was changed")
    if not hmac.compare_digest(key.link(at.mac, link.number, link.seal), link.mac):
        raise Broken(link.number, "does not follow the entry before it")
