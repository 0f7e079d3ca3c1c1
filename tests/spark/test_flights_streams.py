"""The demo's four definitions on a real driver and real flights: three run, one fails honestly."""

import json
import os
import sqlite3
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from examples.flights import definitions, feeder
from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import classify
from queries.domain.protocol import RunState, Want
from tests.spark.driver_under_test import DriverUnderTest, wait_for

pytestmark = pytest.mark.spark

HOURS = 40  # a day and a half of flights: windows of the first day are final


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    demo = tmp_path_factory.mktemp("demo")
    feeder.prepare(demo / "flights")
    (demo / "out").mkdir()
    writer = feeder.Feeder(demo / "flights", day_seconds=86_400)  # as in 2013
    begun = time.time() - HOURS
    for second, (hour, flights) in enumerate(islice(feeder.hours(), HOURS)):
        writer.publish(hour, flights, now=hour + timedelta(hours=1))
        # Spark reads the oldest first, and has no order for files of one millisecond.
        os.utime(writer.files[-1], (begun + second, begun + second))
    return demo


def spec(demo: Path, name: str) -> dict[str, Any]:
    return next(query.spec for query in definitions.queries(demo) if query.name == name)


def written(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that a JSON sink has committed."""
    files = sorted(folder.glob("part-*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_delays_are_committed_window_by_window(driver: DriverUnderTest, demo: Path) -> None:
    # The same query into JSON files: the sink's format is not what is looked at here.
    sink = {"format": "json", "options": {"path": str(demo / "out" / "windows")}}
    driver.start(3010, {**spec(demo, "flight-delays"), "sink": sink})
    rows = wait_for(lambda: written(demo / "out" / "windows"), "a final window")
    driver.request_end(3010, Want.STOP)
    driver.wait_run(3010, RunState.ENDED)
    first = [row for row in rows if row["minute"].startswith("2013-01-01T10:")]
    counted: Counter[tuple[str, str]] = Counter()
    for row in first:
        counted[row["origin"], row["carrier"]] += row["flights"]
    assert counted == {("EWR", "UA"): 2, ("JFK", "AA"): 1, ("JFK", "B6"): 2, ("LGA", "UA"): 1}


def test_delays_go_to_parquet_too(driver: DriverUnderTest, demo: Path) -> None:
    driver.start(3020, spec(demo, "flight-delays"))
    wait_for(
        lambda: list((demo / "out" / "flight-delays").glob("part-*.parquet")), "a parquet file"
    )
    driver.request_end(3020, Want.STOP)
    assert driver.wait_run(3020, RunState.ENDED).error is None


def test_long_delays_carry_the_airlines_name(driver: DriverUnderTest, demo: Path) -> None:
    driver.start(3030, spec(demo, "long-delays"))
    rows = wait_for(lambda: written(demo / "out" / "long-delays"), "a long delay")
    driver.request_end(3030, Want.STOP)
    driver.wait_run(3030, RunState.ENDED)
    assert min(row["arr_delay"] for row in rows) >= 60
    assert {"ExpressJet Airlines Inc.", "Envoy Air"} <= {row["airline"] for row in rows}


def test_hours_are_upserted_into_a_table(driver: DriverUnderTest, demo: Path) -> None:
    query = spec(demo, "flights-by-hour")
    driver.start(3040, query)
    run = driver.wait_run(3040, RunState.RUNNING)
    assert run.first_commit_at
    driver.request_end(3040, Want.DRAIN)
    driver.wait_run(3040, RunState.ENDED)
    with closing(sqlite3.connect(query["params"]["database"])) as connection:
        table = dict(
            connection.execute("SELECT hour, flights FROM flights_by_hour ORDER BY hour").fetchall()
        )
    for hour, flights in islice(feeder.hours(), 20):
        assert table[f"{hour:%Y-%m-%d %H:%M}"] == len(flights)


def test_recovery_meets_the_flights_that_left_on_time(driver: DriverUnderTest, demo: Path) -> None:
    driver.start(3050, spec(demo, "delay-recovery"))
    run = driver.wait_run(3050, RunState.FAILED)
    assert run.error is not None
    assert run.error.error_class == "DIVIDE_BY_ZERO"
    assert run.failed_batch == 0
    judged = classify(
        error_class=run.error.error_class,
        type_name=run.error.type_name,
        root_cause=run.error.root_cause,
        message=run.error.message,
    )
    assert judged.category is Category.DATA
    assert judged.title == "DIVIDE_BY_ZERO: Division by zero."
    assert "try_divide" in judged.way_out
