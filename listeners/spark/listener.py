"""Receive each of Spark's query events with a single call into the JVM, without delaying Spark.

PySpark's own listener reads every field of a progress object with a separate round trip (about 0.2
s per event). This one takes the event's JSON and returns. It uses a private queue of Spark's
listener bus, so that no other listener can delay it or make Spark drop its events. That queue is
internal to Spark, so its existence is checked.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError

from headgate_ground.wire import EventKind

logger = logging.getLogger(__name__)

QUEUE = "ours"
_BUS_CLASS = "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus"
_CAPACITY = f"spark.scheduler.listenerbus.eventqueue.{QUEUE}.capacity"


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
        if not conf.contains(_CAPACITY):
            conf.set(_CAPACITY, str(capacity))
        bus = getattr(jvm, _BUS_CLASS)(jvm.scala.Option.empty())
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
