"""Number every event and send it to Redis; keep it on disk until Redis has it.

One thread adds events (numbers, spools, queues), and another sends them. Adding never waits for
Redis: events that do not fit into memory are read back from the spool once Redis accepts events
again. An entry whose arrival is uncertain is sent again; the ingester stores each number once.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from io import FileIO
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate_ground.spool import line as spool_line
from headgate_ground.spool import read_segment, segment_name
from headgate_ground.wire import FIELD, MOST_BYTES, REVOKED, WireEvent, sealed


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Storage limits, intervals and timeouts."""

    force_fallback: bool = False  # never use the private queue
    queue_capacity: int = 10_000  # events in our private queue (Spark's own default)
    heartbeat_s: float = 2.0
    repair_s: float = 2.0  # between checks for batches that the bus did not deliver
    grace_s: float = 10.0  # delay after which a batch is fetched
    hold_s: float = 10.0  # how long an event waits for its run to become known
    hold_events: int = 1_000
    spool_mb: int = 256  # on disk, sent and unsent together
    spool_sent_mb: int = 32  # part of that kept after sending, for repairing lost entries
    max_unread: int = 20_000  # entries in its stream above which the sender pauses
    socket_timeout_s: float = 2.0
    slow_call_ms: float = 1_000.0  # calls of a user's listener above this count as slow

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Self:
        """Return the settings from JSON, ignoring names that are unknown to this version."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in raw.items() if name in names})


SEGMENT_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Segment:
    """One file of a spool."""

    path: Path
    first: int
    last: int
    size: int = 0
    count: int = 0


class Spool:
    """The writing side of a spool; its owner's lock protects it from concurrent use."""

    def __init__(self, folder: Path, *, limit: int, sent_limit: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._limit = limit  # bytes, sent and unsent together
        self._sent_limit = sent_limit  # bytes of completely sent segments
        self._segments: list[Segment] = []
        self._file: FileIO | None = None

    def append(self, seq: int, event: bytes, *, sent_to: int) -> list[Segment]:
        """Write one event; return the segments with unsent events that were removed to make space.

        `sent_to` is the last sequence number that Redis has. Raises OSError if the disk does not
        accept the event, which is then not stored in the spool.
        """
        data = spool_line(seq, event)
        segment = self._segments[-1] if self._segments else None
        if segment is None or self._file is None or segment.size + len(data) > SEGMENT_BYTES:
            segment = self._open(seq)
        assert self._file is not None
        written = self._file.write(data)
        if written != len(data):
            self.close()  # a torn line ends its segment; readers skip it
            raise OSError("the disk accepted only part of an event")
        segment.last, segment.count = seq, segment.count + 1
        segment.size += len(data)
        return self._make_room(sent_to)

    def segment_from(self, seq: int) -> list[tuple[int, bytes]]:
        """Return the events numbered `seq` or higher in the first segment that has any."""
        for segment in self._segments:
            if segment.last >= seq:
                events = [entry for entry in read_segment(segment.path) if entry[0] >= seq]
                if events:
                    return events
        return []

    def _open(self, seq: int) -> Segment:
        self.close()
        path = self._folder / segment_name(seq)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._file = FileIO(descriptor, "a")
        segment = Segment(path, seq, seq - 1)
        self._segments.append(segment)
        return segment

    def close(self) -> None:
        """Close the open segment; the files stay."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _make_room(self, sent_to: int) -> list[Segment]:
        """Remove sent segments above their share, then the oldest segments above the limit."""
        sent = [segment for segment in self._segments[:-1] if segment.last <= sent_to]
        surplus = sum(segment.size for segment in sent) - self._sent_limit
        for segment in sent:
            if surplus <= 0:
                break
            surplus -= segment.size
            self._remove(segment)
        lost = []
        while len(self._segments) > 1 and self._size() > self._limit:
            oldest = self._segments[0]
            if oldest.last > sent_to:
                lost.append(oldest)
            self._remove(oldest)
        return lost

    def _size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def _remove(self, segment: Segment) -> None:
        self._segments.remove(segment)
        segment.path.unlink(missing_ok=True)


logger = logging.getLogger(__name__)

MEMORY_BYTES = 8 * 1024 * 1024  # unsent events in memory, in addition to the spool
BATCH_EVENTS = 500  # events per pipeline
BATCH_BYTES = 1024 * 1024
FIRST_DELAY_S, LAST_DELAY_S = 0.1, 5.0  # backoff while Redis is not responding
THROTTLE_S = 1.0  # between checks while the stream is too long
LOG_EVERY_S = 60.0

Entry = tuple[int, bytes]


class Outbox:
    """One driver's events on their way to the installation's stream."""

    def __init__(
        self,
        *,
        folder: Path,
        redis_url: str,
        stream: str,
        settings: TelemetrySettings,
        key: bytes,
        revocation: str = "",
        revoked: Callable[[], object] = lambda: None,
    ) -> None:
        """`key` seals each event.

        The sender calls `revoked` once the value of the Redis key `revocation` revokes the epoch;
        `revocation` is "" if there is no such key.
        """
        self._key = key
        self._revocation = revocation
        self._revoked = revoked
        megabyte = 1024 * 1024
        self._spool = Spool(
            folder,
            limit=settings.spool_mb * megabyte,
            sent_limit=settings.spool_sent_mb * megabyte,
        )
        self._settings = settings
        self._stream = stream
        self._client = _client(redis_url, settings.socket_timeout_s)
        self._changed = threading.Condition()
        self._ready: deque[Entry] = deque()  # unsent, oldest first
        self._ready_bytes = 0
        self._on_disk_from: int | None = None  # from this number on, only the spool has them
        self._last = 0
        self._sent_to = 0
        self._sent = 0
        self._added = 0
        self._dropped = 0
        self._draining = threading.Event()  # exit when all is sent
        self._stopping = threading.Event()  # exit now
        self._logged_at = -LOG_EVERY_S
        self._sender = threading.Thread(target=self._run, name="telemetry-sender", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._sender.start()

    def add(self, event: WireEvent) -> int:
        """Number an event, spool it, and queue it for sending; return its number. Never wait."""
        with self._changed:
            self._last += 1
            line = replace(event, seq=self._last).encode()
            if len(line) > MOST_BYTES:
                line = replace(event, seq=self._last).cut().encode()
            self._keep(self._last, sealed(line, self._key))
            self._changed.notify_all()
            return self._last

    def skip(self, count: int) -> None:
        """Skip the numbers of events that were lost before they could be added."""
        with self._changed:
            self._last += count
            self._dropped += count

    @property
    def last_seq(self) -> int:
        """Return the number of the newest event."""
        return self._last

    @property
    def unsent(self) -> int:
        """Return how many events Redis does not have yet."""
        return max(0, self._added - self._sent)

    @property
    def dropped(self) -> int:
        """Return how many events were lost because there was no space."""
        return self._dropped

    def close(self, deadline_s: float) -> int:
        """Send the remaining events, for at most `deadline_s`; return the last event's number."""
        self._draining.set()
        with self._changed:
            self._changed.notify_all()
        if self._sender.is_alive():
            self._sender.join(max(0.0, deadline_s))
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
            self._spool.close()
        if not self._sender.is_alive():
            self._client.close()
        return self._last

    # --- adding ---------------------------------------------------------------------------
    def _keep(self, seq: int, line: bytes) -> None:
        spooled = True
        try:
            for segment in self._spool.append(seq, line, sent_to=self._sent_to):
                self._count_lost(segment)
        except OSError as error:
            spooled = False
            self._complain("the spool cannot be written: %s", error)
        in_memory = self._on_disk_from is None and self._ready_bytes + len(line) <= MEMORY_BYTES
        if in_memory:
            self._ready.append((seq, line))
            self._ready_bytes += len(line)
        elif not spooled:
            self._dropped += 1
            return
        elif self._on_disk_from is None:
            self._on_disk_from = seq
        self._added += 1

    def _count_lost(self, segment: Segment) -> None:
        """Count as lost the events of a removed segment that are not in memory either."""
        if self._on_disk_from is None:
            return
        only_on_disk = segment.last - max(segment.first, self._on_disk_from) + 1
        lost = max(0, min(segment.count, only_on_disk))
        self._dropped += lost
        self._added -= lost

    # --- sending --------------------------------------------------------------------------
    def _run(self) -> None:
        delay = FIRST_DELAY_S
        while not self._stopping.is_set():
            batch = self._next_batch()
            if not batch:
                if self._draining.is_set():
                    return
                continue
            try:
                unread = self._post(batch)
            except (redis.RedisError, OSError) as error:
                self._complain(
                    ("events wait in the spool, because Redis does not accept them: %s"), error
                )
                self._stopping.wait(delay)
                delay = min(LAST_DELAY_S, delay * 2)
                continue
            delay = FIRST_DELAY_S
            self._note_sent(batch)
            if unread > self._settings.max_unread:
                self._throttle()

    def _next_batch(self) -> list[Entry]:
        """Return the oldest unsent events without removing them; [] if there are none."""
        with self._changed:
            if not self._ready and self._on_disk_from is not None:
                self._load()
            if not self._ready and not self._draining.is_set():
                self._changed.wait(1.0)
            batch: list[Entry] = []
            size = 0
            for seq, line in self._ready:
                if batch and (len(batch) >= BATCH_EVENTS or size + len(line) > BATCH_BYTES):
                    break
                batch.append((seq, line))
                size += len(line)
            return batch

    def _load(self) -> None:
        """Load one segment back into memory, or leave disk mode when all have been read."""
        assert self._on_disk_from is not None
        entries = self._spool.segment_from(self._on_disk_from)
        self._ready.extend(entries)
        self._ready_bytes = sum(len(line) for _, line in entries)
        following = entries[-1][0] + 1 if entries else self._last + 1
        self._on_disk_from = following if following <= self._last else None

    def _post(self, batch: list[Entry]) -> int:
        """Send a batch in one round trip; return the stream's current length.

        The round trip also reads the driver's revocation. Only the sealed value counts: if Redis
        has lost its data, or does not let the driver read the key, no driver is revoked.
        """
        with self._client.pipeline(transaction=False) as pipeline:
            for _, line in batch:
                pipeline.xadd(self._stream, {FIELD: line})
            pipeline.xlen(self._stream)
            if self._revocation:
                pipeline.get(self._revocation)
            answers = pipeline.execute(raise_on_error=False)
        if self._revocation and answers.pop() == sealed(REVOKED, self._key):
            self._revoked()
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return int(answers[-1])

    def _note_sent(self, batch: list[Entry]) -> None:
        with self._changed:
            for seq, line in batch:
                if self._ready and self._ready[0][0] == seq:
                    self._ready.popleft()
                    self._ready_bytes -= len(line)
            self._sent += len(batch)
            self._sent_to = max(self._sent_to, batch[-1][0])

    def _throttle(self) -> None:
        """Wait while the stream is longer than the ingester can handle."""
        while not (self._stopping.is_set() or self._draining.is_set()):
            self._stopping.wait(THROTTLE_S)
            try:
                if self._post([]) <= self._settings.max_unread:
                    return
            except (redis.RedisError, OSError):
                return  # sending will meet the same error and wait until it is over

    def _complain(self, message: str, error: Exception) -> None:
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            logger.warning(message, error)


def _client(url: str, timeout_s: float) -> redis.Redis:
    """Return a client that fails fast, because the sender has its own backoff."""
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
    )
