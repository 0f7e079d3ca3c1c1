"""A run's Kafka: the check of its topics, topics found later, permitted gaps, hanging producers.

This uses Kafka's own client, which the connector includes, and the source's own options: any topic
that Spark can read can be queried here, including those of sources in users' functions. If the
brokers do not respond, the start continues, and the control plane checks the brokers later.

For the sources in a definition, the control plane queries the brokers itself; the options of
sources in users' functions, including passwords, exist only in the driver.

This is for a run whose data loss an operator has accepted. For that run only, each source is read
with `failOnDataLoss=false`, in SQL definitions and in users' functions alike; the definition is not
changed, and the next run fails again at a gap.

Spark keeps one producer in a JVM for each set of `kafka.*` options, no matter which queries use it.
If the broker rejects a batch as too large, the producer splits the batch and sends it again. If
`kafka.batch.size` is above the topic's limit, each part is as large as the original, and the
producer keeps splitting until `kafka.delivery.timeout.ms` (two minutes) ends this with a timeout.
Until then, every query that flushes the same producer waits, without any error.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from queries.domain.kafka.topic_ids import changed, java_id, names
from queries.domain.protocol import RunError
from queries.runtime.failures.error_capture import StepFailed

logger = logging.getLogger(__name__)

CONDITION = "HEADGATE_TOPIC_RECREATED"
ANSWER_S = 5.0  # for all topics of one source
SOURCES_S = 10.0  # for all sources of a query


class TopicRecreated(Exception):
    """A topic was deleted and recreated, so the checkpoint's offsets belong to another topic."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """One Kafka source of a query, as Spark has planned it."""

    options: Mapping[str, str]

    def option(self, name: str) -> str:
        """Return an option, ignoring case in its name; "" if it is not set."""
        return next((v for k, v in self.options.items() if k.lower() == name.lower()), "")

    @property
    def fails_on_loss(self) -> bool:
        """Return whether Spark should fail if data is lost."""
        return self.option("failOnDataLoss").strip().lower() != "false"

    @property
    def client(self) -> dict[str, str]:
        """Return the source's options for Kafka's client."""
        return {k[len("kafka.") :]: v for k, v in self.options.items() if k.startswith("kafka.")}

    def topics(self, read: Sequence[str]) -> list[str]:
        """Return the topics that the source lists, or those in `read` if it specifies a pattern."""
        if self.option("subscribePattern"):
            return list(read)
        return [name.strip() for name in self.option("subscribe").split(",") if name.strip()] or [
            name for name in read if f'"{name}"' in self.option("assign")
        ]


@dataclass(frozen=True, slots=True)
class TopicIds:
    """The brokers' responses about a query's topics."""

    ids: dict[str, str]  # topic -> ID, for topics with a known ID
    warnings: tuple[str, ...] = ()


def check(
    frame: Any, *, remembered_ids: Mapping[str, Sequence[str]], read: Sequence[str], jvm: Any
) -> TopicIds:
    """Return the topic IDs for a streaming DataFrame that is about to start.

    `remembered_ids` are the topic IDs that the checkpoint's offsets belong to; `read` are the
    topics that it has offsets for. Raises `StepFailed` if one of these topics was deleted and
    recreated and its source fails on data loss.
    """
    until = time.monotonic() + SOURCES_S
    ids: dict[str, str] = {}
    warnings: list[str] = []
    for source in sources_of(frame):
        topics = source.topics(read)
        if not topics or time.monotonic() >= until:
            continue
        current = ids_of(jvm, source.client, topics)
        ids |= current
        new = [topic for topic in changed(remembered_ids, current) if topic in read]
        if not new:
            continue
        text = (
            f"{names(new)} deleted and recreated: the checkpoint's offsets belong to the old "
            "topic, and records before them in the new topic would never be read."
        )
        if source.fails_on_loss:
            raise StepFailed("Kafka source", TopicRecreated(text), error_class=CONDITION)
        warnings.append(f"{text} The query starts anyway because of failOnDataLoss=false.")
    return TopicIds(ids, tuple(warnings))


def sources_of(frame: Any) -> list[KafkaSource]:
    """Return the Kafka sources in a DataFrame's plan; none if the plan cannot be read."""
    try:
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        sources = []
        for index in range(leaves.size()):
            leaf = leaves.apply(index)
            if str(leaf.getClass().getSimpleName()) != "StreamingRelationV2":
                continue
            if str(leaf.sourceName()).lower() == "kafka":
                sources.append(KafkaSource(dict(leaf.extraOptions().asCaseSensitiveMap())))
        return sources
    except Exception as error:  # an unfamiliar form of plan: nothing is known
        logger.warning("could not read the Kafka sources of a plan: %s", type(error).__name__)
        return []


