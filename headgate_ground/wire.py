"""Encode a driver's events in the versioned format that drivers and the ingester share.

A stream entry has one field, `e`: the seal, followed by an `Event` as JSON. `seq` increases by one
for every event of a driver, without holes, so that each loss can be counted. An event with `seq` 0
is outside the sequence (the shim's exit notice).

The seal is a MAC over that JSON, and therefore over driver, epoch, number and body, with a key that
only the driver and the control plane have.
"""

import hmac
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Self

import orjson

from headgate_ground.tolerant import is_number

VERSION = 1
FIELD = "e"
#: Maximum bytes of an event; Redis accepts 1 MiB per value (`proto-max-bulk-len`).
MOST_BYTES = 900_000
#: Characters kept of a text that is cut from an event.
_MOST_OF_TEXT = 10_000
#: Hexadecimal digits of HMAC-SHA-256 (RFC 2104).
_SEAL = 64


#: The sealed value in Redis when a driver must exit immediately; no event equals it.
REVOKED = b"revoked"


def sealed(event: bytes, key: bytes) -> bytes:
    """Return an encoded event preceded by its seal."""
    return _mac(event, key) + event


def is_sealed(entry: bytes, key: bytes) -> bool:
    """Return whether an entry was sealed with this key."""
    event = opened(entry)
    return hmac.compare_digest(entry[: len(entry) - len(event)], _mac(event, key))


def opened(entry: bytes) -> bytes:
    """Return an entry's encoded event, whether or not the entry is sealed."""
    return entry if entry.startswith(b"{") else entry[_SEAL:]


def _mac(event: bytes, key: bytes) -> bytes:
    return hmac.digest(key, event, "sha256").hex().encode()


class EventKind(StrEnum):
    """The kind of an event."""

    STARTED = "started"  # body: Spark's Started event
    PROGRESS = "progress"  # body: Spark's progress JSON, untouched
    IDLE = "idle"  # body: Spark's Idle event
    TERMINATED = "terminated"  # body: {"exception", "errorClassOnException", …}
    START_ERROR = "start_error"  # body: {"error_class", "message"}: raised inside start()
    STATUS = "status"  # body: {"state"}: the driver's status.json changed for this run
    HEARTBEAT = "heartbeat"  # body: `Heartbeat` below as JSON
    SLOW_BATCH = "slow_batch"  # body: the evidence of listeners.spark.slow_batches
    THREAD_DUMP = "thread_dump"  # body: {"quiet_s", "threads", "heap"}: a query hangs
    DRIVER_EXIT = "driver_exit"  # body: ExitReport's JSON; sent by the shim, seq 0


@dataclass(frozen=True, slots=True)
class WireEvent:
    """One event of a driver."""

    driver: int  # primary key of the driver's row
    epoch: int  # the driver's
    seq: int
    at: str  # ISO 8601 UTC, by the driver's clock
    kind: EventKind
    query: int | None = None
    run: int | None = None
    spark_run_id: str | None = None
    batch: int | None = None  # progress only
    repaired: bool = False  # from recentProgress, not from the bus
    body: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the event as compact JSON with its version."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return orjson.dumps({"v": VERSION, **own})

    def cut(self, most: int = MOST_BYTES) -> Self:
        """Return the event with its largest parts cut until its encoding fits into `most` bytes.

        Strings keep their beginning; lists and objects are removed. The body's `cut` lists all
        these parts. Bodies of this size come from users' metrics and error messages.
        """
        event, body, names = self, dict(self.body), []
        for name in sorted(body, key=lambda name: len(orjson.dumps(body[name])), reverse=True):
            if len(event.encode()) <= most:
                break
            value = body.pop(name)
            if isinstance(value, str):
                body[name] = value[:_MOST_OF_TEXT]
            names.append(name)
            event = replace(self, body={**body, "cut": sorted(names)})
        return event

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return an entry's event; raise ValueError with the reason if it is not an event."""
        raw = orjson.loads(opened(data))  # raises a ValueError
        if not isinstance(raw, dict):
            raise ValueError("an event must be a JSON object")
        version = raw.pop("v", None)
        if version != VERSION:
            raise ValueError(f"event version {version!r} is not {VERSION}")
        try:
            raw["kind"] = EventKind(str(raw.get("kind")))
            event = cls(**raw)
        except TypeError as error:
            raise ValueError(f"not an event: {error}") from error
        event._check()
        return event

    def _check(self) -> None:
        for name in ("driver", "epoch", "seq"):
            if not is_number(getattr(self, name)):
                raise ValueError(f"{name} is not a whole number")
        for name in ("query", "run", "batch"):
            value = getattr(self, name)
            if value is not None and not is_number(value):
                raise ValueError(f"{name} is neither a whole number nor null")
        if type(self.at) is not str:
            raise ValueError("at is not text")
        if self.spark_run_id is not None and type(self.spark_run_id) is not str:
            raise ValueError("spark_run_id is neither text nor null")
        if type(self.body) is not dict:
            raise ValueError("body is not a JSON object")


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """Spark's own metrics of one listener queue."""

    dropped: int  # events since the driver started: queue.NAME.numDroppedEvents
    size: int  # events waiting
    capacity: int
    processing_p95_ms: float  # listenerProcessingTime


