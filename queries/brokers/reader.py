"""Read the first and last offsets of a broker's topics, and the times of records.

Nothing is committed and no consumer group is left behind: partitions are assigned manually, and one
record is read from each. Every wait has a limit, and so does each complete check: a broker that
hangs delays only its own check.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from headgate_ground.tolerant import at_ms as time_at_ms
from queries.brokers.options import TopicSelection, require_quick
from queries.domain.kafka.retention import RECORD_OVERHEAD_BYTES, Retention, read_retention
from queries.domain.kafka.topic_ids import java_id

logger = logging.getLogger(__name__)

LOOK_S = 4.0  # for a whole look: with one look every 5 s, silence is noticed within 10
RECORDS_S = 1.5  # of these, for the records' times
IDS_S = 1.5  # of these, for the topics' IDs
#: Partitions whose record is read in one look; the others follow in the next look.
RECORDS_AT_MOST = 256

#: Topics that are requested individually; if there are more, all of the broker's topics are
#: requested at once.
NAMED_AT_MOST = 20

At = tuple[str, int]  # topic, partition


class Unreachable(Exception):
    """The broker set does not respond, or rejects the login; the message is the broker's own."""


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """The current first and last offset of a partition."""

    earliest: int
    latest: int
    #: Start of the first open transaction, else `latest`; None unless only committed records are
    #: read (`isolation.level`).
    stable: int | None = None


@dataclass(frozen=True, slots=True)
class RecordSeen:
    """The first record at or after an offset."""

    offset: int
    at: datetime | None  # None: it has no time, or its time is in another unit (microseconds)
    bytes: int  # its share of the partition's size, uncompressed


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """A broker set's responses at one moment."""

    partitions: tuple[At, ...]  # those that exist
    ends: dict[At, PartitionEnds]  # for those that currently have a leader
    retention: dict[str, Retention]  # for topics whose configuration is readable
    records: dict[At, RecordSeen] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)  # for topics whose ID is reported


