"""Store the event streams in the database: read, decode, store once, acknowledge, trim.

An entry is acknowledged after its batch has committed, never before; an entry that was stored but
not acknowledged is delivered again, which has no effect. Therefore, any number of ingesters can
run, and each can die at any point.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import redis
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection

from controlplane import fail_points, nudge, signs_of_life
from headgate_ground.wire import FIELD, EventKind, WireEvent
from listeners import senders, streams
from listeners.loops.backlogs import loop_errors
from listeners.loops.slices import lies_in_the_row
from listeners.senders import SenderLookup, Senders
from listeners.store import EventBatch, Letter, store
from listeners.streams import GROUP

logger = logging.getLogger(__name__)
_users = loop_errors("drivers' Redis users", logger)
_streams = loop_errors("event streams", logger)

BATCH = 1_000  # entries per transaction
#: Entries per stream and read: at most 1 MB each, whatever the driver sends.
MOST_OF_STREAM = 250
#: Bytes after which a transaction gets no further read; entries of usual size fill it to `BATCH`.
MOST_BYTES_MORE = 4_000_000
BLOCK_MS = 1_000  # how long a read waits for the first entry, and so the delay of a stop
#: Pause between two reads that found little, so that rows are written in groups; it is a part of
#: the delay of live pages.
PACE_S = 0.05
#: A transaction that held SQLite's lock for longer is followed by a pause, even with a backlog:
#: waiting writers look every 0.1 s, and on a busy host less often, so without one they might look
#: in vain for as long as they wait. On a quiet host, a full batch takes less.
LONG_S = 0.25
LONGEST_REST_S = 1.0
ALIVE_S = 10  # a consumer silent for longer is dead, and its entries are claimed
FORGOTTEN_MS = 3_600_000  # a dead consumer without entries is removed from the group
HOUSEKEEPING_S = 2.0  # heartbeat, claims from dead consumers, trimming
FIRST_DELAY_S, LAST_DELAY_S = 0.2, 5.0  # while Redis or the database is not responding

_NO_GROUP = ("NOGROUP", "no such key")  # Redis has lost its data, or never had any

#: Kinds that may change a decision; for PROGRESS and IDLE, a run's first one does.
_DECISIVE = frozenset(
    {
        EventKind.STARTED,
        EventKind.TERMINATED,
        EventKind.START_ERROR,
        EventKind.STATUS,
        EventKind.DRIVER_EXIT,
    }
)
_PROVING = frozenset({EventKind.PROGRESS, EventKind.IDLE})
_REMEMBERED_RUNS = 10_000
_LOGGED = 5  # dead letters per batch: otherwise a writer to the stream could fill the log

#: An entry with its stream.
Entry = tuple[str, bytes, dict[bytes, bytes]]


class Ingester:
    """A consumer of the installation's event streams."""

    def __init__(
        self,
        client: redis.Redis,
        *,
        stream: str,
        consumer: str,
        clock: Callable[[], datetime],
        lookup: SenderLookup,
        living: Callable[[], Mapping[int, int]],
        revoked: Callable[[], Mapping[int, int]] = dict,
        batch: int = BATCH,
    ) -> None:
        """`stream` is the common stream, whose name is the prefix of the drivers' streams' names.

        `lookup` finds drivers and runs; `living` returns the epochs of drivers that are allowed
        to send, by id, and `revoked` those of drivers that must exit.
        """
        self._client: Any = client
        self._common = stream
        self._streams = [stream]
        self._consumer = consumer
        self._clock = clock
        self._batch = batch
        self._share = min(batch, MOST_OF_STREAM)
        self._senders = Senders(lookup)
        self._living = living
        self._revoked = revoked
        self._housekeeping_at = -HOUSEKEEPING_S
        self._rest_s = 0.0  # to leave the database's lock to others
        self._unfinished = True  # there may be delivered entries that were not acknowledged
        self._proven: OrderedDict[tuple[int, int], None] = OrderedDict()
        self.stored = 0  # entries stored and acknowledged since it started

    def run(self, stop: threading.Event) -> None:
        """Ingest until `stop` is set, through outages of Redis or the database."""
        delay = FIRST_DELAY_S
        while not stop.is_set():
            began = time.monotonic()
            try:
                entries = self.step()
            except redis.RedisError as error:
                logger.warning("Redis is not responding; events wait in the spools: %s", error)
            except DatabaseError as error:
                logger.warning("events wait because the database does not accept them: %s", error)
                close_old_connections()
            else:
                delay = FIRST_DELAY_S
                rest, self._rest_s = self._rest_s, 0.0
                has_more = entries >= self._share
                if not has_more:
                    rest = max(rest, PACE_S - (time.monotonic() - began), 0.0)
                if rest or not has_more:
                    stop.wait(rest)
                continue
            stop.wait(delay)
            delay = min(LAST_DELAY_S, delay * 2)
        self._leave()

    def step(self) -> int:
        """Read, store and acknowledge one batch; return how many entries it had."""
        try:
            self._keep_house()
            return self._finish_pending() or self._take_new()
        except redis.ResponseError as error:
            if not any(sign in str(error) for sign in _NO_GROUP):
                raise
            self._look_for_streams(self._living())
            return 0

    # --- reading --------------------------------------------------------------------------
    def _finish_pending(self) -> int:
        """Store entries that were delivered to this consumer earlier but not acknowledged."""
        if not self._unfinished:
            return 0
        entries = self._read("0", block_ms=None)
        self._take(entries)
        self._unfinished = bool(entries)
        return len(entries)

    def _take_new(self) -> int:
        self._unfinished = True  # until it is acknowledged; a reply may be lost
        entries = more = self._read(">", block_ms=BLOCK_MS)
        # A backlog is stored in few transactions, each of which costs as much as dozens of entries.
        most = self._batch - self._share
        while len(more) >= self._share and len(entries) <= most and _are_small(entries):
            more = self._read(">", block_ms=None)
            entries = entries + more
        self._take(entries)
        self._unfinished = False
        return len(entries)

    def _read(self, start: str, *, block_ms: int | None) -> list[Entry]:
        """Return a share of entries from each stream, so that a flood does not delay the others."""
        reply = self._client.xreadgroup(
            GROUP,
            self._consumer,
            dict.fromkeys(self._streams, start),
            count=self._share,
            block=block_ms,
        )
        return [
            (name.decode(), entry, fields)
            for name, entries in reply or ()
            for entry, fields in entries
        ]

    def _look_for_streams(self, living: Mapping[int, int]) -> None:
        """Find the existing streams, and create the streams of live drivers before they send."""
        existing = streams.names_of(self._client, self._common)
        wanted = {streams.of_driver(self._common, epoch) for epoch in living.values()}
        wanted = wanted if settings.DRIVER_REDIS_USERS else set()
        names = [*existing, *sorted(wanted - {*existing})]
        streams.make_groups(self._client, names)
        self._streams = names

    # --- storing --------------------------------------------------------------------------
    def _take(self, entries: list[Entry]) -> None:
        for first in range(0, len(entries), self._batch):
            self._take_some(entries[first : first + self._batch])

    def _take_some(self, entries: list[Entry]) -> None:
        now = self._clock()
        events, letters = self._decode(entries)
        try:
            self._store(events, letters, now)
        except redis.RedisError:
            raise
        except Exception as error:
            if not lies_in_the_row(error):
                raise
            self._store_singly(events, letters, now)
        fail_points.reach(fail_points.BEFORE_ACK)
        for name, some in groupby(entries, key=itemgetter(0)):
            self._client.xack(name, GROUP, *(entry for _, entry, _ in some))
        self.stored += len(entries)

    def _decode(self, entries: list[Entry]) -> tuple[list[tuple[str, WireEvent]], list[Letter]]:
        """Return the trusted events, and dead letters with the reason for the others."""
        sealed: list[tuple[str, WireEvent, bytes]] = []
        letters: list[Letter] = []
        for _, entry, fields in entries:
            name = entry.decode()
            if fields is None:  # trimmed while it was pending
                continue
            data = fields.get(FIELD.encode())
            try:
                if data is None:
                    raise ValueError(f"the entry has no field {FIELD!r}")
                sealed.append((name, WireEvent.decode(data), data))
            except ValueError as error:
                letters.append(Letter(name, str(error), data or repr(fields).encode()))
        events = []
        refusals = self._senders.refusals([(event, data) for _, event, data in sealed])
        for (name, event, data), refusal in zip(sealed, refusals, strict=True):
            if refusal:
                letters.append(Letter(name, refusal, data))
            else:
                events.append((name, event))
        return events, letters

    def _store(
        self, events: Sequence[tuple[str, WireEvent]], letters: list[Letter], now: datetime
    ) -> None:
        batch = EventBatch(now)
        unsound = list(letters)
        for entry, event in events:
            try:
                batch.add(event)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                unsound.append(_letter(entry, event, error))
                batch.number(event)  # it did arrive
        began = time.monotonic()
        store(batch, unsound)
        self._rest_s = rest_s(time.monotonic() - began, connection.vendor)
        self._notify(event for _, event in events)
        for letter in unsound[:_LOGGED]:
            logger.error("entry %s stored as a dead letter: %s", letter.entry, letter.reason)
        if len(unsound) > _LOGGED:
            logger.error("%s more entries are dead letters", len(unsound) - _LOGGED)

    def _store_singly(
        self, events: Sequence[tuple[str, WireEvent]], letters: list[Letter], now: datetime
    ) -> None:
        """Store events one by one to find and dead-letter those that cannot be stored."""
        for entry, event in events:
            try:
                self._store([(entry, event)], [], now)
            except Exception as error:
                if not lies_in_the_row(error):
                    raise
                letters.append(_letter(entry, event, error))
        self._store([], letters, now)

    def _notify(self, events: Iterator[WireEvent]) -> None:
        """Reconcile applications that may need a new decision, and notify pages of the changes."""
        topics: set[str] = set()
        drivers: set[int] = set()
        for event in events:
            if event.query is not None:
                topics.add(f"query:{event.query}")
            if event.query is None or event.kind not in _PROVING:
                # A batch changes only its query, and a driver may run dozens.
                topics.add(f"driver:{event.driver}")
            if event.kind in _DECISIVE or (event.kind in _PROVING and self._is_first(event)):
                drivers.add(event.driver)
        for driver in sorted(drivers):  # first: someone waits for the consequences
            nudge.reconcile_driver_soon(driver)
        if topics:
            nudge.changed(*sorted(topics))

    def _is_first(self, event: WireEvent) -> bool:
        key = (event.driver, event.run or 0)
        if key in self._proven:
            return False
        self._proven[key] = None
        if len(self._proven) > _REMEMBERED_RUNS:
            self._proven.popitem(last=False)
        return True

    # --- housekeeping ---------------------------------------------------------------------
    def _keep_house(self) -> None:
        if time.monotonic() - self._housekeeping_at < HOUSEKEEPING_S:
            return
        self._housekeeping_at = time.monotonic()
        self._client.set(self._alive_key(self._consumer), self._clock().isoformat(), ex=ALIVE_S)
        signs_of_life.record_heartbeat(self._client, signs_of_life.INGESTER, now=self._clock())
        living = self._living()
        self._look_for_streams(living)
        shut_out: frozenset[int] = frozenset()
        with _users.isolate_errors():
            revoked = self._revoked()
            shut_out = senders.keep(self._client, living, revoked)
            senders.revoke(self._client, revoked)
        for state in streams.look(self._client, tuple(self._streams)):
            with _streams.isolate_errors(f"the stream {state.name}"):
                self._keep(state, living, shut_out)

    def _keep(
        self, state: streams.StreamState, living: Mapping[int, int], shut_out: Collection[int]
    ) -> None:
        """Take over a stream's entries from dead consumers, and trim the stream.

        1. A driver that floods its stream loses its pending entries and, until it ends, its Redis
           user.
        2. A stream that has been read completely is deleted once its driver has ended.
        """
        epoch = streams.epoch_of(self._common, state.name)
        if state.pending or not epoch:
            self._claim_from_the_dead(state.name)
        streams.trim(self._client, state)
        if not epoch:
            return
        if state.overflow:
            senders.shut_out(self._client, epoch)
            self._client.xtrim(state.name, maxlen=0, approximate=False)
        if state.overflow or epoch in shut_out:
            raise Flooded(
                f"driver {epoch} has filled its event stream and can no longer write to it. Its "
                "events wait in its spool. Check the driver's code, then restart its application"
            )
        if epoch not in living.values() and streams.is_through(self._client, state):
            self._streams.remove(state.name)
            self._client.delete(state.name)

    def _claim_from_the_dead(self, stream: str) -> None:
        for consumer in self._client.xinfo_consumers(stream, GROUP):
            name = consumer["name"].decode()
            if name == self._consumer or self._client.exists(self._alive_key(name)):
                continue
            if consumer["pending"]:
                logger.info("taking over entries from ingester %s, which is not responding", name)
                while self._claim(stream, name):
                    pass
            elif consumer["idle"] > FORGOTTEN_MS:
                # Only then: deleting a consumer that comes back would lose its entries.
                self._client.xgroup_delconsumer(stream, GROUP, name)

    def _claim(self, stream: str, name: str) -> int:
        """Claim some of a dead consumer's entries; return how many entries it had."""
        pending = self._client.xpending_range(
            stream, GROUP, min="-", max="+", count=MOST_OF_STREAM, consumername=name
        )
        ids = [entry["message_id"] for entry in pending]
        if not ids:
            return 0
        claimed = self._client.xclaim(
            stream, GROUP, self._consumer, min_idle_time=0, message_ids=ids
        )
        trimmed_ids = set(ids) - {entry for entry, _ in claimed}
        if trimmed_ids:  # trimmed or lost: there is nothing left to store
            self._client.xack(stream, GROUP, *trimmed_ids)
        self._take([(stream, entry, fields) for entry, fields in claimed])
        return len(ids)

    def _alive_key(self, consumer: str) -> str:
        return f"{self._common}:ingester:{consumer}"

    def _leave(self) -> None:
        """Let a successor claim the remaining entries immediately, if Redis responds."""
        try:
            self._client.delete(self._alive_key(self._consumer))
        except redis.RedisError as error:
            logger.info("Redis did not record that this ingester is leaving: %s", error)


def rest_s(locked_s: float, vendor: str) -> float:
    """Return how long to leave the lock to others after a transaction of `locked_s` seconds.

    Other databases wake their waiters.
    """
    if vendor != "sqlite" or locked_s <= LONG_S:
        return 0.0
    return min(LONGEST_REST_S, locked_s / 2)


def _are_small(entries: list[Entry]) -> bool:
    size = sum(len(value) for _, _, fields in entries for value in (fields or {}).values())
    return size < MOST_BYTES_MORE


def _letter(entry: str, event: WireEvent, error: Exception) -> Letter:
    return Letter(entry, f"{event.kind}: {type(error).__name__}: {error}", event.encode())


class Flooded(Exception):
    """A driver has left more entries in its stream than allowed."""
