"""What is asked of a broker, and what is left behind there: nothing."""

import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from queries.brokers.options import TopicSelection, client_options
from queries.brokers.reader import At, BrokerLook, BrokerReader, PartitionEnds, Unreachable
from queries.domain.kafka.retention import RECORD_OVERHEAD_BYTES, Retention
from tests.conftest_kafka import KafkaBroker

pytestmark = pytest.mark.kafka


def _from_the_first(ends: dict[At, PartitionEnds]) -> dict[At, int]:
    return {at: one.earliest for at, one in ends.items() if one.latest > one.earliest}


def _look(reader: BrokerReader, topic: str, partitions: int) -> BrokerLook:
    """Look until all partitions have a leader: a new topic, or a new broker, has none yet."""
    until = time.monotonic() + 60
    while True:
        with suppress(Unreachable):
            found = reader.look([TopicSelection(topics=(topic,))], records=_from_the_first)
            if len(found.ends) == partitions:
                return found
        assert time.monotonic() < until, f"{topic} has no leaders"


def test_a_look_tells_ends_times_and_retention_and_leaves_no_group(broker: KafkaBroker) -> None:
    topic = broker.topic("seen", partitions=2, retention_ms="3600000", retention_bytes="1000000")
    written = datetime.now(UTC) - timedelta(minutes=10)
    stamp = int(written.timestamp() * 1000)
    broker.produce(topic, [("k", f"{n:04d}") for n in range(50)], partition=0, timestamp=stamp)
    broker.delete_records(topic, {0: 20})
    reader = BrokerReader({"bootstrap.servers": broker.servers})
    try:
        look = _look(reader, topic, 2)
        assert look.ends == {(topic, 0): PartitionEnds(20, 50), (topic, 1): PartitionEnds(0, 0)}
        assert look.retention == {topic: Retention(ms=3_600_000, bytes=1_000_000)}
        record = look.records[topic, 0]
        assert record.offset == 20
        assert record.bytes == 5 + RECORD_OVERHEAD_BYTES
        assert record.at is not None
        assert abs((record.at - written).total_seconds()) < 0.01
        again = reader.look(
            [TopicSelection(pattern=f"{topic[:-1]}.")], records=lambda _: {(topic, 0): 40}
        )
        assert again.records[topic, 0].offset == 40
    finally:
        reader.close()
    assert not [group for group in broker.groups() if group.startswith("headgate")]


def test_a_record_stamped_in_microseconds_has_no_time_and_the_others_do(
    broker: KafkaBroker,
) -> None:
    topic = broker.topic("micros", partitions=2, message_timestamp_after_max_ms=str(2**63 - 1))
    written = datetime.now(UTC)
    for partition, unit in enumerate((1_000_000, 1_000)):
        stamp = int(written.timestamp() * unit)
        broker.produce(topic, [(None, '{"v":1}')], partition=partition, timestamp=stamp)
    with closing(BrokerReader({"bootstrap.servers": broker.servers})) as reader:
        look = _look(reader, topic, 2)
    assert look.ends == {(topic, 0): PartitionEnds(0, 1), (topic, 1): PartitionEnds(0, 1)}
    assert look.records[topic, 0].at is None
    at = look.records[topic, 1].at
    assert at is not None
    assert abs((at - written).total_seconds()) < 0.01


def test_an_open_transaction_is_told_to_those_who_read_committed_records(
    broker: KafkaBroker,
) -> None:
    topic = broker.topic("transactions", partitions=2)
    broker.produce(topic, [("k", "plain")] * 5, partition=0)
    producer = Producer(
        {"bootstrap.servers": broker.servers, "log_level": 0, "transactional.id": topic}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(60) == 0
    committed = {"bootstrap.servers": broker.servers, "isolation.level": "read_committed"}
    one, other = BrokerReader(committed), BrokerReader({"bootstrap.servers": broker.servers})
    try:
        assert _look(one, topic, 2).ends == {
            (topic, 0): PartitionEnds(0, 25, stable=5),
            (topic, 1): PartitionEnds(0, 0, stable=0),
        }
        assert _look(other, topic, 2).ends[topic, 0] == PartitionEnds(0, 25)
        producer.commit_transaction(60)
        until = time.monotonic() + 60
        while _look(one, topic, 2).ends[topic, 0] != PartitionEnds(0, 26, stable=26):
            assert time.monotonic() < until, "the transaction stays open"
    finally:
        one.close()
        other.close()


def test_a_topic_that_is_not_there_is_not_made_by_asking(broker: KafkaBroker) -> None:
    reader = BrokerReader({"bootstrap.servers": broker.servers})
    try:
        look = reader.look([TopicSelection(topics=("never-made",))], records=_from_the_first)
    finally:
        reader.close()
    assert (look.ends, look.retention) == ({}, {})
    assert "never-made" not in broker.admin().list_topics(timeout=10).topics


def test_assigned_partitions_are_looked_at_and_no_others(broker: KafkaBroker) -> None:
    topic = broker.topic("assigned", partitions=3)
    reader = BrokerReader({"bootstrap.servers": broker.servers})
    try:
        wanted = TopicSelection(partitions=((topic, (0, 2)),))
        assert set(reader.look([wanted], records=_from_the_first).ends) == {(topic, 0), (topic, 2)}
    finally:
        reader.close()


def test_a_password_lets_in_and_a_wrong_one_is_said(broker: KafkaBroker) -> None:
    def reader(jaas: str) -> BrokerReader:
        return BrokerReader(
            client_options(
                {
                    "bootstrap.servers": broker.sasl_servers,
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.jaas.config": jaas,
                }
            )
        )

    topic = broker.topic("closed")
    one = reader(broker.jaas())
    other = reader(broker.jaas(password="not it"))
    try:
        assert _look(one, topic, 1).ends
        with pytest.raises(Unreachable, match=r"(?i)authentication"):
            other.look([TopicSelection(topics=(topic,))], records=_from_the_first)
    finally:
        one.close()
        other.close()


def test_a_broker_that_is_gone_is_told_within_the_limit_and_found_again(
    broker: KafkaBroker,
) -> None:
    topic = broker.topic("gone")
    reader = BrokerReader({"bootstrap.servers": broker.servers})
    try:
        _look(reader, topic, 1)
        broker.stop()
        with pytest.raises(Unreachable):
            reader.look([TopicSelection(topics=(topic,))], records=_from_the_first)
        broker.start()
        assert _look(reader, topic, 1).ends
    finally:
        reader.close()


def test_a_topic_that_was_created_again_has_another_id(broker: KafkaBroker) -> None:
    topic = broker.topic("ids")
    with closing(BrokerReader({"bootstrap.servers": broker.servers})) as reader:
        before = _look(reader, topic, 1).topic_ids
        assert before.keys() == {topic}
        assert _look(reader, topic, 1).topic_ids == before
        assert (
            reader.look([TopicSelection(topics=("not-there",))], records=_from_the_first).topic_ids
            == {}
        )
        broker.recreate(topic)
        after = _look(reader, topic, 1).topic_ids
    assert after.keys() == {topic}
    assert after != before