class BrokerReader:
    """One broker set, read repeatedly over the same connections."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._last_error = ""  # the client's own newest error
        self._refused = False  # whether that error is a rejected login
        common: dict[str, Any] = {
            **{name: value for name, value in options.items() if name != "isolation.level"},
            "client.id": "headgate",
            "socket.timeout.ms": 3000,
            "socket.connection.setup.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 1000,
            "log.connection.close": False,
            "log_level": 0,  # important errors are returned as such
            "error_cb": self._note,
        }
        self._options = common
        self._committed_only = options.get("isolation.level") == "read_committed"
        self._admin = AdminClient(common)
        self._fenced = False  # the leaders that the admin client knows are from an earlier epoch
        self._consumer = Consumer(
            {
                **common,
                "isolation.level": options.get("isolation.level", "read_uncommitted"),
                "group.id": "headgate-reads-without-a-group",  # required, but never joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "allow.auto.create.topics": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "max.partition.fetch.bytes": 65536,
                "queued.min.messages": 1,
                "fetch.queue.backoff.ms": 10,  # the default, a second, would delay each look
                "fetch.wait.max.ms": 100,
            }
        )
        self._configs: dict[str, tuple[float, Retention | None]] = {}

    def look(
        self,
        wanted: Iterable[TopicSelection],
        *,
        records: Callable[[dict[At, PartitionEnds]], Mapping[At, int]],
        limit_s: float = LOOK_S,
    ) -> BrokerLook:
        """Return the current state of the sources' partitions.

        `records` receives the ends of the partitions and chooses the offsets whose records are
        read. Raises `Unreachable` if the broker set does not respond within the limit.
        """
        until = time.monotonic() + limit_s
        with self._answering():
            partitions = self._partitions(list(wanted), until)
            ends = self._ends(partitions, until)
            if self._fenced:
                # librdkafka's admin client keeps using the first epoch that it learnt, for minutes
                # after a leader has changed or its broker was restarted.
                self._admin, self._fenced = AdminClient(self._options), False
                ends = self._ends(partitions, until)
            topics = sorted({topic for topic, _ in partitions})
            ids = self._topic_ids(topics, until)
            retention = self._retention(topics, until)
            times = self._records(dict(records(ends)), until)
        self._last_error, self._refused = "", False
        return BrokerLook(tuple(partitions), ends, retention, times, ids)

    def at_time(
        self, wanted: Iterable[TopicSelection], at_ms: int | None, *, limit_s: float = LOOK_S
    ) -> dict[At, tuple[PartitionEnds, int]]:
        """Return each partition's ends, and its first offset written at or after a given time.

        `at_ms` is in milliseconds since 1970; None means no time. If no record has been written
        since that time, the offset is the partition's end. Raises `Unreachable`.
        """
        until = time.monotonic() + limit_s
        with self._answering():
            partitions = self._partitions(list(wanted), until)
            ends = self._ends(partitions, until)
            spec = OffsetSpec.for_timestamp(at_ms) if at_ms is not None else None
            offsets = self._offsets(list(ends), spec, until) if spec and ends else {}
        return {
            at: (partition_ends, offsets[at] if offsets.get(at, -1) >= 0 else partition_ends.latest)
            for at, partition_ends in ends.items()
        }

    def partitions(self, wanted: Iterable[TopicSelection], *, limit_s: float = LOOK_S) -> list[At]:
        """Return every partition that is read, for topics that exist.

        Raises `Unreachable` if the broker set does not respond within the limit.
        """
        with self._answering():
            return self._partitions(list(wanted), time.monotonic() + limit_s)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    # --- helpers ----------------------------------------------------------------------

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Convert the client's errors to `Unreachable`, with the broker set's own message."""
        try:
            yield
        except KafkaException as error:
            for _ in range(10):  # lets the clients report why: `_note`
                self._consumer.poll(0)
                self._admin.poll(0)
            raise Unreachable(self._last_error or _words(error)) from error

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._last_error:
            return  # the earlier error explains it
        if error.code() == KafkaError._AUTHENTICATION or not self._refused:
            self._refused = error.code() == KafkaError._AUTHENTICATION
            self._last_error = str(error.str())[:300]

    def _partitions(self, wanted: list[TopicSelection], until: float) -> list[At]:
        """Return every partition that is read, for topics that exist."""
        topics = {}
        named = {name for selection in wanted for name in selection.names}
        if any(selection.pattern for selection in wanted) or len(named) > NAMED_AT_MOST:
            topics = self._consumer.list_topics(timeout=_left(until)).topics
        else:  # with a consumer, whose request creates no topics: the admin client's would
            for name in named:
                topics |= self._consumer.list_topics(name, timeout=_left(until)).topics
        partitions = set()
        for name, topic in topics.items():
            if topic.error is not None:
                continue
            numbers = tuple(sorted(topic.partitions))
            for selection in wanted:
                if selection.matches(name):
                    partitions |= {(name, number) for number in selection.of(name, numbers)}
                require_quick(
                    selection.pattern, late=bool(selection.pattern) and time.monotonic() > until
                )
        return sorted(partitions)

    def _ends(self, partitions: list[At], until: float) -> dict[At, PartitionEnds]:
        if not partitions:
            return {}
        earliest = self._offsets(partitions, OffsetSpec.earliest(), until)  # type: ignore[no-untyped-call]
        if missing := [at for at in partitions if at not in earliest]:
            # The client does not ask about partitions that were added after it last refreshed all
            # topics on its own, minutes ago.
            self._admin.list_topics(timeout=_left(until))
            earliest |= self._offsets(missing, OffsetSpec.earliest(), until)  # type: ignore[no-untyped-call]
        latest = self._offsets(partitions, OffsetSpec.latest(), until)  # type: ignore[no-untyped-call]
        stable: dict[At, int] = {}
        if self._committed_only:  # after the latest: transactions that end meanwhile do not count
            level = IsolationLevel.READ_COMMITTED
            stable = self._offsets(partitions, OffsetSpec.latest(), until, level)  # type: ignore[no-untyped-call]
        answered_partitions = earliest.keys() & latest.keys()
        return {
            at: PartitionEnds(
                earliest[at],
                latest[at],
                min(stable.get(at, latest[at]), latest[at]) if self._committed_only else None,
            )
            for at in partitions
            if at in answered_partitions
        }

    def _offsets(
        self,
        partitions: list[At],
        spec: Any,
        until: float,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[At, int]:
        specs = {TopicPartition(topic, number): spec for topic, number in partitions}
        answers = self._admin.list_offsets(
            specs, isolation_level=level, request_timeout=_left(until)
        )
        offsets: dict[At, int] = {}
        for partition, answer in answers.items():
            try:
                offsets[partition.topic, partition.partition] = _result(answer, until).offset
            except KafkaException as error:
                if _is_silence(error):
                    raise
                self._fenced = self._fenced or _code(error) in _FENCED
                logger.debug("%s has no offsets at the moment: %s", partition, _words(error))
        return offsets

    def _topic_ids(self, topics: list[str], until: float) -> dict[str, str]:
        """Return the topics' IDs; topics whose ID the broker does not return are omitted."""
        if not topics:
            return {}
        until = min(until, time.monotonic() + IDS_S)
        ids = {}
        try:
            collection = TopicCollection(topics)
            answers = self._admin.describe_topics(collection, request_timeout=_left(until))
        except KafkaException as error:  # an old broker; the other requests detect silence
            logger.debug("could not get the IDs of topics: %s", _words(error))
            return {}
        for name, answer in answers.items():
            try:
                topic_id = java_id(str(_result(answer, until).topic_id))
            except KafkaException as error:
                logger.debug("could not get the ID of topic %s: %s", name, _words(error))
                continue
            if topic_id is not None:
                ids[name] = topic_id
        return ids

    def _retention(self, topics: list[str], until: float) -> dict[str, Retention]:
        """Return how long topics retain records, except topics for which the broker refuses it."""
        now = time.monotonic()
        due = [name for name in topics if now - self._configs.get(name, (-1e9, None))[0] > 60]
        if due:
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in due]
            answers = self._admin.describe_configs(resources, request_timeout=_left(until))
            for resource, answer in answers.items():
                self._configs[resource.name] = (now, _retention(answer, until))
        return {
            name: retention for name in topics if (retention := self._configs[name][1]) is not None
        }

    def _records(self, offsets: dict[At, int], until: float) -> dict[At, RecordSeen]:
        """Read one record from each partition, skipping records that do not arrive in time."""
        if not offsets:
            return {}
        start_offsets = list(offsets.items())[:RECORDS_AT_MOST]
        until = min(until, time.monotonic() + RECORDS_S)
        waiting = {at for at, _ in start_offsets}
        records_read = {}
        places = [TopicPartition(*at, offset) for at, offset in start_offsets]
        self._consumer.assign(places)
        try:
            while waiting and time.monotonic() < until:
                for message in self._consumer.consume(len(waiting), timeout=_left(until)):
                    at = (message.topic(), message.partition())
                    if at not in waiting:
                        continue
                    waiting.discard(at)
                    self._consumer.pause([TopicPartition(*at)])
                    if message.error() is None:
                        records_read[at] = _record(message)
        finally:
            self._consumer.resume(places)  # a pause outlasts the assignment in which it was made
            self._consumer.unassign()
        return records_read


