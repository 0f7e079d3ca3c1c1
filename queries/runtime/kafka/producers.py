"""Know which queries of a driver write through one Kafka producer, and when that one hangs.

Spark keeps one producer in a JVM for each set of `kafka.*` options, whoever uses them. A batch that
the broker refuses as too large is split by the producer and sent again; where `kafka.batch.size` is
above the topic's limit each part is as large as the whole, which goes on until
`kafka.delivery.timeout.ms` (two minutes) calls it a time-out. Whoever flushes the same producer
waits until then, without an error of its own.
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
#: The producer's own figure.
SPLIT = "batch-split-total"
_PARAMETERS = {
    "queryNames": ("javax.management.ObjectName", "javax.management.QueryExp"),
    "getAttribute": ("javax.management.ObjectName", "java.lang.String"),
}
#: How the producer puts it: "Expiring 9 record(s) for out-0:120000 ms has passed since …".
_EXPIRED = re.compile(r"Expiring \d+ record\(s\) for \S+-\d+:")


class Producers:
    """The runs of one driver that write to Kafka, by the settings of their producers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[int, tuple[str, frozenset[tuple[str, str]]]] = {}

    def join(self, run: int, name: str, spec: dict[str, Any]) -> bool:
        """Note what a run writes with; return whether it writes to Kafka by its definition."""
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
    """The producer that one run's sink writes through, where it writes to Kafka."""

    def __init__(
        self, producers: Producers, run: int, name: str, warn: Callable[[int, str], None]
    ) -> None:
        self._producers = producers
        self._run = run
        self._name = name
        self._warn = warn  # about a run, in words
        self._gateway: Any = None  # None: it does not write to Kafka
        self._splits = 0.0  # of the JVM's producers, when last looked at
        self._splits_before = 0.0  # and when the query was started
        self._look_at = 0.0  # monotonic: the next look

    def begin(self, spec: dict[str, Any], context: Any) -> None:
        """Note that the run is about to start in this SparkContext."""
        if self._producers.join(self._run, self._name, spec):
            self._gateway = context._gateway
            self._splits = self._splits_before = splits(self._gateway)

    def look(self) -> None:
        """Say, now and then, that the producer is splitting batches, and who shares it."""
        if self._gateway is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_EVERY_S
        before, self._splits = self._splits, splits(self._gateway)
        if self._splits > before:
            others = self._producers.sharing(self._run)
            self._warn(self._run, waits(list(others.values())))

    def named(self, error: RunError) -> RunError:
        """Name a batch that the broker refuses as too large, here and to those it held up."""
        if self._gateway is None:
            return error
        others = self._producers.sharing(self._run)
        split = splits(self._gateway) - self._splits_before
        found = named(error, split=split, others=list(others.values()))
        if found is not error:
            for other in others:
                self._warn(other, held_up(self._name))
        return found

    def end(self) -> None:
        """Note that the run has ended."""
        self._producers.leave(self._run)


def splits(gateway: Any) -> float:
    """Return how many batches this JVM's producers have split: refused as too large.

    0.0 where there is none, or where their figures cannot be read.
    """
    try:
        jvm = gateway.jvm
        wanted = jvm.javax.management.ObjectName("kafka.producer:type=producer-metrics,*")
        found = _ask(gateway, "queryNames", wanted, None).toArray()
        return sum(float(_ask(gateway, "getAttribute", name, SPLIT)) for name in found)
    except Exception as error:  # another client: its failures are told as they come
        logger.info("the figures of producers cannot be read: %s", error)
        return 0.0


def _ask(gateway: Any, method: str, *arguments: Any) -> Any:
    """Call a method of the JVM's MBean server, by its interface: its class is not open to us."""
    jvm = gateway.jvm
    of = jvm.java.lang.Class.forName
    kinds = gateway.new_array(jvm.java.lang.Class, 2)
    given = gateway.new_array(jvm.java.lang.Object, 2)
    for place, name in enumerate(_PARAMETERS[method]):
        kinds[place] = of(name)
        if arguments[place] is not None:
            given[place] = arguments[place]
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    return of("javax.management.MBeanServer").getMethod(method, kinds).invoke(server, given)


def named(error: RunError, *, split: float, others: list[str]) -> RunError:
    """Return a time-out of the producer as what it is, where it was splitting batches in vain.

    `split` is how many batches it has split in this run, `others` whoever waited for it.
    """
    if split <= 0 or not _EXPIRED.search(f"{error.root_cause}\n{error.message}"):
        return error
    text = (
        f"{error.root_cause}\nThe broker refused the batch as too large (MESSAGE_TOO_LARGE), and "
        f"the producer split it {split:,.0f} times in vain."
    )
    if others:
        text += f" Queries that share the producer waited for it: {', '.join(sorted(others))}."
    return replace(error, error_class=CONDITION, root_cause=text)


def waits(others: list[str]) -> str:
    """Return what a query is told whose producer is splitting batches now."""
    shared = f", which it shares with {', '.join(sorted(others))}," if others else ""
    return (
        f"The Kafka producer of its sink{shared} is splitting batches that the broker refuses as "
        "too large (MESSAGE_TOO_LARGE): this batch waits until the producer gives up."
    )


def held_up(by: str) -> str:
    """Return what a query is told after another's batch has held its producer up."""
    return (
        f"Its sink shares a Kafka producer with {by}, whose batch the broker refused as too large: "
        f"its own batches waited for that one. A kafka.client.id of its own keeps it apart."
    )
