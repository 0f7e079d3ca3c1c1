"""Trigger types, on a real broker: nothing is missing, and what is promised holds.

Each reads half of the records, is stopped cleanly, and reads the other half from its
checkpoint. What it wrote is compared with a batch computation over the same records. All of
them share one driver, launched as supervision launches it.
"""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headgate_ground import spool
from headgate_ground.wire import EventKind, WireEvent
from queries.domain.protocol import RunState, Want
from queries.domain.triggers.async_progress import Tracking, tracking
from tests.conftest_kafka import KafkaBroker, Record
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

RECORDS = 3000
PARTITIONS = 2
SQL = """
    SELECT key, concat(upper(text), ' ', length(text)) AS value
    FROM (SELECT key, CAST(value AS STRING) AS text FROM records) r
    WHERE text NOT LIKE '%7'
"""
ASYNC = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": "500",
}

Row = tuple[str | None, str | None]  # key, value


@dataclass(frozen=True, slots=True)
class Way:
    """One way to be triggered, and what it promises after a clean stop."""

    trigger: dict[str, str]
    ends: bool = False  # by itself, once all is read
    once_each: bool = True  # no row is written twice when it was stopped cleanly
    options: tuple[tuple[str, str], ...] = ()
    mode: str = "append"


WAYS = {
    "processing time": Way({"kind": "processing_time", "interval": "500 milliseconds"}),
    "as fast as possible": Way({"kind": "processing_time", "interval": "0 seconds"}),
    "once": Way({"kind": "once"}, ends=True),
    "available now": Way({"kind": "available_now"}, ends=True),
    "continuous": Way({"kind": "continuous", "interval": "1 second"}, once_each=False),
    "real time": Way(
        {"kind": "real_time", "interval": "5 seconds"}, once_each=False, mode="update"
    ),
    "async progress": Way(
        {"kind": "processing_time", "interval": "0 seconds"},
        once_each=False,
        options=tuple(ASYNC.items()),
    ),
}


