"""A driver on another Spark with the connector of a table format, and queries for it."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from examples.flights import feeder
from queries.domain.manifests.sets import read_text, with_values
from queries.domain.protocol import RunState, RunStatus
from queries.domain.sparks import Spark
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, wait_for
from tests.spark.tables.reading import CONF

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "flights"
_HOURS = 12  # of flights


class Lake:
    """One driver that several tests share; its allowed path is `data`."""

    def __init__(self, driver: DriverUnderTest) -> None:
        self.driver = driver
        self.data = driver.home / "data"
        self._last = 0

    def start(self, spec: dict[str, Any]) -> int:
        """Start a query, and return the number of its run."""
        self._last += 10
        self.driver.start(self._last, {"trigger": {"kind": "available_now"}, **spec})
        return self._last

    def again(self, run: int) -> int:
        """Start the next run of an ended run's query, and return its number."""
        entry = self.driver.entries.pop(run)
        self.driver.start(run + 1, entry.spec)
        return run + 1

    def completed(self, run: int) -> RunStatus:
        """Wait until a query has read all there was, and return its status."""
        found = self.driver.wait_run(run, RunState.ENDED, RunState.FAILED)
        assert found.state is RunState.ENDED, found.error
        return found

    def failed(self, run: int) -> str:
        """Wait until a query has ended, and return why it has failed; "" if it has not."""
        found = self.driver.wait_run(run, RunState.FAILED, RunState.ENDED)
        return found.error.root_cause if found.error is not None else ""

    def running(self, run: int) -> None:
        """Wait until a query that goes on has committed or waits for data."""
        self.driver.wait_run(run, RunState.RUNNING)

    def batches(self, run: int, count: int) -> None:
        """Wait for the first batches of a query that goes on."""
        wait_for(
            lambda: (seen := self.driver.run(run)) and (seen.last_batch or 0) >= count, "it runs"
        )


@contextmanager
def lake(
    home: Path,
    connector: str,
    version: Spark,
    conf: Mapping[str, str],
    *,
    bucket: str = "",
    epoch: int = 1,
    **more: Any,
) -> Iterator[Lake]:
    """Yield a lake whose driver ends with it; skip where a connector or the Spark is missing.

    With a bucket, it is an allowed path as well. `more` is for the driver's spec.
    """
    connectors = (connector, "s3") if bucket else (connector,)
    for each in connectors:
        if missing := pieces.missing_connector(each, version):
            pytest.skip(missing)
    one = Lake(DriverUnderTest(home, epoch=epoch))
    one.data.mkdir(exist_ok=True)
    one.driver.launch(
        spark=pieces.spark_folder(version),
        jars=tuple(jar for each in connectors for jar in pieces.connector_jars(each, version)),
        conf={**one.driver.spec.conf, **CONF[connector], **conf},
        data_roots=(f"file://{one.data}", *([bucket] if bucket else [])),
        **more,
    )
    try:
        one.driver.ready()
        yield one
    finally:
        one.driver.end()


def sql(
    source: dict[str, Any], sink: dict[str, Any], text: str = "", **more: Any
) -> dict[str, Any]:
    """Return a query over one source named `read`."""
    return {
        "kind": "sql",
        "sources": [{"name": "read", **source}],
        "sql": text or "SELECT * FROM read",
        "sink": sink,
        **more,
    }


def of_files(folder: Path) -> dict[str, Any]:
    """Return a source of JSON files with an id and a name each."""
    return {
        "format": "json",
        "options": {"path": str(folder)},
        "schema": "id BIGINT, name STRING",
    }


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return what a query has written as JSON files."""
    files = [path for path in folder.rglob("part-*.json") if "_spark_metadata" not in path.parts]
    found = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return sorted(found, key=lambda row: row["id"])


def manifests(name: str, demo: Path) -> dict[str, dict[str, Any]]:
    """Return name -> spec of the objects in one of the demo's manifest files."""
    text = (_EXAMPLES / f"{name}.yaml").read_text()
    found = [with_values(raw, {"demo": str(demo)}) for raw in read_text(text)]
    return {one["metadata"]["name"]: one["spec"] for one in found}


def flights_into(one: Lake, name: str) -> None:
    """Run the queries of a manifest file on some hours of flights, and compare with a batch.

    The third query reads what the second has written into its table.
    """
    flights = one.data / "flights"
    feeder.prepare(flights)
    writer = feeder.Feeder(flights, day_seconds=86_400)  # as in 2013
    for hour, departures in islice(feeder.hours(), _HOURS):
        writer.publish(hour, departures, now=hour + timedelta(hours=1))
    specs = manifests(name, one.data)
    first, second = (specs[f"{done}-{name}"] for done in ("flights-to", "delays-in"))
    for spec in (first, second):
        one.completed(one.start({**spec, "trigger": {"kind": "available_now"}}))
    out = one.data / f"read-{name}"
    table = {key: second["sink"][key] for key in ("format", "options")}
    files = {"format": "json", "options": {"path": str(out)}}
    one.completed(one.start(sql(table, files, "SELECT *, 0 AS id FROM read")))
    written = [json.loads(line) for file in writer.files for line in file.read_text().splitlines()]
    expected = Counter((row["scheduled"][:16], row["origin"], row["carrier"]) for row in written)
    with (flights / feeder.AIRLINES / "airlines.csv").open() as text:
        airlines = {row["carrier"]: row["name"] for row in csv.DictReader(text)}
    counted = {
        (row["minute"][:16], row["origin"], row["airline"]): row["flights"] for row in rows_of(out)
    }
    last = max(minute for minute, _, _ in counted)  # later ones are not final
    assert last > min(minute for minute, _, _ in expected)
    assert counted == {
        (minute, origin, airlines[carrier]): count
        for (minute, origin, carrier), count in expected.items()
        if minute <= last
    }
