"""A query signs in to Kafka by a secret that it names; the secret stands in no file of ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import classify
from queries.domain.protocol import RunState
from queries.domain.states import Policy
from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def driver(tmp_path: Path, broker: KafkaBroker, java_home: str) -> Iterator[DriverUnderTest]:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "kafka-jaas").write_text(broker.jaas())
    (secrets / "wrong-jaas").write_text(broker.jaas(password="not-the-password"))
    one = DriverUnderTest(tmp_path)
    jars = sorted(pieces.kafka_connector().glob("*.jar"))
    one.launch(secrets_dir=str(secrets), jars=tuple(str(jar) for jar in jars), memory="1g")
    yield one
    one.end()


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
    driver: DriverUnderTest, broker: KafkaBroker, tmp_path: Path
) -> None:
    topic, out = broker.topic("in", partitions=2), broker.topic("out")
    broker.produce(topic, ((f"k{n}", str(n)) for n in range(50)))

    driver.start(11, _copy(broker, topic, out, "kafka-jaas"))
    driver.wait_run(11, RunState.RUNNING)
    wait_for(lambda: broker.watermarks(out)[0][1] >= 50, "all is copied")
    assert sorted(int(one.value or "") for one in broker.read(out)) == list(range(50))

    driver.start(21, _copy(broker, topic, out, "wrong-jaas"))
    failed = driver.wait_run(21, RunState.FAILED)
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
    assert driver.run(11) is not None  # its neighbour streams on

    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        if file.parent.name != "secrets":
            held = file.read_bytes()
            assert broker.password.encode() not in held, file
            assert b"not-the-password" not in held, file
