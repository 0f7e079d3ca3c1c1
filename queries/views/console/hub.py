"""One hub per web process: it receives changes and renders each fragment once for all viewers.

The hub runs in the process's event loop. It subscribes to Redis while there are viewers, draws
stale topics in its own thread, and puts the drawn fragments into the viewers' queues. Each fragment
has a number. A viewer that reconnects with the last number it saw receives what it missed; a viewer
that comes from another process, or that was away for too long, receives everything.
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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import FrameType
from typing import Any, TypeVar

import redis.asyncio as redis
from django.conf import settings
from django.db import close_old_connections
from redis.exceptions import RedisError

from listeners.loops.each import Each
from queries.selectors.access.sessions import living_sessions
from queries.selectors.console.badges import SilentDriver, newest_event_at, silent_drivers
from queries.views.console import fragments
from queries.views.console.numbers import whole

logger = logging.getLogger(__name__)
T = TypeVar("T")

ROUND_S = 0.5  # a topic is drawn at most this often
REFRESH_S = 10  # and at least this often while viewed: verdicts change merely with time
TICK_S = 5
REDIS_WAIT_S = 5.0
BACKLOG = 2000  # fragments that a viewer may be behind before it has to start over

#: Ages are updated in the browser, so a fragment that differs only in ages has not changed.
_AGES = re.compile(r"(<time [^>]*data-(?:age|until)[^>]*>)[^<]*</time>")


@dataclass(frozen=True, slots=True)
class Message:
    """One event for a viewer."""

    event: str
    data: str
    number: int
    tab: int | None = None  # for a stream shared by several tabs; None: a single tab's stream


Queue = asyncio.Queue[Message | None]


@dataclass(eq=False)
class Viewer:
    """One page that is open in a browser: a stream, or one tab of a shared stream."""

    topics: frozenset[str]
    person: int | None = None  # its user's ID
    session: str = ""  # key of the session in which it was opened
    queue: "Queue" = field(default_factory=lambda: asyncio.Queue(maxsize=BACKLOG))
    tab: int | None = None  # the tab's number, if several share a stream and its queue


@dataclass
class _Drawn:
    """A topic as last drawn: event -> (data, digest, number)."""

    fragments: dict[str, tuple[str, bytes, int]] = field(default_factory=dict)
    changes: set[str] | None = field(default_factory=set)  # unprocessed messages; None: everything
    drawn_at: float = 0.0  # by the loop's clock


class Hub:
    """All live state in one event loop."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex[:8]
        self.number = 0
        self.viewers: set[Viewer] = set()
        self.closing = False
        self._drawn: dict[str, _Drawn] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._woken = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fragments")
        self._newest: datetime | None = None
        self._silent: list[SilentDriver] = []
        self._each = Each("pages", logger)

    # --- viewers ------------------------------------------------------------------------

    def streams_of(self, person: int | None) -> int:
        """Return how many streams a user has open."""
        return len({id(viewer.queue) for viewer in self.viewers if viewer.person == person})

    async def join(self, viewer: Viewer, cursor: str) -> Viewer:
        """Add a viewer; put the messages that it missed into its queue."""
        topics = viewer.topics
        seen = self._read(cursor)
        fresh = [topic for topic in sorted(topics) if topic not in self._drawn]
        self.viewers.add(viewer)  # before anything is awaited: it misses nothing from here on
        self._start()
        for topic in sorted(topics.difference(fresh)):
            for event, (data, _, number) in self._drawn[topic].fragments.items():
                if number > seen:
                    self._tell(viewer, Message(event, data, number))
        for topic in fresh:
            self._drawn[topic] = _Drawn(changes=None)
        for topic in fresh:
            await self._draw(topic)
        await self._look_at_age()
        self._tell(viewer, self._tick(viewer))
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Close a stream; topics that have no viewers left are forgotten."""
        self.viewers.discard(viewer)
        watched = self._watched()
        for topic in [topic for topic in self._drawn if topic not in watched]:
            del self._drawn[topic]
        if not self.viewers:
            self._stop()

    def close(self) -> None:
        """End every stream, because the server is stopping."""
        self.closing = True
        for viewer in list(self.viewers):
            self._end(viewer)

    async def snapshot(self, topics: frozenset[str], cursor: str) -> dict[str, Any]:
        """Return the fragments that a viewer without a stream has missed.

        The form is {tick, fragments: [event, data]}.
        """
        viewer = await self.join(Viewer(topics), cursor)
        try:
            messages = []
            while not viewer.queue.empty():
                message = viewer.queue.get_nowait()
                if message is not None:
                    messages.append(message)
        finally:
            self.leave(viewer)
        tick = next(message for message in messages if message.event == "tick")
        rest = [[message.event, message.data] for message in messages if message.event != "tick"]
        return {"tick": json.loads(tick.data), "fragments": rest}

    def end_streams(self, message: str) -> None:
        """End a user's streams after a change of role or sessions; "person:42" is the user."""
        whose = whole(message.partition(":")[2])
        for viewer in [one for one in self.viewers if whose is not None and one.person == whose]:
            self._end(viewer)

    async def _end_of_sessions(self) -> None:
        """End the streams of sessions that have ended, whether or not Redis reports their end."""
        keys = {viewer.session for viewer in self.viewers if viewer.session}
        if not keys:
            return
        with self._each.by_itself("sessions that have ended"):
            loop = asyncio.get_running_loop()
            read = functools.partial(living_sessions, keys, now=datetime.now(UTC))
            ended = keys - await loop.run_in_executor(self._thread, _in_thread, read)
            for viewer in [one for one in self.viewers if one.session in ended]:
                self._end(viewer)

    def _read(self, cursor: str) -> int:
        name, _, number = cursor.partition(".")
        found = whole(number) if name == self.name else None
        return -1 if found is None else found

    def _tell(self, viewer: Viewer, message: Message) -> None:
        try:
            viewer.queue.put_nowait(replace(message, tab=viewer.tab))
        except asyncio.QueueFull:
            self._end(viewer)

    def _end(self, viewer: Viewer) -> None:
        """Ask a stream to end; if its queue is full, make room for the message."""
        while viewer.queue.full():
            viewer.queue.get_nowait()
        viewer.queue.put_nowait(None)

    def _watched(self) -> set[str]:
        return {topic for viewer in self.viewers for topic in viewer.topics}

    def _drawn_of(self, topic: str) -> _Drawn:
        return self._drawn.setdefault(topic, _Drawn(changes=None))

    # --- the three loops ----------------------------------------------------------------

    def _start(self) -> None:
        if not self._tasks:
            loops = (self._listen, self._redraw, self._keep_time)
            self._tasks = [asyncio.create_task(loop(), name=loop.__name__) for loop in loops]

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._drawn.clear()

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
                        said = await ear.get_message(timeout=REDIS_WAIT_S)
                        if said:
                            self._stale(_text(said["data"]))
            except (RedisError, OSError) as error:
                logger.warning("not receiving changes: %s", error)
            except Exception:  # top level of the loop: a malformed message must not end it
                logger.exception("not receiving changes")
            await asyncio.sleep(2)

    def _stale(self, message: str) -> None:
        if message.startswith("person:"):
            self.end_streams(message)
        for topic, drawn in self._drawn.items():
            if drawn.changes is not None and fragments.stales(topic, message):
                drawn.changes.add(message)
                self._woken.set()

    def _stale_all(self) -> None:
        for drawn in self._drawn.values():
            drawn.changes = None
        self._woken.set()

    async def _redraw(self) -> None:
        """Draw the stale topics, at most once per `ROUND_S`."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), timeout=1)
            self._woken.clear()
            now = asyncio.get_running_loop().time()
            for topic in self._watched():
                drawn = self._drawn_of(topic)
                if drawn.changes == set() and now - drawn.drawn_at < REFRESH_S:
                    continue
                with self._each.by_itself(f"the viewers of {topic}"):
                    await self._draw(topic)
            await asyncio.sleep(ROUND_S)

    async def _draw(self, topic: str) -> None:
        """Draw a topic, and send its viewers the fragments that have changed."""
        drawn = self._drawn_of(topic)
        loop = asyncio.get_running_loop()
        whole = drawn.changes is None or loop.time() - drawn.drawn_at >= REFRESH_S
        changes = None if whole else frozenset(drawn.changes or ())
        drawn.changes, drawn.drawn_at = set(), loop.time()
        found: list[tuple[str, str]] = []
        with self._each.by_itself(f"topic {topic}"):
            found = await loop.run_in_executor(
                self._thread, _in_thread, fragments.draw, topic, changes, datetime.now(UTC)
            )
        for event, data in found:
            digest = hashlib.sha256(_AGES.sub(r"\1", data).encode()).digest()
            before = drawn.fragments.get(event)
            if before is None or before[1] != digest:
                self.number += 1
                drawn.fragments[event] = (data, digest, self.number)
                self._broadcast(topic, Message(event, data, self.number))

    def _broadcast(self, topic: str, message: Message) -> None:
        for viewer in list(self.viewers):
            if topic in viewer.topics:
                self._tell(viewer, message)

    async def _keep_time(self) -> None:
        """Send the current time and the age of the newest data."""
        while True:
            await asyncio.sleep(TICK_S)
            await self._end_of_sessions()
            await self._look_at_age()
            for viewer in list(self.viewers):
                self._tell(viewer, self._tick(viewer))

    async def _look_at_age(self) -> None:
        loop = asyncio.get_running_loop()
        with self._each.by_itself("the age of the data"):
            self._newest = await loop.run_in_executor(self._thread, _in_thread, newest_event_at)
            read = functools.partial(silent_drivers, now=datetime.now(UTC))
            self._silent = await loop.run_in_executor(self._thread, _in_thread, read)

    def _tick(self, viewer: Viewer) -> Message:
        silent = silent_since(viewer.topics, self._silent)
        data = {
            "now": datetime.now(UTC).isoformat(),
            "newest": self._newest.isoformat() if self._newest else "",
            "silent": silent.isoformat() if silent else "",
            "cursor": f"{self.name}.{self.number}",
        }
        return Message("tick", json.dumps(data), self.number)


#: Topics whose key is a query's ID.
_OF_A_QUERY = frozenset({"query", "lag", "checkpoint", "async", "exposure"})


def silent_since(topics: Iterable[str], silent: Sequence[SilentDriver]) -> datetime | None:
    """Return when a driver shown by these topics became silent; None if none is silent.

    Topics of one query, run or application show their own driver; all others show every driver.
    """
    asked = [fragments.split(topic) for topic in topics]
    keys = {
        kind: {number for name, key in asked if name == kind and (number := whole(key)) is not None}
        for kind in {name for name, _ in asked}
    }
    queries = set().union(*(keys.get(kind, set()) for kind in _OF_A_QUERY))
    runs, applications = keys.get("run", set()), keys.get("application", set())
    every = not (queries or runs or applications)
    shown = (
        one.since
        for one in silent
        if every or one.application in applications or one.queries & queries or one.runs & runs
    )
    return min(shown, default=None)


def _in_thread(read: Callable[..., T], *given: Any) -> T:
    """Read in the hub's thread, which does not keep a database connection open."""
    close_old_connections()
    try:
        return read(*given)
    finally:
        close_old_connections()


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
    """End the streams when the server is asked to stop, because it waits for open responses."""
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
