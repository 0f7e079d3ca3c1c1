"""Which queries of a driver share a Kafka producer, and what a time-out of it is."""

from typing import Any

import pytest

from queries.domain.protocol import RunError
from queries.runtime import kafka
from queries.runtime.kafka import KafkaSource, Producers

EXPIRED = RunError(
    "TASK_WRITE_FAILED",
    "org.apache.kafka.common.errors.TimeoutException",
    "Expiring 9 record(s) for narrow-0:120001 ms has passed since batch creation",
    "org.apache.spark.SparkException: Job aborted",
)


def _sink(**options: str) -> dict[str, Any]:
    given = {"kafka.bootstrap.servers": "one:9092", **options}
    return {"sink": {"format": "kafka", "options": given}}


def test_queries_share_a_producer_where_their_kafka_options_are_the_same() -> None:
    shared = Producers()
    assert shared.join(1, "one", _sink(topic="a"))
    assert shared.join(2, "two", _sink(topic="b", includeHeaders="true"))
    assert shared.join(3, "apart", _sink(topic="a", **{"kafka.client.id": "apart"}))
    assert not shared.join(4, "noop", {"sink": {"format": "noop"}})
    assert not shared.join(5, "by-code", {"sink": None})
    assert shared.sharing(1) == {2: "two"}
    assert shared.sharing(3) == {}
    assert shared.sharing(4) == {}
    shared.leave(2)
    shared.leave(4)
    assert shared.sharing(1) == {}


def test_a_producer_that_split_in_vain_is_named_with_who_waited() -> None:
    found = kafka.named(EXPIRED, split=366.0, others=["b", "a"])
    assert found.error_class == kafka.HANGING_PRODUCER
    assert found.root_cause.startswith(EXPIRED.root_cause)
    assert "MESSAGE_TOO_LARGE" in found.root_cause
    assert "366 times" in found.root_cause
    assert found.root_cause.endswith("waited for it: a, b.")


@pytest.mark.parametrize(
    ("error", "split"),
    [
        (EXPIRED, 0.0),  # a broker that does not answer
        (RunError("DIVIDE_BY_ZERO", "", "Division by zero", "Division by zero"), 5.0),
    ],
)
def test_any_other_failure_stays_what_it_is(error: RunError, split: float) -> None:
    assert kafka.named(error, split=split, others=["a"]) is error


def test_a_planned_source_tells_its_topics_its_client_and_its_strictness() -> None:
    named = KafkaSource(
        {"kafka.sasl.mechanism": "PLAIN", "Subscribe": "a, b", "failondataloss": "FALSE"}
    )
    assert named.topics(["c"]) == ["a", "b"]
    assert named.client == {"sasl.mechanism": "PLAIN"}
    assert not named.fails_on_loss
    assert KafkaSource({"subscribePattern": "f.*"}).topics(["flights"]) == ["flights"]
    assert KafkaSource({"assign": '{"b":[0]}'}).topics(["a", "b"]) == ["b"]
    assert KafkaSource({}).fails_on_loss
