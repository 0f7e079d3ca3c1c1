"""Live fragments, drawn once per change for all viewers.

A page lists *topics* in its `live` block ("system", "queries", "query:42"). A topic draws
fragments, each with the name of the event that carries it; on the page, the fragment is morphed
into the element with `sse-swap="NAME"`. A fragment contains only data: no forms, and nothing that
depends on the viewer.

Topics register themselves with `fragments`; the first part of a message ("query:42" → "query")
determines which topics the message makes stale.
"""

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from django.db.models import QuerySet
from django.template.loader import render_to_string

from controlplane.long_texts import WebSearch
from headgate_ground.masking import searched_by
from headgate_ground.tolerant.values import at_s
from listeners.loops.each import LoopErrors
from queries.views.console.numbers import whole

_loop = LoopErrors("parts of pages", logging.getLogger(__name__))

#: What has changed since a topic was last drawn: messages such as "query:42". None: anything may
#: have changed.
Changes = frozenset[str] | None
#: (event name, data), drawn for one key of the topic ("42" of "query:42").
Drawn = Iterable[tuple[str, str]]
Draw = Callable[[str, Changes, datetime], Drawn]


@dataclass(frozen=True, slots=True)
class Topic:
    """A kind of topic: how it is drawn, and which messages make it stale."""

    draw: Draw
    hears: frozenset[str]  # first parts of the messages that make it stale
    own_key_only: frozenset[str]  # of these, those that apply only with the topic's own key


TOPICS: dict[str, Topic] = {}


def fragments(
    topic: str, *, hears: tuple[str, ...], own_key_only: tuple[str, ...] = ()
) -> Callable[[Draw], Draw]:
    """Register how a topic is drawn. `own_key_only`: "query:42" reaches only topic "query:42"."""

    def register(draw: Draw) -> Draw:
        TOPICS[topic] = Topic(draw, frozenset(hears), frozenset(own_key_only))
        return draw

    return register


def parts(names: Iterable[str], topic: str, folder: str, key: str, context: Any) -> Drawn:
    """Draw the parts of a page from their templates; one that fails does not block the others."""
    end = f"-{key}" if key else ""
    for name in names:
        drawn: str | None = None
        with _loop.isolate_errors(f"{topic}-{name}{end}"):
            drawn = render_to_string(f"{folder}/_{name}.html", context)
        if drawn is not None:
            yield f"{topic}-{name}{end}", drawn


def split(name: str) -> tuple[str, str]:
    """Return kind and key of a topic or message: ("query", "42")."""
    kind, _, key = name.partition(":")
    return kind, key


def topic_exists(name: str) -> bool:
    """Return whether a topic with this name exists."""
    return split(name)[0] in TOPICS


def stales(topic: str, message: str) -> bool:
    """Return whether a message makes a topic stale."""
    kind, key = split(topic)
    subject, about = split(message)
    if subject not in TOPICS[kind].hears:
        return False
    return subject not in TOPICS[kind].own_key_only or about == key


def draw(topic: str, changes: Changes, now: datetime) -> list[tuple[str, str]]:
    """Draw the fragments of a topic that the changes may affect."""
    kind, key = split(topic)
    with searched_by(WebSearch()):
        return list(TOPICS[kind].draw(key, changes, now))


def keys(changes: frozenset[str], kind: str) -> set[int]:
    """Return the IDs in messages of a kind: {42} for "query:42"."""
    parts = (split(message) for message in changes)
    return {
        number for subject, key in parts if subject == kind and (number := whole(key)) is not None
    }


def listed(kind: str, ids: Iterable[int], now: datetime) -> str:
    """Return the topic for a list that shows these rows as of now."""
    return f"{kind}:{'.'.join(str(row_id) for row_id in ids)}.t{ceil(now.timestamp())}"


def numbers(key: str) -> list[int]:
    """Return the row IDs in a list's key: [4, 7] for "4.7"; anything else is omitted."""
    return sorted({number for part in key.split(".") if (number := whole(part)) is not None})


def newcomers(what: str, rows: QuerySet[Any], key: str) -> Drawn:
    """Draw the number of rows created since a list was loaded.

    A row that appeared automatically would move other rows under the pointer, or might belong on
    another page.
    """
    since = re.search(r"\bt([0-9]{1,12})$", key)
    if since is None:
        return
    loaded = at_s(int(since[1]))
    if loaded is None:
        return
    count = rows.filter(created_at__gt=loaded).exclude(pk__in=numbers(key)).count()
    context = {"count": count, "what": what}
    yield f"new-{what}", render_to_string("console/shell/_newcomers.html", context)