def half(number: int) -> list[tuple[str, str]]:
    """Return keyed records; the halves have nothing in common."""
    rows = range(number * RECORDS // 2, (number + 1) * RECORDS // 2)
    return [(f"key-{row % 40}", f"row-{row}") for row in rows]


def computed(records: list[Record]) -> Counter[Row]:
    """Return what a batch computation makes of the records."""
    texts = [(record.key, record.value or "") for record in records]
    return Counter(
        (key, f"{text.upper()} {len(text)}") for key, text in texts if not text.endswith("7")
    )


def query(broker: KafkaBroker, source: str, sink: str, way: Way) -> dict[str, Any]:
    servers = {"kafka.bootstrap.servers": broker.servers}
    return {
        "kind": "sql",
        "sources": [
            {
                "name": "records",
                "format": "kafka",
                "options": {**servers, "subscribe": source, "startingOffsets": "earliest"},
            }
        ],
        "sql": SQL,
        "sink": {
            "format": "kafka",
            "output_mode": way.mode,
            "options": {**servers, "topic": sink, **dict(way.options)},
        },
        "trigger": way.trigger,
    }


def written(broker: KafkaBroker, topic: str) -> int:
    return sum(after - first for first, after in broker.watermarks(topic).values())


def wait_until_written(broker: KafkaBroker, topic: str, rows: Counter[Row]) -> None:
    """Wait until a topic holds each row; what is written twice stands for no other."""

    def all_there() -> bool:
        enough = written(broker, topic) >= rows.total()
        return enough and rows.keys() <= found_in(broker, topic).keys()

    wait_for(all_there, f"{topic} holds {rows.total()} rows")


def found_in(broker: KafkaBroker, topic: str) -> Counter[Row]:
    return Counter((record.key, record.value) for record in broker.read(topic))


@pytest.mark.promise
@pytest.mark.parametrize("number", range(len(WAYS)), ids=list(WAYS))
def test_a_trigger_misses_nothing_and_doubles_nothing_that_it_promises(
    number: int, driver: DriverUnderTest, broker: KafkaBroker
) -> None:
    name = list(WAYS)[number]
    way = WAYS[name]
    source = broker.topic("in", partitions=PARTITIONS)
    sink = broker.topic("out", partitions=PARTITIONS)
    spec = query(broker, source, sink, way)

    for turn in (0, 1):
        broker.produce(source, half(turn))
        expected = computed(broker.read(source))
        run = 1000 + number * 10 + turn
        driver.start(run, spec)
        if way.ends:
            driver.wait_run(run, RunState.ENDED)
        else:
            wait_until_written(broker, sink, expected)
            driver.wait_run(run, RunState.RUNNING)
            driver.request_end(run, Want.DRAIN)
            driver.wait_run(run, RunState.ENDED)
        driver.drop(run)

    found = found_in(broker, sink)
    assert not expected - found, f"{name} lost rows"
    assert not found.keys() - expected.keys(), f"{name} wrote rows that nobody computed"
    if way.once_each:
        assert found == expected, f"{name} doubled rows"


def writes_in_the_background(driver: DriverUnderTest) -> bool:
    """Return whether the driver's JVM has Spark's thread for logs written asynchronously."""
    jvm = driver.ident().jvm_pid
    names = [name.read_text().strip() for name in Path(f"/proc/{jvm}/task").glob("*/comm")]
    return "async-log-write" in names


@pytest.mark.parametrize("stated", [None, "false"])
def test_real_time_without_state_is_asynchronous_unless_it_says_no(
    stated: str | None, driver: DriverUnderTest, broker: KafkaBroker
) -> None:
    options = () if stated is None else (("asyncProgressTrackingEnabled", stated),)
    way = replace(WAYS["real time"], options=options)
    spec = query(broker, broker.topic("in"), broker.topic("out"), way)
    expected = Tracking(0, by_default=True) if stated is None else None
    assert tracking(spec) == expected

    run = 1900 if stated is None else 1920
    driver.start(run, spec)
    driver.wait_run(run, RunState.RUNNING)
    assert writes_in_the_background(driver) == (stated is None)
    driver.request_end(run, Want.STOP)
    driver.wait_run(run, RunState.ENDED)
    driver.drop(run)


def told(driver: DriverUnderTest, run: int) -> list[WireEvent]:
    """Return the progress events of a run as the driver has spooled them."""
    lines = spool.read_from(driver.directory / "own" / spool.FOLDER, 0)
    events = [WireEvent.decode(text) for _, text in lines]
    return [event for event in events if event.kind is EventKind.PROGRESS and event.run == run]


def rows(events: list[WireEvent]) -> int:
    return sum(event.body.get("numInputRows", 0) for event in events)


def test_a_continuous_query_is_told_of_like_any_other(
    driver: DriverUnderTest, broker: KafkaBroker
) -> None:
    source = broker.topic("in", partitions=PARTITIONS)
    sink = broker.topic("out", partitions=PARTITIONS)
    spec = query(broker, source, sink, WAYS["continuous"])
    run = 1910

    driver.start(run, spec)
    status = driver.wait_run(run, RunState.RUNNING)
    assert status.first_commit_at is not None  # the first epoch is the proof
    first = wait_for(lambda: told(driver, run), "its first epoch is told")[0]
    assert first.batch == 0
    broker.produce(source, half(0))
    read = RECORDS // 2
    wait_for(lambda: rows(told(driver, run)) >= read, "epochs have told of all records")
    epochs = told(driver, run)
    driver.request_end(run, Want.DRAIN)
    status = driver.wait_run(run, RunState.ENDED)

    assert rows(epochs) == read
    assert [event.batch for event in epochs] == list(range(len(epochs)))
    assert all("derived" in event.body for event in epochs)
    ends = [event.body["sources"][0]["endOffset"] for event in epochs]
    assert sum(ends[-1][source].values()) == read
    assert status.last_batch is not None
    assert status.last_progress is not None
    assert status.last_progress["batchId"] == status.last_batch
    driver.drop(run)


def test_a_continuous_query_on_too_few_cores_never_counts_as_running(
    driver: DriverUnderTest, broker: KafkaBroker
) -> None:
    source = broker.topic("in", partitions=12)  # of 10 cores
    sink = broker.topic("out")
    broker.produce(source, half(0))
    run = 1930

    driver.start(run, query(broker, source, sink, WAYS["continuous"]))
    wait_for(lambda: written(broker, sink) or None, "those partitions that got a core are read")
    status = driver.wait_run(run, RunState.STARTING)
    assert status.started_at is not None
    assert status.first_commit_at is None
    assert told(driver, run) == []
    driver.request_end(run, Want.STOP)
    driver.wait_run(run, RunState.ENDED)
    driver.drop(run)
