"""The demo's queries that ask a store for each flight: real broker, store and driver."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.flights import kafka_definitions, topics
from queries.domain.async_calls import named
from queries.domain.protocol import RunState, Want
from tests.conftest_kafka import KafkaBroker
from tests.kafka.test_every_trigger import told, written
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FLIGHTS = 600
TAILS = ("N14228", "N24211", "N619AA", None)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the planes' store; return the folder that says where it is."""
    folder = tmp_path_factory.mktemp("demo")
    process = subprocess.Popen([sys.executable, "-m", "examples.flights.planes", str(folder)])
    try:
        wait_for((folder / "planes.json").exists, "the store says where it is")
        yield folder
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def spec(broker: KafkaBroker, demo: Path, name: str, source: str, sink: str) -> dict[str, Any]:
    """Return the demo's definition, from and to topics of the test's own."""
    found = {one.name: one.spec for one in kafka_definitions.async_queries(broker.servers, demo)}[
        name
    ]
    found["params"]["topic"] = source
    found["sink"]["options"]["topic"] = sink
    return found


def feed(broker: KafkaBroker, source: str) -> None:
    flights = ((TAILS[one % len(TAILS)], json.dumps({"flight": one})) for one in range(FLIGHTS))
    broker.produce(source, flights)


def test_each_flight_is_given_its_plane_and_the_page_its_figures(
    driver: DriverUnderTest, broker: KafkaBroker, demo: Path
) -> None:
    source, sink = broker.topic("in", partitions=2), broker.topic("out")
    driver.start(3010, spec(broker, demo, topics.TAIL_NUMBERS, source, sink))
    driver.wait_run(3010, RunState.RUNNING)
    feed(broker, source)
    wait_for(lambda: written(broker, sink) >= FLIGHTS, "all flights are written")
    events = wait_for(
        lambda: [one for one in told(driver, 3010) if one.body.get("numInputRows")], "its progress"
    )
    driver.request_end(3010, Want.STOP)
    driver.wait_run(3010, RunState.ENDED)
    records = broker.read(sink)
    values = [json.loads(record.value or "") for record in records]
    assert sorted(value["flight"] for value in values) == list(range(FLIGHTS))
    assert all(
        ("manufacturer" in value) == (record.key is not None)
        for record, value in zip(records, values, strict=True)
    )
    assert named(events[0].body) == ["look_up"]
    figures = events[0].body["observedMetrics"]["headgate_async:look_up"]
    assert figures["calls"] > 0
    assert figures["latency_ms"][0] >= 2.0
    driver.drop(3010)


def test_only_a_planes_first_flight_of_a_window_passes(
    driver: DriverUnderTest, broker: KafkaBroker, demo: Path
) -> None:
    source, sink = broker.topic("in", partitions=2), broker.topic("out")
    driver.start(3020, spec(broker, demo, topics.FIRST_FLIGHTS, source, sink))
    driver.wait_run(3020, RunState.RUNNING)
    feed(broker, source)
    wait_for(
        lambda: sum(one.body.get("numInputRows", 0) for one in told(driver, 3020)) >= FLIGHTS,
        "all flights are read",
    )
    driver.request_end(3020, Want.STOP)
    driver.wait_run(3020, RunState.ENDED)
    first = {record.key: json.loads(record.value or "")["flight"] for record in broker.read(sink)}
    # Ten minutes may end in the middle of the test: a plane has one window, or two.
    assert set(first) == {tail for tail in TAILS if tail}
    assert len(broker.read(sink)) <= 2 * len(first)
    driver.drop(3020)
