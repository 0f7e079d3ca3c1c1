"""A real Kafka broker of the tests' own: free ports, its own folder, one for the session.

Topics get names that no other test has. A test that stops the broker finds it running again
in the next one.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from installation.machine import trial_servers
from tests import pieces

ANSWERS_WITHIN_S = 60.0
MOST_UNDER_WAY = 50_000  # of librdkafka's queue.buffering.max.messages, 100,000


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it lies in a topic."""

    partition: int
    offset: int
    key: str | None
    value: str | None
    timestamp: int  # milliseconds since 1970


class KafkaBroker:
    """A broker that a test may write to, read whole, stop, kill and start again."""

    def __init__(self, folder: Path) -> None:
        self.broker = trial_servers.Broker(
            folder,
            jars=pieces.kafka_jars(),
            usual_port=None,
            # Retention is looked at every second: a test waits for what it deletes.
            settings={"log.retention.check.interval.ms": "1000"},
        )
        self.user = trial_servers.USER

    @property
    def servers(self) -> str:
        """The listener without a password: `kafka.bootstrap.servers`."""
        return self.broker.servers

    @property
    def sasl_servers(self) -> str:
        """The listener that wants `user` and `password` by SASL/PLAIN."""
        return self.broker.sasl_servers

    @property
    def password(self) -> str:
        """The password of `user`."""
        return self.broker.address().password

    def jaas(self, *, password: str | None = None) -> str:
        """Return the value of `kafka.sasl.jaas.config`."""
        return self.broker.jaas(password=password)

    def start(self) -> None:
        """Start it where it does not run, and wait until it answers."""
        self.broker.start(pieces.java().home, limit_s=ANSWERS_WITHIN_S)

    def stop(self) -> None:
        """End it in order; its records stay."""
        self.broker.stop()

    def kill(self) -> None:
        """SIGKILL it; its records stay."""
        self.broker.kill()

    def admin(self) -> AdminClient:
        """Return a client that creates, alters and deletes."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def topic(self, name: str = "topic", *, partitions: int = 1, **config: str) -> str:
        """Create a topic and return its name, which begins with `name`.

        `config` are the topic's settings with `_` for `.`: `retention_ms="1000"`.
        """
        unique = f"{name}-{uuid4().hex[:8]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self._create(unique, partitions, settings)
        return unique

    def recreate(self, topic: str, *, partitions: int = 1) -> None:
        """Delete a topic and create another of the same name."""
        self.delete_topic(topic)
        admin = self.admin()
        limit = time.monotonic() + ANSWERS_WITHIN_S
        while self._partitions(admin, topic):
            assert time.monotonic() < limit, f"{topic} was not deleted"
        self._create(topic, partitions, {})

    def _create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, config=settings)
        admin = self.admin()
        admin.create_topics([new])[topic].result(ANSWERS_WITHIN_S)
        self._await_partitions(admin, topic, partitions)

    def _await_partitions(self, admin: AdminClient, topic: str, total: int) -> None:
        """Wait until the broker names them all: it answers before it does."""
        limit = time.monotonic() + ANSWERS_WITHIN_S
        while len(self._partitions(admin, topic)) < total:
            assert time.monotonic() < limit, f"{topic} has no {total} partitions"

    def produce(
        self,
        topic: str,
        records: Iterable[tuple[str | None, str]],
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Write (key, value) pairs, wait until all are acknowledged, and return how many."""
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "log_level": 0,
                "linger.ms": 5,
                "enable.idempotence": True,
            }
        )
        failed: list[str] = []
        count = 0
        more: dict[str, Any] = {"headers": list(headers.items())} if headers else {}
        if partition is not None:
            more["partition"] = partition
        if timestamp is not None:
            more["timestamp"] = timestamp
        for key, value in records:
            if len(producer) >= MOST_UNDER_WAY:  # the client's own queue refuses what is above
                assert producer.flush(ANSWERS_WITHIN_S) == 0, "not all records were acknowledged"
            producer.produce(
                topic,
                value.encode(),
                key=None if key is None else key.encode(),
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                **more,
            )
            producer.poll(0)
            count += 1
        assert producer.flush(ANSWERS_WITHIN_S) == 0, "not all records were acknowledged"
        assert not failed, failed[0]
        return count

    def watermarks(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return (earliest, next) offset by partition."""
        limit = time.monotonic() + ANSWERS_WITHIN_S
        with self._consumer() as consumer:
            while True:
                try:
                    return {
                        partition: consumer.get_watermark_offsets(
                            TopicPartition(topic, partition), timeout=ANSWERS_WITHIN_S
                        )
                        for partition in self._partitions(self.admin(), topic)
                    }
                except KafkaException:  # just started: it does not lead its partitions yet
                    if time.monotonic() > limit:
                        raise

    def read(self, topic: str) -> list[Record]:
        """Return all records that the topic holds now, by partition and offset.

        Control records of transactions take offsets and are not among them.
        """
        found: list[Record] = []
        with self._consumer() as consumer:
            ends = {
                partition: end
                for partition, (begin, end) in self.watermarks(topic).items()
                if end > begin
            }
            consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
            limit = time.monotonic() + ANSWERS_WITHIN_S
            while ends:
                assert time.monotonic() < limit, f"{topic} was not read to its end"
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    found.append(_record(message))
                for place in consumer.position(
                    [TopicPartition(topic, partition) for partition in ends]
                ):
                    if place.offset >= ends[place.partition]:
                        del ends[place.partition]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete each partition's records below an offset, as retention would."""
        wanted = [TopicPartition(topic, number, offset) for number, offset in before.items()]
        admin = self.admin()  # kept: a client that is collected takes its answers with it
        for done in admin.delete_records(wanted).values():
            done.result(ANSWERS_WITHIN_S)

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have more partitions."""
        wanted = [NewPartitions(topic, total)]
        admin = self.admin()
        for done in admin.create_partitions(wanted).values():
            done.result(ANSWERS_WITHIN_S)
        self._await_partitions(admin, topic, total)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(ANSWERS_WITHIN_S)

    def groups(self) -> set[str]:
        """Return the names of the consumer groups that the broker knows."""
        admin = self.admin()
        listing = admin.list_consumer_groups(request_timeout=10).result(ANSWERS_WITHIN_S)
        return {group.group_id for group in listing.valid}

    def committed(self, group: str) -> list[ConsumerGroupTopicPartitions]:
        """Return what a consumer group has committed."""
        asked = [ConsumerGroupTopicPartitions(group)]
        admin = self.admin()
        answers = admin.list_consumer_group_offsets(asked)
        return [answer.result(ANSWERS_WITHIN_S) for answer in answers.values()]

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "log_level": 0,
                "group.id": "tests-that-commit-nothing",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": False,
            }
        )

    def _partitions(self, admin: AdminClient, topic: str) -> list[int]:
        found = admin.list_topics(topic, timeout=ANSWERS_WITHIN_S).topics[topic]
        return sorted(found.partitions) if found.error is None else []


def _record(message: object) -> Record:
    from confluent_kafka import Message

    assert isinstance(message, Message)
    key, value = message.key(), message.value()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Record(partition, offset, _text(key), _text(value), message.timestamp()[1])


def _text(raw: object) -> str | None:
    return raw.decode() if isinstance(raw, bytes) else None


@pytest.fixture(scope="session")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Return the session's broker, whatever state a test left it in."""
    server = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def broker(one_broker: KafkaBroker) -> KafkaBroker:
    """Return the session's broker, running."""
    one_broker.start()
    return one_broker
