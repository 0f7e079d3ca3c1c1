"""Receive Spark's query events without delaying Spark; users' listeners, and drop counts.

PySpark's own listener reads every field of a progress object with a separate round trip (about 0.2
s per event). This one takes the event's JSON and returns. It uses a private queue of Spark's
listener bus, so that no other listener can delay it or make Spark drop its events. That queue is
internal to Spark, so its existence is checked.

They are registered in the standard way and share Spark's queue; slow or failing listeners are
reported with their times and errors, so that users do not have to guess why Spark dropped events.
"""

import importlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import StreamingQueryListener

from headgate_ground import spark_names
from headgate_ground.wire import EventKind, ListenerTimes, QueueCounters

logger = logging.getLogger(__name__)

_DEFAULT_CAPACITY = 10_000
_CAPACITY = "spark.scheduler.listenerbus.eventqueue"


class BusCounters:
    """The metrics of one queue, looked up once and read with four calls into the JVM."""

    def __init__(self, spark: Any, queue: str) -> None:
        self._spark = spark
        self._queue = queue
        self._metrics: tuple[Any, Any, Any] | None = None
        self._capacity = 0

    def read(self) -> QueueCounters | None:
        """Return the current counters; None if Spark has no such queue, or no longer responds."""
        try:
            if self._metrics is None and not self._look_up():
                return None
            assert self._metrics is not None
            dropped, size, times = self._metrics
            return QueueCounters(
                dropped=int(dropped.getCount()),
                size=int(size.getValue()),
                capacity=self._capacity,
                processing_p95_ms=round(times.getSnapshot().get95thPercentile() / 1e6, 3),
            )
        except (Py4JError, OSError) as error:
            logger.debug("counters of queue %s cannot be read: %s", self._queue, error)
            return None

    def _look_up(self) -> bool:
        context = self._spark.sparkContext._jsc.sc()
        registry = context.listenerBus().metrics().metricRegistry()
        prefix = f"queue.{self._queue}"
        self._metrics = (
            registry.getCounters().get(f"{prefix}.numDroppedEvents"),
            registry.getGauges().get(f"{prefix}.size"),
            registry.getTimers().get(f"{prefix}.listenerProcessingTime"),
        )
        if None in self._metrics:
            self._metrics = None
            return False
        conf = context.conf()
        shared = conf.getInt(f"{_CAPACITY}.capacity", _DEFAULT_CAPACITY)
        self._capacity = int(conf.getInt(f"{_CAPACITY}.{self._queue}.capacity", shared))
        return True


def jvm_heap_mb(spark: Any) -> tuple[float, float]:
    """Return the JVM's used and maximum heap, in MB; (0, 0) if the JVM is not responding."""
    try:
        runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
        used = runtime.totalMemory() - runtime.freeMemory()
        return round(used / 2**20, 1), round(runtime.maxMemory() / 2**20, 1)
    except (Py4JError, OSError):
        return 0.0, 0.0


def python_rss_mb() -> float:
    """Return the resident memory of this process in MB; 0 if /proc does not show it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return round(int(line.split()[1]) / 1024, 1)
    except OSError:
        pass
    return 0.0


QUEUE = "ours"
_LISTENER_CAPACITY = f"spark.scheduler.listenerbus.eventqueue.{QUEUE}.capacity"


@dataclass(frozen=True, slots=True)
class BusEvent:
    """One event as received from the bus."""

    kind: EventKind
    text: str  # Spark's JSON
    at: float  # seconds since 1970 when it was received


class BusListener:
    """Implement Spark's Java interface for Python listeners: take the JSON, enqueue it, return."""

    def __init__(self, take: Callable[[BusEvent], None]) -> None:
        self._take = take

    def onQueryStarted(self, event: Any) -> None:
        """Take a Started event."""
        self._take(BusEvent(EventKind.STARTED, event.json(), time.time()))

    def onQueryProgress(self, event: Any) -> None:
        """Take a Progress event."""
        self._take(BusEvent(EventKind.PROGRESS, event.json(), time.time()))

    def onQueryIdle(self, event: Any) -> None:
        """Take an Idle event."""
        self._take(BusEvent(EventKind.IDLE, event.json(), time.time()))

    def onQueryTerminated(self, event: Any) -> None:
        """Take a Terminated event."""
        self._take(BusEvent(EventKind.TERMINATED, event.json(), time.time()))

    class Java:
        """The Java interface that py4j offers to the JVM."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def java_listener(spark: Any, listener: BusListener) -> Any:
    """Return the Java listener that calls `listener`."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(spark.sparkContext._gateway)
    streaming = spark.sparkContext._jvm.org.apache.spark.sql.streaming
    return streaming.PythonStreamingQueryListenerWrapper(listener)


def attach_private(spark: Any, java: Any, *, capacity: int) -> Any | None:
    """Attach the listener to a private queue; return its bus, or None if that is not possible.

    The listener receives events from all sessions. `capacity` applies if the configuration does not
    set the queue's capacity.
    """
    context = spark.sparkContext._jsc.sc()
    jvm = spark.sparkContext._jvm
    try:
        conf = context.conf()
        if not conf.contains(_LISTENER_CAPACITY):
            conf.set(_LISTENER_CAPACITY, str(capacity))
        name = spark_names.class_named(spark_names.LISTENER_BUS, spark.version)
        bus = getattr(jvm, name)(jvm.scala.Option.empty())
        bus.addListener(java)
        context.listenerBus().addToQueue(bus, QUEUE)
        return bus if queue_exists(spark, QUEUE) else None
    except (Py4JError, TypeError) as error:
        logger.warning("no private listener queue, so using the fallback: %s", error)
        return None