@dataclass(frozen=True, slots=True)
class ListenerTimes:
    """The cost of a user's listener, timed around each of its calls."""

    name: str  # module:Class
    calls: int
    errors: int
    last_error: str  # type and message of the newest, or ""
    p95_ms: float
    max_ms: float
    slow: bool  # a call took, or is taking, longer than SLOW_CALL_MS


@dataclass(frozen=True, slots=True)
class QueryPulse:
    """A report, according to Spark, on whether the query of one run is alive."""

    run: int
    alive: bool
    task_at: str | None = None  # ISO 8601 UTC: last observed end of a task


@dataclass(frozen=True, slots=True)
class TaskTimeBody:
    """A run's task and waiting times since its start, in milliseconds."""

    run: int
    task_ms: int  # run time of its tasks, summed over all cores
    waited_ms: int  # its stages were ready, but none of their tasks ran
    waited_for: dict[str, int]  # part of that while other runs' tasks ran, by run number


@dataclass(frozen=True, slots=True)
class DriverTrouble:
    """A problem that the driver skips for now and retries."""

    about: str  # "status.json"
    cause: str  # the error's type and the first line of its message, masked
    times: int  # consecutive


@dataclass(frozen=True, slots=True)
class HeartbeatBody:
    """The body of a heartbeat: the driver's telemetry about itself."""

    mode: str  # "private" (own queue) or "fallback" (per session, with repair)
    streams: QueueCounters | None
    ours: QueueCounters | None
    listeners: tuple[ListenerTimes, ...]
    last_seq: int
    unsent: int  # events in the spool not yet in Redis
    outbox_dropped: int  # events lost because the spool was full
    missing_batches: int  # holes in batch ids found so far, all runs
    repaired: int  # those filled from recentProgress
    python_rss_mb: float = 0
    jvm_heap_used_mb: float = 0
    jvm_heap_max_mb: float = 0
    jvm_alive: bool | None = None  # None: unknown
    queries: tuple[QueryPulse, ...] = ()
    troubles: tuple[DriverTrouble, ...] = ()
    task_times: tuple[TaskTimeBody, ...] = ()  # of runs whose sums have grown, periodically

    def body(self) -> dict[str, Any]:
        """Return the heartbeat as the body of an event."""
        return asdict(self)

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        """Return the heartbeat in an event's body; raise ValueError if it is not valid."""
        try:
            queues = {
                name: QueueCounters(**body[name]) if body.get(name) else None
                for name in ("streams", "ours")
            }
            times = tuple(ListenerTimes(**entry) for entry in body.get("listeners", ()))
            pulses = tuple(QueryPulse(**entry) for entry in body.get("queries", ()))
            troubles = tuple(DriverTrouble(**entry) for entry in body.get("troubles", ()))
            tasks = tuple(TaskTimeBody(**entry) for entry in body.get("task_times", ()))
            parts = {
                "listeners": times,
                "queries": pulses,
                "troubles": troubles,
                "task_times": tasks,
            }
            return cls(**{**body, **queues, **parts})
        except TypeError as error:
            raise ValueError(f"not a heartbeat: {error}") from error
