"""What a driver says, as one versioned form that driver and ingester share.

A stream entry has one field, `e`: the JSON text of an `Event` behind its seal. `seq` rises by one
for every event of a driver, without holes, so that each loss can be counted. An event with `seq` 0
is outside the sequence (the shim's exit notice).

The seal is a MAC over that text, and so over driver, epoch, number and body, by a key that only
the driver and the control plane hold. Drivers of releases before have none and send the bare text.
"""

import hmac
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Self

import orjson

VERSION = 1
FIELD = "e"
#: Bytes of one event at most; Redis takes 1 MiB in one value (`proto-max-bulk-len`).
MOST_BYTES = 900_000
#: Of a text that is cut out of an event, so many characters stay.
_KEPT_OF_TEXT = 10_000
#: Hexadecimal digits of HMAC-SHA-256 (RFC 2104).
_SEAL = 64


def sealed(event: bytes, key: bytes) -> bytes:
    """Return an encoded event behind its seal; without a key (b"") as it is."""
    return _mac(event, key) + event if key else event


def is_sealed(entry: bytes, key: bytes) -> bool:
    """Return whether an entry carries the seal that this key gives it."""
    event = opened(entry)
    return hmac.compare_digest(entry[: len(entry) - len(event)], _mac(event, key))


def opened(entry: bytes) -> bytes:
    """Return the encoded event of an entry, whether or not it is sealed."""
    return entry if entry.startswith(b"{") else entry[_SEAL:]


def _mac(event: bytes, key: bytes) -> bytes:
    return hmac.digest(key, event, "sha256").hex().encode()


class Kind(StrEnum):
    """What an event tells."""

    STARTED = "started"  # body: Spark's Started event
    PROGRESS = "progress"  # body: Spark's progress JSON, untouched
    IDLE = "idle"  # body: Spark's Idle event
    TERMINATED = "terminated"  # body: {"exception", "errorClassOnException", …}
    START_ERROR = "start_error"  # body: {"error_class", "message"}: raised inside start()
    STATUS = "status"  # body: {"state"}: the driver's status.json changed for this run
    HEARTBEAT = "heartbeat"  # body: `Heartbeat` below as JSON
    DRIVER_EXIT = "driver_exit"  # body: ExitReport's JSON; sent by the shim, seq 0


@dataclass(frozen=True, slots=True)
class Event:
    """One thing a driver said."""

    driver: int  # primary key of the driver's row
    epoch: int  # the driver's
    seq: int
    at: str  # ISO 8601 UTC, by the driver's clock
    kind: Kind
    query: int | None = None
    run: int | None = None
    spark_run_id: str | None = None
    batch: int | None = None  # progress only
    repaired: bool = False  # taken from recentProgress, not from the bus
    body: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the event as compact JSON with its version."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return orjson.dumps({"v": VERSION, **own})

    def cut(self, most: int = MOST_BYTES) -> Self:
        """Return the event with its largest parts cut until it is encoded in `most` bytes.

        A text keeps its beginning, a list or object goes; the body's `cut` names them all. Bodies
        of this size come from users' metrics and error texts.
        """
        event, body, names = self, dict(self.body), []
        for name in sorted(body, key=lambda name: len(orjson.dumps(body[name])), reverse=True):
            if len(event.encode()) <= most:
                break
            value = body.pop(name)
            if isinstance(value, str):
                body[name] = value[:_KEPT_OF_TEXT]
            names.append(name)
            event = replace(self, body={**body, "cut": sorted(names)})
        return event

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the event of an entry; raise ValueError with the reason where it holds none."""
        raw = orjson.loads(opened(data))  # its error is a ValueError
        if not isinstance(raw, dict):
            raise ValueError("an event is a JSON object")
        version = raw.pop("v", None)
        if version != VERSION:
            raise ValueError(f"event version {version!r} is not {VERSION}")
        try:
            raw["kind"] = Kind(str(raw.get("kind")))
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
            raise ValueError("at is not a text")
        if self.spark_run_id is not None and type(self.spark_run_id) is not str:
            raise ValueError("spark_run_id is neither a text nor null")
        if type(self.body) is not dict:
            raise ValueError("body is not a JSON object")


def is_number(value: object) -> bool:
    """Return whether a value is a whole number that a database column can hold."""
    return type(value) is int and 0 <= value < 2**63


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """What Spark's own metrics say about one listener queue."""

    dropped: int  # events, since the driver began: queue.NAME.numDroppedEvents
    size: int  # events waiting
    capacity: int
    processing_p95_ms: float  # listenerProcessingTime


@dataclass(frozen=True, slots=True)
class ListenerTimes:
    """What one user's listener costs, by our own clock around each of its calls."""

    name: str  # module:Class
    calls: int
    errors: int
    last_error: str  # type and message of the newest, ""
    p95_ms: float
    max_ms: float
    slow: bool  # a call took longer than SLOW_CALL_MS or one is running that long


@dataclass(frozen=True, slots=True)
class QueryPulse:
    """Whether the query of one run lives, as Spark says when asked."""

    run: int
    alive: bool
    task_at: str | None = None  # ISO 8601 UTC: when a task of it was last seen to finish


@dataclass(frozen=True, slots=True)
class TaskTime:
    """What a run's tasks took and waited for, since the run began, milliseconds."""

    run: int
    task_ms: int  # its tasks' run time, added up over all cores
    waited_ms: int  # its stages stood ready and none of their tasks ran
    waited_for: dict[str, int]  # of that, while tasks of other runs ran; by their run's number


@dataclass(frozen=True, slots=True)
class DriverTrouble:
    """Something that the driver passes over for now, and tries again."""

    about: str  # "status.json"
    cause: str  # the error's type and the first line of its message, masked
    times: int  # in a row


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The body of a heartbeat: the driver's telemetry about itself."""

    mode: str  # "private" (own queue) | "fallback" (per session, with repair)
    streams: QueueCounters | None
    ours: QueueCounters | None
    listeners: tuple[ListenerTimes, ...]
    last_seq: int
    unsent: int  # events in the spool that Redis does not have yet
    outbox_dropped: int  # events lost because the spool was full
    missing_batches: int  # holes in batch ids found so far, all runs
    repaired: int  # of them, filled from recentProgress
    python_rss_mb: float = 0
    jvm_heap_used_mb: float = 0
    jvm_heap_max_mb: float = 0
    jvm_alive: bool | None = None  # None: not known, as from a driver of a release before
    queries: tuple[QueryPulse, ...] = ()
    troubles: tuple[DriverTrouble, ...] = ()
    task_times: tuple[TaskTime, ...] = ()  # of runs where they have grown, now and then

    def body(self) -> dict[str, Any]:
        """Return the heartbeat as the body of an event."""
        return asdict(self)

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        """Return the heartbeat that an event's body holds; raise ValueError otherwise."""
        try:
            queues = {
                name: QueueCounters(**body[name]) if body.get(name) else None
                for name in ("streams", "ours")
            }
            times = tuple(ListenerTimes(**entry) for entry in body.get("listeners", ()))
            pulses = tuple(QueryPulse(**entry) for entry in body.get("queries", ()))
            troubles = tuple(DriverTrouble(**entry) for entry in body.get("troubles", ()))
            tasks = tuple(TaskTime(**entry) for entry in body.get("task_times", ()))
            parts = {
                "listeners": times,
                "queries": pulses,
                "troubles": troubles,
                "task_times": tasks,
            }
            return cls(**{**body, **queues, **parts})
        except TypeError as error:
            raise ValueError(f"not a heartbeat: {error}") from error