def queue_exists(spark: Any, queue: str) -> bool:
    """Return whether Spark's listener bus has a queue with this name and counts its events."""
    bus = spark.sparkContext._jsc.sc().listenerBus()
    gauges = bus.metrics().metricRegistry().getGauges()
    return bool(bus.activeQueues().contains(queue) and gauges.containsKey(f"queue.{queue}.size"))


def attach_to_session(session: Any, java: Any) -> None:
    """Register the listener in one session, on the queue that all sessions share."""
    session._jsparkSession.streams().addListener(java)


def remove_session_bus(session: Any) -> None:
    """Remove a session's bus from the `streams` queue, where it would otherwise remain."""
    remove_bus(session, session._jsparkSession.streams().listenerBus())


def remove_bus(spark: Any, bus: Any) -> None:
    """Remove a bus from Spark's queues; a queue ends when its last bus is removed."""
    spark.sparkContext._jsc.sc().listenerBus().removeListener(bus)


_REMEMBERED_CALLS = 512  # for the p95


class ListenerRefused(Exception):
    """A user's listener cannot be used; the message contains its name and the reason."""


class TimedListener(StreamingQueryListener):  # type: ignore[misc]
    """A user's listener with a timer around each call; Spark gets the listener's exceptions."""

    def __init__(self, name: str, listener: StreamingQueryListener, *, slow_call_ms: float) -> None:
        self._name = name
        self._listener = listener
        self._slow_call_ms = slow_call_ms
        self._lock = threading.Lock()
        self._calls = 0
        self._errors = 0
        self._last_error = ""
        self._recent: deque[float] = deque(maxlen=_REMEMBERED_CALLS)  # ms
        self._max_ms = 0.0
        self._running: dict[int, float] = {}  # thread -> monotonic start time of its call

    def onQueryStarted(self, event: Any) -> None:
        """Pass on a Started event."""
        self._call("onQueryStarted", event)

    def onQueryProgress(self, event: Any) -> None:
        """Pass on a Progress event."""
        self._call("onQueryProgress", event)

    def onQueryIdle(self, event: Any) -> None:
        """Pass on an Idle event."""
        self._call("onQueryIdle", event)

    def onQueryTerminated(self, event: Any) -> None:
        """Pass on a Terminated event."""
        self._call("onQueryTerminated", event)

    def times(self) -> ListenerTimes:
        """Return the listener's times so far; a running call counts with its current duration."""
        now = time.monotonic()
        with self._lock:
            running = [(now - began) * 1000 for began in self._running.values()]
            costs = sorted([*self._recent, *running])
            max_ms = max([self._max_ms, *running])
            return ListenerTimes(
                name=self._name,
                calls=self._calls,
                errors=self._errors,
                last_error=self._last_error,
                p95_ms=round(costs[int(0.95 * (len(costs) - 1))], 3) if costs else 0.0,
                max_ms=round(max_ms, 3),
                slow=max_ms > self._slow_call_ms,
            )

    def _call(self, name: str, event: Any) -> None:
        thread = threading.get_ident()
        began = time.monotonic()
        with self._lock:
            self._calls += 1
            self._running[thread] = began
        try:
            getattr(self._listener, name)(event)
        except Exception as error:
            with self._lock:
                self._errors += 1
                text = f"{type(error).__name__}: {error}"[:500]
                self._last_error = text.encode(errors="replace").decode()
            raise
        except BaseException as error:
            # sys.exit() would end the thread without an answer, and Spark would wait forever.
            with self._lock:
                self._errors += 1
                self._last_error = f"{error!r} was raised"[:500]
            raise RuntimeError(self._last_error) from error
        finally:
            took_ms = (time.monotonic() - began) * 1000
            with self._lock:
                self._running.pop(thread, None)
                self._recent.append(took_ms)
                self._max_ms = max(self._max_ms, took_ms)


def load(name: str, *, slow_call_ms: float) -> TimedListener:
    """Return a timed instance of the listener class `module:Class`.

    Raises ListenerRefused if the module or class is missing, is not a StreamingQueryListener, or
    cannot be created without arguments.
    """
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise ListenerRefused(f"listener {name!r}: write it as module:Class")
    try:
        made = getattr(importlib.import_module(module_name), class_name)
    except BaseException as error:  # a user's module may raise anything on import
        reason = f"{type(error).__name__}: {error}"
        raise ListenerRefused(f"listener {name} cannot be imported: {reason}") from error
    if not (isinstance(made, type) and issubclass(made, StreamingQueryListener)):
        raise ListenerRefused(
            f"listener {name} is not a StreamingQueryListener: derive the class from "
            "pyspark.sql.streaming.StreamingQueryListener"
        )
    try:
        listener = made()
    except BaseException as error:  # a user's constructor may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ListenerRefused(
            f"listener {name} cannot be created without arguments: {reason}"
        ) from (error)
    return TimedListener(name, listener, slow_call_ms=slow_call_ms)
