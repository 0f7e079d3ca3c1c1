"""Check, just before a query starts, that its Kafka topics are those that its checkpoint has read.

This uses Kafka's own client, which the connector includes, and the source's own options: any topic
that Spark can read can be queried here, including those of sources in users' functions. If the
brokers do not respond, the start continues, and the control plane checks the brokers later.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from queries.domain.kafka.topic_ids import changed, java_id, names
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
    frame: Any, *, remembered: Mapping[str, Sequence[str]], read: Sequence[str], jvm: Any
) -> TopicIds:
    """Return the topic IDs for a streaming DataFrame that is about to start.

    `remembered` are the topic IDs that the checkpoint's offsets belong to; `read` are the topics
    that it has offsets for. Raises `StepFailed` if one of these topics was deleted and recreated
    and its source fails on data loss.
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
        new = [topic for topic in changed(remembered, current) if topic in read]
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
