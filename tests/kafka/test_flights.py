"""The Kafka demo on a real broker: its feeder, its topics, its queries."""

import json
import os
import signal
import subprocess
import sys
import threading
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from django.core.management import CommandError, call_command

from examples.flights import topics
from examples.flights.feeder import hours
from examples.flights.kafka_feeder import STATE, KafkaFeeder
from queries.models.applications import Application
from queries.models.definitions import Query
from tests import pieces
from tests.conftest_kafka import KafkaBroker, Record
from tests.spark.driver_under_test import wait_for

REPOSITORY = Path(__file__).resolve().parents[2]

QUERIES = (topics.CLEAN, topics.DELAYS, topics.REAL_TIME, topics.CONTINUOUS)

pytestmark = pytest.mark.kafka


class Feeding:
    """A feeder in a thread of its own."""

    def __init__(self, broker: KafkaBroker, topic: str, state: Path, rate: float) -> None:
        self.broker, self.topic = broker, topic
        self.stopped = threading.Event()
        feeder = KafkaFeeder(broker.servers, state, topic=topic, rate=rate)
        self.thread = threading.Thread(target=feeder.run, args=(self.stopped,), daemon=True)
        self.thread.start()

    def sent(self) -> int:
        """Return how many records the topic holds."""
        return sum(end for _, end in self.broker.watermarks(self.topic).values())

    def until(self, count: int) -> None:
        """Wait until the topic holds so many."""
        wait_for(lambda: self.sent() >= count, f"{count} records")

    def end(self) -> None:
        """Stop it, and wait for its end."""
        self.stopped.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / STATE


def flights(records: list[Record]) -> list[dict[str, Any]]:
    return [json.loads(record.value or "") for record in records]


def test_flights_come_in_order_under_their_tail_number(broker: KafkaBroker, state: Path) -> None:
    topic = broker.topic("flights", partitions=5)
    feeding = Feeding(broker, topic, state, rate=5000)
    feeding.until(6000)
    feeding.end()
    records = broker.read(topic)
    assert len({record.key for record in records}) > 1000
    for record, flight in zip(records, flights(records), strict=True):
        assert record.key == flight["tailnum"]
    for number in range(5):
        times = [
            flight["scheduled"]
            for record, flight in zip(records, flights(records), strict=True)
            if record.partition == number
        ]
        assert len(times) > 100
        assert times == sorted(times)
    by_key: dict[str | None, set[int]] = {}
    for record in records:
        if record.key is not None:
            by_key.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())


def test_a_feeder_that_is_started_again_goes_on_and_leaves_nothing_out(
    broker: KafkaBroker, state: Path
) -> None:
    topic = broker.topic("flights")
    first = Feeding(broker, topic, state, rate=2000)
    wait_for(state.exists, "a kept place")
    first.until(2500)
    first.end()
    second = Feeding(broker, topic, state, rate=2000)
    in_order = chain.from_iterable(found for _, found in hours())
    expected = {json.dumps(one) for one in islice(in_order, first.sent() + 1000)}

    def all_there() -> bool:
        return expected <= {json.dumps(flight) for flight in flights(broker.read(topic))}

    # It may send again what came after the kept place, so counting tells nothing.
    wait_for(all_there, "every flight up to there")
    second.end()


def test_a_feeder_outlives_an_outage_with_a_bounded_number_in_hand(
    broker: KafkaBroker, state: Path
) -> None:
    topic = broker.topic("flights")
    feeding = Feeding(broker, topic, state, rate=3000)
    feeding.until(1000)
    broker.stop()
    assert feeding.thread.is_alive()
    broker.start()
    feeding.until(feeding.sent() + 1000)
    feeding.end()
    seen = [json.dumps(flight) for flight in flights(broker.read(topic))]
    assert len(set(seen)) == len(seen)  # once each: the broker knows what is sent again


def test_as_a_program_it_makes_the_topics_and_leaves_when_asked(
    one_broker: KafkaBroker, tmp_path: Path
) -> None:
    one_broker.stop()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "examples.flights.kafka_feeder", one_broker.servers),
            *("--directory", str(tmp_path), "--rate", "1000"),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert "waiting for the broker" in process.stderr.readline()
        one_broker.start()
        wait_for((tmp_path / STATE).exists, "the first flights are in the topic")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert set(one_broker.watermarks(topics.FLIGHTS)) == set(range(topics.PARTITIONS))


@pytest.mark.django_db
def test_the_demo_is_made_once_over_topics_that_keep_little(
    broker: KafkaBroker, tmp_path: Path, settings: Any
) -> None:
    settings.HEADGATE_HOME = tmp_path
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.CONNECTORS_DIR = pieces.kafka_connector().parent

    def install() -> str:
        out = StringIO()
        call_command("install_demo", kafka=broker.servers, stdout=out)
        return out.getvalue()

    said = install()
    desired = dict(Query.objects.filter(name__in=QUERIES).values_list("name", "desired"))
    assert desired == {
        topics.CLEAN: "RUNNING",
        topics.DELAYS: "RUNNING",
        topics.REAL_TIME: "RUNNING",
        topics.CONTINUOUS: "STOPPED",
    }
    assert all(name in said for name in desired)
    assert Application.objects.get(name="flights-kafka").queries.count() == 2
    for name in (topics.REAL_TIME, topics.CONTINUOUS):
        owner = Application.objects.get(name=name)
        assert owner.revisions.get().spec["master"] == "local[6]"
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics.ALL]
    admin = broker.admin()
    for done in admin.describe_configs(resources).values():
        config = done.result(30)
        assert config["retention.ms"].value == "3600000"
        assert int(config["retention.bytes"].value) * topics.PARTITIONS < 300_000_000

    assert install() == ""


@pytest.mark.django_db
def test_a_demo_set_up_later_adds_to_the_first_and_names_what_is_missing(
    broker: KafkaBroker, tmp_path: Path, settings: Any
) -> None:
    settings.HEADGATE_HOME = tmp_path
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.CONNECTORS_DIR = tmp_path / "none"
    call_command("install_demo", stdout=StringIO())
    assert not Query.objects.filter(name=topics.CLEAN).exists()
    with pytest.raises(CommandError, match="make kafka"):
        call_command("install_demo", kafka=broker.servers, stdout=StringIO())
    settings.CONNECTORS_DIR = pieces.kafka_connector().parent
    call_command("install_demo", kafka=broker.servers, stdout=StringIO())
    assert Query.objects.filter(name__in=QUERIES).count() == 4
