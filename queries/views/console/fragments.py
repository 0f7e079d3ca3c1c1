"""Fragments of pages that update themselves, and long lists: filters, cursor pages, live
updates.

A page lists *topics* in its `live` block ("system", "queries", "query:42"). A topic draws
fragments, each with the name of the event that carries it; on the page, the fragment is morphed
into the element with `sse-swap="NAME"`. A fragment contains only data: no forms, and nothing that
depends on the viewer.

Topics register themselves with `fragments`; the first part of a message ("query:42" → "query")
determines which topics the message makes stale.

A stream carries the pages of all tabs of a browser. Each event's data begins with a line with the
number of its tab; the rest is JSON. All viewers of a page are sent the same bytes.

A list's topic contains its filters ("failures:query=delays&status=open"), so that all viewers with
the same filters share one rendering. Rows on the page are morphed individually and keep their
place. New rows go into a separate table body above them ("arrivals"). They are rendered hidden, and
shown by static/js/arrivals.js, which omits rows that the page already has and waits while the
pointer is over the list.
"""

import asyncio
import json
import logging
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil, inf
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import QueryDict
from django.template.loader import render_to_string

from controlplane.masking import WebSearch
from headgate_ground import tolerant
from headgate_ground.masking import searched_by
from headgate_ground.tolerant import at_s
from listeners.loops.each import LoopErrors
from queries.domain.readings import RefreshPace
from queries.selectors.rows import rows_after


def whole(text: str | None) -> int | None:
    """Return an integer of ASCII digits that a database can store; None for any other string."""
    return tolerant.whole((text or "").strip())


ROWS = 50
#: Newest rows that are searched for arrivals; a page holds more rows.
ARRIVALS = 20


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """A list's filters, in place of a page's request: links preserve them."""

    GET: QueryDict


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some rows of a list, and the cursor for the rows after them ("" at the end)."""

    rows: list[Any]
    next: str
    first: bool  # no rows come before these


def page_of(rows: QuerySet[Any], *, by: str, cursor: str = "", size: int = ROWS) -> ListPage:
    """Return the rows after `cursor`, newest first by the column `by`, then by primary key.

    An invalid cursor starts from the beginning.
    """
    after = cursor.replace("\x00", "").split("~") if cursor else None
    try:
        ordered = rows_after(rows, by, "pk", after=after)
    except (ValueError, ValidationError):
        ordered, after = rows_after(rows, by, "pk", after=None), None
    fetched_rows = list(ordered[: size + 1])
    more = (
        f"{getattr(fetched_rows[size - 1], by)}~{fetched_rows[size - 1].pk}"
        if len(fetched_rows) > size
        else ""
    )
    return ListPage(rows=fetched_rows[:size], next=more, first=after is None)


def filters(
    params: Mapping[str, str], names: Iterable[str], **choices: Collection[str]
) -> dict[str, str]:
    """Return the list filters in a URL, with "" for those that are missing.

    For `choices`, only the given values are valid; the first one replaces any other value.
    """
    values = {name: params.get(name, "").strip() for name in (*names, *choices)}
    for name, allowed_values in choices.items():
        if values[name] not in allowed_values:
            values[name] = next(iter(allowed_values))
    return values


def topic(kind: str, list_filters: Mapping[str, str]) -> str:
    """Return the topic for a list with these filters, omitting empty ones."""
    chosen = sorted((name, value) for name, value in list_filters.items() if value)
    return f"{kind}:{urlencode(chosen)}" if chosen else kind


def filters_from_key(key: str) -> QueryDict:
    """Return the filters in a topic's key."""
    return QueryDict(key.replace("%00", ""))  # no text column can store it, and PostgreSQL raises


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
    """Return the kind and key of a topic or message: ("query", "42")."""
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


#: The head of a gzip stream: deflate, no name, no time, unknown system.
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_COMPRESSION = 4  # of 9: a page's changes shrink to a tenth within milliseconds