def ids_of(jvm: Any, options: Mapping[str, str], topics: Sequence[str]) -> dict[str, str]:
    """Return the topic IDs that the brokers returned in time."""
    ids = {}
    until = time.monotonic() + ANSWER_S
    try:
        with _admin(jvm, options) as admin:
            names = jvm.java.util.ArrayList()
            for topic in topics:
                names.add(topic)
            answers = admin.describeTopics(names).topicNameValues()
            for topic in topics:
                left_ms = int(max(1.0, (until - time.monotonic()) * 1000))
                topic_id = _topic_id(jvm, answers.get(topic), left_ms)
                if topic_id is not None:
                    ids[topic] = topic_id
    except Exception as error:  # no answer: unknown
        logger.info("could not get the IDs of %s: %s", ", ".join(topics), type(error).__name__)
    return ids


def _topic_id(jvm: Any, answer: Any, limit_ms: int) -> str | None:
    try:
        unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        return java_id(str(answer.get(limit_ms, unit).topicId().toString()))
    except Exception as error:  # it does not exist, cannot be queried, or does not answer
        logger.info("could not get the ID of a topic: %s", type(error).__name__)
        return None


@contextmanager
def _admin(jvm: Any, options: Mapping[str, str]) -> Iterator[Any]:
    settings = jvm.java.util.HashMap()
    for name, value in options.items():
        settings.put(name, value)
    limit = str(int(ANSWER_S * 1000))
    settings.put("default.api.timeout.ms", limit)
    settings.put("request.timeout.ms", limit)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        yield admin
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(500))


LOOK_EVERY_S = 5.0


class TopicWatch:
    """The topics of one run, watched by a separate thread."""

    def __init__(
        self,
        sources: Sequence[KafkaSource],
        ids: Mapping[str, str],
        *,
        read: Callable[[], Sequence[str]],
        jvm: Any,
        report_ids: Callable[[dict[str, str]], None],
        warn: Callable[[str], None],
    ) -> None:
        """`ids` were seen at the start; `read` returns the topics in the checkpoint.

        `report_ids` is called with all IDs when one of them is new. The ID of a recreated topic
        counts as new only if the topic's source fails on data loss; otherwise, the query skips gaps
        and is not at risk.
        """
        self._ids = dict(ids)
        self._read = read
        self._jvm = jvm
        self._report_ids = report_ids
        self._warn = warn
        # With two sources, a topic's ID may come from the other's brokers, so each learns its own.
        self._earlier = [(source, dict(ids) if len(sources) == 1 else {}) for source in sources]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic-watch", daemon=True)

    def begin(self) -> None:
        """Start watching, if there are any topics to watch."""
        if self._earlier:
            self._thread.start()

    def end(self) -> None:
        """Stop watching; returns immediately."""
        self._over.set()

    def look(self) -> None:
        """Check the topics once; report recreated ones, and those seen for the first time."""
        before = dict(self._ids)
        read = self._read()
        for source, earlier_ids in self._earlier:
            if self._over.is_set():
                return
            current = ids_of(self._jvm, source.client, source.topics(read))
            again = changed({topic: [topic_id] for topic, topic_id in earlier_ids.items()}, current)
            earlier_ids |= current
            self._ids = current | self._ids
            if again:
                self._warn(
                    f"{names(again)} deleted and recreated while it was read: the remaining "
                    "records of the old topic were not read, and neither are records of the "
                    "new one before the query's offsets."
                )
                if source.fails_on_loss:
                    self._ids |= {topic: current[topic] for topic in again}
        if self._ids != before and not self._over.is_set():
            self._report_ids(dict(self._ids))

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception as error:  # the next check may succeed
                logger.info("could not check the topics: %s", type(error).__name__)


_accepting = threading.local()


def install(data_stream_reader: type) -> None:
    """Make streams that are loaded in an `accepting` block read past gaps."""
    load = data_stream_reader.load  # type: ignore[attr-defined]

    def over_gaps(self: Any, *args: Any, **options: Any) -> Any:
        if getattr(_accepting, "active", False):
            self.option("failOnDataLoss", "false")  # the last value set is the one that counts
            options.pop("failOnDataLoss", None)
        return load(self, *args, **options)

    data_stream_reader.load = over_gaps  # type: ignore[attr-defined]


@contextmanager
def accepting(active: bool) -> Iterator[None]:
    """Let streams that this thread loads within the block skip gaps."""
    _accepting.active = active
    try:
        yield
    finally:
        _accepting.active = False


HANGING_PRODUCER = "HEADGATE_KAFKA_BATCH_TOO_LARGE"
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
    return replace(error, error_class=HANGING_PRODUCER, root_cause=text)


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
