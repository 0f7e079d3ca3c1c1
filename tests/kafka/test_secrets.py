"""A query signs in to Kafka by a secret that it names; the secret stands in no file of ours."""

from contextlib import suppress
from typing import Any

import pytest

from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import classify
from queries.domain.protocol import RunState
from queries.domain.states import Policy
from tests.conftest_kafka import KafkaBroker
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def _copy(broker: KafkaBroker, topic: str, out: str, secret: str) -> dict[str, Any]:
    signed_in = {
        "kafka.bootstrap.servers": broker.sasl_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"file:{secret}",
    }
    return {
        "kind": "sql",
        "sources": [
            {
                "name": "records",
                "format": "kafka",
                "options": {**signed_in, "subscribe": topic, "startingOffsets": "earliest"},
            }
        ],
        "sql": "SELECT key, value FROM records",
        "sink": {"format": "kafka", "options": {**signed_in, "topic": out}},
        "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
    }


def test_a_named_secret_signs_in_and_a_wrong_one_fails_with_what_to_do(
    driver: DriverUnderTest, broker: KafkaBroker
) -> None:
    secrets = driver.home / "secrets"
    (secrets / "kafka-jaas").write_text(broker.jaas())
    (secrets / "wrong-jaas").write_text(broker.jaas(password="not-the-password"))
    topic, out = broker.topic("in", partitions=2), broker.topic("out")
    broker.produce(topic, ((f"k{n}", str(n)) for n in range(50)))

    driver.start(9011, _copy(broker, topic, out, "kafka-jaas"))
    driver.wait_run(9011, RunState.RUNNING)
    wait_for(lambda: broker.watermarks(out)[0][1] >= 50, "all is copied")
    assert sorted(int(one.value or "") for one in broker.read(out)) == list(range(50))

    driver.start(9021, _copy(broker, topic, out, "wrong-jaas"))
    failed = driver.wait_run(9021, RunState.FAILED)
    assert failed.error is not None
    error = failed.error
    found = classify(
        error_class=error.error_class,
        type_name=error.type_name,
        root_cause=error.root_cause,
        message=error.message,
    )
    assert found.category is Category.CONFIGURATION
    assert found.policy is Policy.FATAL
    assert "password" in found.way_out
    assert driver.run(9011) is not None  # its neighbour streams on

    for file in (path for path in driver.home.rglob("*") if path.is_file()):
        if file.parent.name == "secrets":
            continue
        with suppress(FileNotFoundError):  # the JVM tidies up after other stories
            held = file.read_bytes()
            assert broker.password.encode() not in held, file
            assert b"not-the-password" not in held, file