Send = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page, as drawn."""

    event: str
    data: str
    number: int  # in the order of drawing, among all fragments of the hub
    digest: bytes = b""  # of all that is not an age


class LivePage:
    """What viewers with the same topics see."""

    def __init__(
        self,
        topics: frozenset[str],
        hub: str,
        drawn: Callable[[Iterable[str]], list[Fragment]],
        number: int,
    ) -> None:
        self.topics = topics
        self.number = number  # the newest fragment that its viewers are allowed to have
        self.pace = RefreshPace()
        self.readers: set[object] = set()
        self._hub = hub
        self._drawn = drawn
        self._chunks: dict[tuple[int, int, bool], bytes] = {}

    def viewers(self) -> "list[Viewer]":
        """Return the streams that show this page."""
        return [reader for reader in self.readers if isinstance(reader, Viewer)]

    def advance(self, number: int, now: float) -> None:
        """Let the viewers have the fragments up to a number."""
        self.number, self.pace = number, self.pace.shown(now)
        self._chunks.clear()

    def since(self, last_number: int) -> list[Fragment]:
        """Return the fragments after a number, oldest first."""
        fragments = (
            fragment
            for fragment in self._drawn(self.topics)
            if last_number < fragment.number <= self.number
        )
        return sorted(fragments, key=attrgetter("number"))

    def chunk(self, last_number: int, tab: int, packed: bool) -> bytes:
        """Return the events after a number: the same bytes for all who have seen the same."""
        key = (last_number, tab, packed)
        if key not in self._chunks:
            self._chunks[key] = encode(self.since(last_number), self._hub, tab, packed)
        return self._chunks[key]

    def encode(self, tick: Fragment, tab: int, packed: bool) -> bytes:
        """Return a tick as an event."""
        return encode([tick], self._hub, tab, packed)


@dataclass(slots=True)
class _Tab:
    """A page in a stream."""

    page: LivePage
    last_number: int  # number of the last fragment that it was sent
    tick: Fragment | None


class Viewer:
    """An open stream: one browser, with a page in each of its tabs."""

    __slots__ = (
        *("__weakref__", "_closed", "_lines", "_packed", "_send", "_tabs", "_task"),
        *("ended", "ends_at", "person", "sent_at", "session"),
    )

    def __init__(self, person: int | None = None, session: str = "", packed: bool = False) -> None:
        self.person = person  # its user's ID
        self.session = session  # key of the session in which it was opened
        self.ended = False
        self.ends_at = inf  # by the loop's clock, as is `sent_at`
        self.sent_at = inf  # inf: not open yet
        self._packed = packed
        self._lines = b""
        self._tabs: list[_Tab] = []
        self._send: Send | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def open(self, send: Send, *, ends_at: float, retry_ms: int) -> None:
        """Begin to send, with the time after which the browser comes back."""
        self._send, self.ends_at = send, ends_at
        self._lines = f"retry: {retry_ms}\n\n".encode()
        self._lines = _GZIP_HEAD + pack(self._lines) if self._packed else self._lines
        self.wake()

    def add(self, page: LivePage, last_number: int, tick: Fragment) -> None:
        """Show a page in the next tab, to which fragments up to a number are known."""
        self._tabs.append(_Tab(page, last_number, tick))

    def send_tick(self, page: LivePage, tick: Fragment) -> None:
        """Send the tick of a page, after its fragments."""
        for tab in self._tabs:
            if tab.page is page:
                tab.tick = tick
        self.wake()

    def comment(self) -> None:
        """Send a comment, which browsers ignore."""
        line = b": still here\n\n"
        self._lines += pack(line) if self._packed else line
        self.wake()

    def end(self) -> None:
        """End the stream; nothing more is sent."""
        self.ended = True
        self.wake()

    def wake(self) -> "asyncio.Task[None] | None":
        """Send pending data; return the task for it, None if one is running or it is not open."""
        if self._task is not None or self._send is None:
            return None
        self._task = asyncio.create_task(self._send_all())
        return self._task

    async def _send_all(self) -> None:
        """Send until there is nothing more; slow readers get only the newest state."""
        assert self._send is not None
        try:
            while not self.ended and (body := self._next()):
                self.sent_at = asyncio.get_running_loop().time()
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
            if self.ended and not self._closed:
                self._closed = True
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # the browser is gone, which the stream learns by itself
        finally:
            self._task = None

    def _next(self) -> bytes:
        parts, self._lines = [self._lines] if self._lines else [], b""
        for number, tab in enumerate(self._tabs):
            page = tab.page
            if page.number > tab.last_number and (
                news := page.chunk(tab.last_number, number, self._packed)
            ):
                parts.append(news)
            tab.last_number = max(tab.last_number, page.number)
            if tab.tick is not None:
                parts.append(page.encode(tab.tick, number, self._packed))
                tab.tick = None
        return b"".join(parts)  # of one part: that part itself, not a copy


def encode(fragments: Iterable[Fragment], hub: str, tab: int, packed: bool) -> bytes:
    """Encode fragments as events for one tab of a stream."""
    lines = "".join(
        f"id: {hub}.{fragment.number}\ndata: {tab}\n"
        f"data: {json.dumps({'event': fragment.event, 'data': fragment.data})}\n\n"
        for fragment in fragments
    ).encode()
    return pack(lines) if packed and lines else lines


def pack(data: bytes) -> bytes:
    """Return the data as a part of any gzip stream: it refers to nothing that was sent before."""
    packing = zlib.compressobj(_COMPRESSION, wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush(zlib.Z_FULL_FLUSH)
