"""Read Spark's own counters of its listener queues, for an exact count of dropped events."""

import logging
from typing import Any

from py4j.protocol import Py4JError

from headgate_ground.wire import QueueCounters

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