@dataclass(slots=True)
class _Slot:
    """The slot for one broker set's reader; its lock must be held to use the reader."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    reader: BrokerReader | None = None
    used: float = 0.0


class Readers:
    """This process's readers, one per broker set; they are closed when unused."""

    IDLE_S = 120.0

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._slots: dict[Any, _Slot] = {}

    def look(
        self,
        key: Any,
        options: Mapping[str, str],
        wanted: Iterable[TopicSelection],
        *,
        records: Callable[[dict[At, PartitionEnds]], Mapping[At, int]],
        limit_s: float = LOOK_S,
    ) -> BrokerLook:
        """Check the broker set with this key; reconnect if it did not respond the last time."""
        with self._guard:
            slot = self._slots.setdefault(key, _Slot())
            slot.used = time.monotonic()
        if not slot.lock.acquire(timeout=limit_s):
            raise Unreachable("The previous check has not ended yet.")
        try:
            if slot.reader is None:
                slot.reader = BrokerReader(options)
            return slot.reader.look(wanted, records=records, limit_s=limit_s)
        except Unreachable:
            if slot.reader is not None:
                slot.reader.close()
                slot.reader = None
            raise
        finally:
            slot.lock.release()

    def close_idle(self, *, idle_s: float = IDLE_S) -> None:
        """Close the readers that have not been used for a while."""
        now = time.monotonic()
        with self._guard:
            idle = [
                key
                for key, slot in self._slots.items()
                if now - slot.used > idle_s and not slot.lock.locked()
            ]
            readers = [self._slots.pop(key).reader for key in idle]
        for reader in readers:
            if reader is not None:
                reader.close()


def _left(until: float) -> float:
    """Return the remaining seconds, always above 0, so that a ready response is accepted."""
    return max(0.05, until - time.monotonic())


def _result(answer: Any, until: float) -> Any:
    """Return a future's result; raise the client's own error if the result is late."""
    try:
        return answer.result(_left(until))
    except FutureTimeout as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error


def _retention(answer: Any, until: float) -> Retention | None:
    try:
        entries = _result(answer, until)
    except KafkaException as error:
        if _is_silence(error):
            raise
        return None  # no permission: no retention deadline for this topic
    return read_retention({name: entry.value or "" for name, entry in entries.items()})


def _record(message: Any) -> RecordSeen:
    kind, at_ms = message.timestamp()
    timed = kind != TIMESTAMP_NOT_AVAILABLE and at_ms >= 0
    size = len(message.key() or b"") + len(message.value() or b"")
    headers = message.headers() or []
    size += sum(len(name) + len(value or b"") for name, value in headers)
    return RecordSeen(
        offset=message.offset() if message.offset() != OFFSET_INVALID else 0,
        at=time_at_ms(at_ms) if timed else None,
        bytes=size + RECORD_OVERHEAD_BYTES,
    )


_FENCED = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH})


def _code(error: KafkaException) -> int | None:
    return error.args[0].code() if error.args else None


def _is_silence(error: KafkaException) -> bool:
    """Return whether an error means that the brokers are not responding, rather than refusing."""
    return _code(error) in {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
    }


def _words(error: KafkaException) -> str:
    return str(error.args[0].str() if error.args else error)[:300]
