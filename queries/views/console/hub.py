"""One hub per web process: it receives changes and renders each fragment once for all viewers.

The hub runs in the process's event loop. It subscribes to Redis while there are viewers, draws
stale topics in its own thread, and sends all viewers of a page the same bytes. Each fragment has a
number. A viewer that reconnects with the last number it saw receives the fragments that it missed;
a viewer that comes from another process receives everything. A viewer that reads slowly misses only
values that newer ones have replaced.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from types import FrameType
from typing import Any, TypeVar

import redis.asyncio as redis
from django.conf import settings
from django.db import close_old_connections, connection
from redis.exceptions import RedisError

from listeners.loops.each import LoopErrors
from queries.domain.readings import RefreshPace, page_due_at
from queries.selectors.access import viewing_sessions
from queries.selectors.console import SilentDriver, newest_event_at, silent_drivers
from queries.views.console import fragments
from queries.views.console.fragments import Fragment, LivePage, Viewer, whole

logger = logging.getLogger(__name__)
T = TypeVar("T")

REFRESH_S = 10  # a topic is drawn at least this often while viewed: verdicts change with time
TICK_S = 5
COMMENT_EVERY_S = 15  # of silence, so that proxies keep a stream open
REDIS_WAIT_S = 5.0
#: How long the next drawing waits for the viewers to be sent the last one. In CPython, each send
#: would otherwise wait for the drawing thread to give way.
SEND_S = 0.2

#: Ages are updated in the browser, so a fragment that differs only in ages has not changed.
_AGES = re.compile(r"(<time [^>]*data-(?:age|until)[^>]*>)[^<]*</time>")


@dataclass
class _Drawn:
    """A topic as last drawn: its fragments by event, and the changes since."""

    fragments: dict[str, Fragment] = field(default_factory=dict)
    changes: set[str] | None = None  # unprocessed messages; None: everything
    pace: RefreshPace = field(default_factory=RefreshPace)
    whole_at: float = -inf  # when all of it was last drawn, by the loop's clock


class Hub:
    """All live state in one event loop."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex[:8]
        self.number = 0
        self.viewers: set[Viewer] = set()
        self.pages: dict[frozenset[str], LivePage] = {}
        self.closing = False
        self._drawn: dict[str, _Drawn] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._woken = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fragments")
        self._newest: datetime | None = None
        self._silent: list[SilentDriver] = []
        self._aged_at = -inf  # when these two were read, by the loop's clock
        self._loop = LoopErrors("pages", logger)

    # --- viewers ------------------------------------------------------------------------

    def streams_of(self, person: int | None) -> int:
        """Return how many streams a user has open."""
        return sum(viewer.person == person for viewer in self.viewers)

    async def join(self, viewer: Viewer, pages: Sequence[tuple[frozenset[str], str]]) -> None:
        """Show a viewer these pages: topics, and the cursor of the last fragment it has."""
        self.viewers.add(viewer)  # before anything is awaited: it misses nothing from here on
        for topics, cursor in pages:
            page = await self._open(topics, viewer)
            viewer.add(page, self._read(cursor), self._tick(page))
        if self.closing:
            viewer.end()
        viewer.wake()

    def leave(self, viewer: Viewer) -> None:
        """Close a stream; topics that have no viewers left are forgotten."""
        self.viewers.discard(viewer)
        self._close_pages(viewer)

    def close(self) -> None:
        """End every stream, because the server is stopping."""
        self.closing = True
        for viewer in list(self.viewers):
            viewer.end()

    async def snapshot(self, topics: frozenset[str], cursor: str) -> dict[str, Any]:
        """Return the fragments that a viewer without a stream has missed.

        The form is {tick, fragments: [event, data]}.
        """
        reader = object()
        try:
            page = await self._open(topics, reader)
            missed = page.since(self._read(cursor))
            tick = json.loads(self._tick(page).data)
        finally:
            self._close_pages(reader)
        return {"tick": tick, "fragments": [[fragment.event, fragment.data] for fragment in missed]}

    def end_streams(self, message: str) -> None:
        """End a user's streams after a change of role or sessions; "person:42" is the user."""
        person_id = whole(message.partition(":")[2])
        for viewer in list(self.viewers):
            if person_id is not None and viewer.person == person_id:
                viewer.end()

    async def _open(self, topics: frozenset[str], reader: object) -> LivePage:
        """Return the page with these topics; draw the topics that nobody has viewed yet."""
        page = self.pages.get(topics)
        if page is None:
            page = self.pages[topics] = LivePage(topics, self.name, self._fragments_of, self.number)
        page.readers.add(reader)
        self._start()
        fresh = [topic for topic in sorted(topics) if topic not in self._drawn]
        now = asyncio.get_running_loop().time()
        self._drawn.update((topic, _Drawn(whole_at=now)) for topic in fresh)
        for topic in fresh:
            await self._draw(topic)
        if fresh:
            self._release(page)
        if now - self._aged_at > 2 * TICK_S:
            await self._look_at_age()
        return page

    def _fragments_of(self, topics: Iterable[str]) -> list[Fragment]:
        drawn = [self._drawn[topic] for topic in topics if topic in self._drawn]
        return [fragment for drawing in drawn for fragment in drawing.fragments.values()]

    def _close_pages(self, reader: object) -> None:
        for page in list(self.pages.values()):
            page.readers.discard(reader)
            if not page.readers:
                del self.pages[page.topics]
        watched = {topic for topics in self.pages for topic in topics}
        for topic in [topic for topic in self._drawn if topic not in watched]:
            del self._drawn[topic]
        if not self.pages:
            self._stop()

    async def _end_of_rights(self) -> None:
        """End streams whose session or right to view has ended, even if Redis did not report it."""
        keys = {viewer.session for viewer in self.viewers if viewer.session}
        if not keys:
            return
        with self._loop.isolate_errors("sessions that have ended"):
            read = functools.partial(viewing_sessions, keys, now=datetime.now(UTC))
            ended = keys - await self._in_thread(read)
            for viewer in list(self.viewers):
                if viewer.session in ended:
                    viewer.end()

    def _read(self, cursor: str) -> int:
        name, _, number = cursor.partition(".")
        position = whole(number) if name == self.name else None
        return -1 if position is None else position

    # --- the loops ----------------------------------------------------------------------

    def _start(self) -> None:
        if not self._tasks:
            loops = (self._listen, self._redraw, self._keep_time, self._keep_open)
            self._tasks = [asyncio.create_task(loop(), name=loop.__name__) for loop in loops]

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._drawn.clear()
        self._aged_at = -inf
        self._thread.submit(close_old_connections)

    async def _listen(self) -> None:
        """Receive changes; after each reconnection, redraw everything."""
        while True:
            client = redis.Redis.from_url(
                settings.REDIS_URL,
                socket_timeout=None,  # a subscription waits; its health checks do not
                socket_connect_timeout=settings.REDIS_SOCKET_TIMEOUT_S,
                health_check_interval=15,
            )
            try:
                async with client, client.pubsub(ignore_subscribe_messages=True) as ear:
                    await ear.subscribe(settings.CHANGED_CHANNEL)
                    self._stale_all()
                    while True:
                        message = await ear.get_message(timeout=REDIS_WAIT_S)
                        if message:
                            self._stale(_text(message["data"]))
            except (RedisError, OSError) as error:
                logger.warning("not receiving changes: %s", error)
            except Exception:  # top level of the loop: a malformed message must not end it
                logger.exception("not receiving changes")
            await asyncio.sleep(2)

    def _stale(self, message: str) -> None:
        if message.startswith("person:"):
            self.end_streams(message)
        now = asyncio.get_running_loop().time()
        for topic, drawn in self._drawn.items():
            if fragments.stales(topic, message):
                if drawn.changes is not None:
                    drawn.changes.add(message)
                drawn.pace = drawn.pace.changed(now)
                self._woken.set()

    def _stale_all(self) -> None:
        now = asyncio.get_running_loop().time()
        for drawn in self._drawn.values():
            drawn.changes, drawn.pace = None, drawn.pace.changed(now)
        self._woken.set()

    async def _redraw(self) -> None:
        """Draw the page that has been due for longest, and send it to its viewers."""
        clock = asyncio.get_running_loop().time
        while True:
            now = clock()
            for drawn in self._drawn.values():
                if now - drawn.whole_at >= REFRESH_S:
                    drawn.changes, drawn.pace = None, drawn.pace.changed(now)
            pages = [(self._due_at(page), page) for page in self.pages.values()]
            due_at, page = min(pages, key=lambda pair: pair[0], default=(inf, None))
            if page is None or due_at > now:
                self._woken.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), timeout=min(1.0, due_at - now))
                continue
            with self._loop.isolate_errors(f"the viewers of {' '.join(sorted(page.topics))}"):
                for topic in page.topics & self._drawn.keys():
                    if self._drawn[topic].pace.due_at <= now:
                        await self._draw(topic)
                if sending := self._release(page):
                    await asyncio.wait(sending, timeout=SEND_S)

    def _due_at(self, page: LivePage) -> float:
        return page_due_at(page.pace, (self._drawn[topic].pace for topic in page.topics))

    async def _draw(self, topic: str) -> None:
        """Draw a topic; the pages that show it have changed if one of its fragments has."""
        drawn = self._drawn[topic]
        now = asyncio.get_running_loop().time()
        changes = None if drawn.changes is None else frozenset(drawn.changes)
        drawn.changes, drawn.pace = set(), drawn.pace.shown(now)
        if changes is None:
            drawn.whole_at = now
        fragments: list[tuple[str, str, bytes]] = []
        with self._loop.isolate_errors(f"topic {topic}"):
            fragments = await self._in_thread(_drawing, topic, changes, datetime.now(UTC))
        for event, data, digest in fragments:
            before = drawn.fragments.get(event)
            if before is None or before.digest != digest:
                self.number += 1
                drawn.fragments[event] = Fragment(event, data, self.number, digest)
                for page in self.pages.values():
                    if topic in page.topics:
                        page.pace = page.pace.changed(now)
                self._woken.set()

    def _release(self, page: LivePage) -> list[asyncio.Task[None]]:
        """Release the drawn fragments to a page's viewers; return the tasks that send them."""
        now = asyncio.get_running_loop().time()
        if page.pace.changed_at <= now:
            page.advance(self.number, now)
        return [task for viewer in page.viewers() if (task := viewer.wake()) is not None]

    async def _keep_time(self) -> None:
        """Send the current time and the age of the newest data."""
        while True:
            await asyncio.sleep(TICK_S)
            await self._end_of_rights()
            await self._look_at_age()
            now = asyncio.get_running_loop().time()
            for viewer in list(self.viewers):
                if now >= viewer.ends_at:
                    viewer.end()
            for page in list(self.pages.values()):
                tick = self._tick(page)
                for viewer in page.viewers():
                    viewer.send_tick(page, tick)

    async def _keep_open(self) -> None:
        """Write to streams that have been silent, whatever the database does."""
        while True:
            await asyncio.sleep(COMMENT_EVERY_S / 3)
            before = asyncio.get_running_loop().time() - COMMENT_EVERY_S
            for viewer in list(self.viewers):
                if viewer.sent_at <= before:
                    viewer.comment()

    async def _look_at_age(self) -> None:
        with self._loop.isolate_errors("the age of the data"):
            self._newest = await self._in_thread(newest_event_at)
            read = functools.partial(silent_drivers, now=datetime.now(UTC))
            self._silent = await self._in_thread(read)
            self._aged_at = asyncio.get_running_loop().time()

    def _tick(self, page: LivePage) -> Fragment:
        silent = silent_since(page.topics, self._silent)
        data = {
            "now": datetime.now(UTC).isoformat(),
            "newest": self._newest.isoformat() if self._newest else "",
            "silent": silent.isoformat() if silent else "",
            "cursor": f"{self.name}.{page.number}",
        }
        return Fragment("tick", json.dumps(data), page.number)

    async def _in_thread(self, read: Callable[..., T], *given: Any) -> T:
        """Read in the hub's thread, whose database connection stays open while pages are."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _reading, read, *given)


#: Topics whose key is a query's ID.
_OF_A_QUERY = frozenset({"query", "lag", "checkpoint", "async", "exposure"})


def silent_since(topics: Iterable[str], silent: Sequence[SilentDriver]) -> datetime | None:
    """Return when a driver shown by these topics became silent; None if none is silent.

    Topics of one query, run or application show their own driver; all others show every driver.
    """
    subjects = [fragments.split(topic) for topic in topics]
    keys = {
        kind: {
            number for name, key in subjects if name == kind and (number := whole(key)) is not None
        }
        for kind in {name for name, _ in subjects}
    }
    queries = set().union(*(keys.get(kind, set()) for kind in _OF_A_QUERY))
    runs, applications = keys.get("run", set()), keys.get("application", set())
    every = not (queries or runs or applications)
    shown = (
        driver.since
        for driver in silent
        if every
        or driver.application in applications
        or driver.queries & queries
        or driver.runs & runs
    )
    return min(shown, default=None)


def _reading(read: Callable[..., T], *given: Any) -> T:
    """Read in the hub's thread; after a database error, the next read opens a new connection."""
    try:
        return read(*given)
    finally:
        if connection.errors_occurred:  # even if a part of a page has been left out for it
            close_old_connections()


def _drawing(topic: str, changes: fragments.Changes, now: datetime) -> list[tuple[str, str, bytes]]:
    """Return a topic's fragments, each with the digest of all that is not an age."""
    return [
        (event, data, hashlib.sha256(_AGES.sub(r"\1", data).encode()).digest())
        for event, data in fragments.draw(topic, changes, now)
    ]


def _text(data: Any) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else str(data)


_hub: Hub | None = None
_loop: asyncio.AbstractEventLoop | None = None


def hub() -> Hub:
    """Return the hub of this process's event loop; the first call creates it."""
    global _hub, _loop
    loop = asyncio.get_running_loop()
    if _hub is None or _loop is not loop:
        _hub, _loop = Hub(), loop
        _close_at_the_end(_hub, loop)
    return _hub


def _close_at_the_end(made: Hub, loop: asyncio.AbstractEventLoop) -> None:
    """End the streams when the server is stopping, because it waits for open responses."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if callable(before):
            signal.signal(number, _ending(made, loop, before))


def _ending(
    made: Hub,
    loop: asyncio.AbstractEventLoop,
    before: Callable[[int, FrameType | None], Any],
) -> Callable[[int, FrameType | None], None]:
    def end(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(made.close)
        before(number, frame)

    return end
