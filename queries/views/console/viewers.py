"""What viewers of live pages are sent: fragments as server-sent events, and who has had which.

A stream carries the pages of all tabs of a browser. Each event's data begins with a line with the
number of its tab; the rest is JSON. All viewers of a page are sent the same bytes.
"""

import asyncio
import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Any

from queries.domain.pacing import RefreshPace

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
        newer = (
            fragment
            for fragment in self._drawn(self.topics)
            if last_number < fragment.number <= self.number
        )
        return sorted(newer, key=attrgetter("number"))

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
        """Send what there is; return the task that does so, None if one is running or not open."""
        if self._task is not None or self._send is None:
            return None
        self._task = asyncio.create_task(self._send_all())
        return self._task

    async def _send_all(self) -> None:
        """Send until there is nothing more; one that reads slowly gets the newest, not each one."""
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
    """Return fragments as events for a tab of a stream."""
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
