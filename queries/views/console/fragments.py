"""The live fragments: what is drawn once, when it changed, for every viewer.

A page names *topics* in its `live` block ("system", "queries", "query:42"). A topic draws
fragments, each with the name of the event that carries it; on the page the element with
`sse-swap="NAME"` is morphed into it. A fragment holds data only: no form, nothing that
depends on who looks.

Topics register themselves with `fragments`; the first part of a message ("query:42" →
"query") says which of them it makes stale.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any

from django.db.models import QuerySet
from django.template.loader import render_to_string

from queries.views.console.numbers import whole

#: What has changed since a topic was last drawn: messages such as "query:42". None: all may have.
Changes = frozenset[str] | None
#: (name of the event, its data), drawn for one key of the topic ("42" of "query:42").
Drawn = Iterable[tuple[str, str]]
Draw = Callable[[str, Changes, datetime], Drawn]


@dataclass(frozen=True, slots=True)
class Topic:
    """A kind of topic: how it is drawn, and which messages make it stale."""

    draw: Draw
    hears: frozenset[str]  # first parts of messages
    own_key_only: frozenset[str]  # of these, only messages with the topic's own key


TOPICS: dict[str, Topic] = {}


def fragments(
    topic: str, *, hears: tuple[str, ...], own_key_only: tuple[str, ...] = ()
) -> Callable[[Draw], Draw]:
    """Register how a topic is drawn. `own_key_only`: of "query:42" to topic "query:42" alone."""

    def register(draw: Draw) -> Draw:
        TOPICS[topic] = Topic(draw, frozenset(hears), frozenset(own_key_only))
        return draw

    return register


def parts(names: Iterable[str], topic: str, folder: str, key: str, context: Any) -> Drawn:
    """Draw the parts of a page, each from its template in the folder."""
    end = f"-{key}" if key else ""
    for name in names:
        yield f"{topic}-{name}{end}", render_to_string(f"{folder}/_{name}.html", context)


def split(name: str) -> tuple[str, str]:
    """Return kind and key of a topic or a message: ("query", "42")."""
    kind, _, key = name.partition(":")
    return kind, key


def known(name: str) -> bool:
    """Tell whether there is a topic of this name."""
    return split(name)[0] in TOPICS


def stales(topic: str, message: str) -> bool:
    """Tell whether a message makes a topic stale."""
    kind, key = split(topic)
    said, about = split(message)
    if said not in TOPICS[kind].hears:
        return False
    return said not in TOPICS[kind].own_key_only or about == key


def draw(topic: str, changes: Changes, now: datetime) -> list[tuple[str, str]]:
    """Draw a topic's fragments that the changes may have touched."""
    kind, key = split(topic)
    return list(TOPICS[kind].draw(key, changes, now))


def keys(changes: frozenset[str], kind: str) -> set[int]:
    """Return the numbers of messages of a kind: {42} for "query:42"."""
    found = (split(message) for message in changes)
    return {number for said, key in found if said == kind and (number := whole(key)) is not None}


def listed(kind: str, ids: Iterable[int], now: datetime) -> str:
    """Return the topic of a list that shows these rows since now."""
    return f"{kind}:{'.'.join(str(one) for one in ids)}.t{ceil(now.timestamp())}"


def numbers(key: str) -> list[int]:
    """Return the rows that a list's key names: [4, 7] for "4.7"; what is no number is left out."""
    return sorted({number for one in key.split(".") if (number := whole(one)) is not None})


def newcomers(what: str, rows: QuerySet[Any], key: str) -> Drawn:
    """Draw how many rows were created since a list was loaded that it does not show.

    A row that shows by itself would move others under somebody's pointer, or stand on another page.
    """
    since = re.search(r"\bt(\d{1,12})$", key)
    if since is None:
        return
    loaded = datetime.fromtimestamp(int(since[1]), UTC)
    count = rows.filter(created_at__gt=loaded).exclude(pk__in=numbers(key)).count()
    context = {"count": count, "what": what}
    yield f"new-{what}", render_to_string("console/shell/_newcomers.html", context)
