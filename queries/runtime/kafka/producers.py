"""Find queries of one driver that share a Kafka producer, and detect when the producer hangs.

Spark keeps one producer in a JVM for each set of `kafka.*` options, no matter which queries use it.
If the broker rejects a batch as too large, the producer splits the batch and sends it again. If
`kafka.batch.size` is above the topic's limit, each part is as large as the whole, and the producer
keeps splitting until `kafka.delivery.timeout.ms` (two minutes) ends this with a timeout. Until
then, every query that flushes the same producer waits, without any error.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from queries.domain.protocol import RunError

logger = logging.getLogger(__name__)

CONDITION = "HEADGATE_KAFKA_BATCH_TOO_LARGE"
LOOK_EVERY_S = 5.0
#: The producer's own metric.
SPLIT = "batch-split-total"
_PARAMETERS = {
    "queryNames": ("javax.management.ObjectName", "javax.management.QueryExp"),
    "getAttribute": ("javax.management.ObjectName", "java.lang.String"),
}
#: The producer's message: "Expiring 9 record(s) for out-0:120000 ms has passed since …".
_EXPIRED = re.compile(r"Expiring \d+ record\(s\) for \S+-\d+:")


class Producers:
    """The runs of one driver that write to Kafka, grouped by their producers' settings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[int, tuple[str, frozenset[tuple[str, str]]]] = {}

    def join(self, run: int, name: str, spec: dict[str, Any]) -> bool:
        """Record a run's producer; return whether its definition writes to Kafka."""
        sink = spec.get("sink") or {}
        if sink.get("format") != "kafka":
            return False
        options = (sink.get("options") or {}).items()
        settings = frozenset((k, v) for k, v in options if k.lower().startswith("kafka."))
        with self._lock:
            self._runs[run] = (name, settings)
        return True

    def leave(self, run: int) -> None:
        """Forget a run that has ended."""
        with self._lock:
            self._runs.pop(run, None)

    def sharing(self, run: int) -> dict[int, str]:
        """Return the other runs whose sinks use the same producer, with their queries' names."""
        with self._lock:
            mine = self._runs.get(run)
            if mine is None:
                return {}
            return {
                other: name
                for other, (name, settings) in self._runs.items()
                if other != run and settings == mine[1]
            }


class SinkProducer:
    """The producer through which one run's sink writes, if it writes to Kafka."""

    def __init__(
        self, producers: Producers, run: int, name: str, warn: Callable[[int, str], None]
    ) -> None:
        self._producers = producers
        self._run = run
        self._name = name
        self._warn = warn  # adds a warning to a run
        self._gateway: Any = None  # None: it does not write to Kafka
        self._splits = 0.0  # by the JVM's producers, at the last look
        self._splits_before = 0.0  # the same, when the query was started
        self._look_at = 0.0  # monotonic: time of the next look

    def begin(self, spec: dict[str, Any], context: Any) -> None:
        """Record that the run is about to start in this SparkContext."""
        if self._producers.join(self._run, self._name, spec):
            self._gateway = context._gateway
            self._splits = self._splits_before = splits(self._gateway)

    def look(self) -> None:
        """Report, at intervals, that the producer is splitting batches, and who shares it."""
        if self._gateway is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_EVERY_S
        before, self._splits = self._splits, splits(self._gateway)
        if self._splits > before:
            others = self._producers.sharing(self._run)
            self._warn(self._run, waits(list(others.values())))

    def named(self, error: RunError) -> RunError:
        """Report a batch rejected by the broker as too large, also to the queries it held up."""
        if self._gateway is None:
            return error
        others = self._producers.sharing(self._run)
        split = splits(self._gateway) - self._splits_before
        named_error = named(error, split=split, others=list(others.values()))
        if named_error is not error:
            for other in others:
                self._warn(other, delay_warning(self._name))
        return named_error

    def end(self) -> None:
        """Record that the run has ended."""
        self._producers.leave(self._run)


def splits(gateway: Any) -> float:
    """Return how many batches this JVM's producers have split because they were too large.

    0.0 if there are no producers, or if their metrics cannot be read.
    """
    try:
        jvm = gateway.jvm
        wanted = jvm.javax.management.ObjectName("kafka.producer:type=producer-metrics,*")
        names = _call_mbean_server(gateway, "queryNames", wanted, None).toArray()
        return sum(
            float(_call_mbean_server(gateway, "getAttribute", name, SPLIT)) for name in names
        )
    except Exception as error:  # another client: its failures are reported as they occur
        logger.info("could not read the producers' metrics: %s", error)
        return 0.0


def _call_mbean_server(gateway: Any, method: str, *arguments: Any) -> Any:
    """Call a method of the JVM's MBean server by its interface; the class is not accessible."""
    jvm = gateway.jvm
    of = jvm.java.lang.Class.forName
    kinds = gateway.new_array(jvm.java.lang.Class, 2)
    values = gateway.new_array(jvm.java.lang.Object, 2)
    for index, name in enumerate(_PARAMETERS[method]):
        kinds[index] = of(name)
        if arguments[index] is not None:
            values[index] = arguments[index]
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    return of("javax.management.MBeanServer").getMethod(method, kinds).invoke(server, values)


def named(error: RunError, *, split: float, others: list[str]) -> RunError:
    """Return a producer's timeout with its real cause, if the producer split batches in vain.

    `split` is the number of batches split in this run; `others` are the queries that waited for the
    producer.
    """
    if split <= 0 or not _EXPIRED.search(f"{error.root_cause}\n{error.message}"):
        return error
    text = (
        f"{error.root_cause}\nThe broker rejected the batch as too large (MESSAGE_TOO_LARGE), "
        f"and the producer split it {split:,.0f} times without success."
    )
    if others:
        text += f" Queries that share the producer waited for it: {', '.join(sorted(others))}."
    return replace(error, error_class=CONDITION, root_cause=text)


def waits(others: list[str]) -> str:
    """Return the warning for a query whose producer is splitting batches now."""
    shared = f", which it shares with {', '.join(sorted(others))}," if others else ""
    return (
        f"The Kafka producer of the query's sink{shared} is splitting batches that the broker "
        "rejects as too large (MESSAGE_TOO_LARGE); this batch waits until the producer gives up."
    )


def delay_warning(by: str) -> str:
    """Return the warning for a query whose producer was held up by another query's batch."""
    return (
        f"The query's sink shares a Kafka producer with {by}, whose batch the broker rejected as "
        "too large, so the query's own batches had to wait. Set a separate kafka.client.id to "
        "avoid this."
    )
