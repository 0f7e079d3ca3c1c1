"""Three queries with exact sources, that drivers take over from each other, and their judge."""

import io
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow.parquet

from queries.checkpoints.logs import numbers_of
from queries.domain.checkpoints.logs import read_offsets
from queries.domain.checkpoints.ownership import owners_folder
from queries.domain.failures.diagnosis import classify
from queries.domain.protocol import RunState, RunStatus
from queries.domain.states import Policy
from tests.conftest_kafka import KafkaBroker
from tests.spark.driver_under_test import LIMIT_S, DriverUnderTest, rate_query
from tests.storage.fenced_drivers import writers
from tests.storage.stores import HadoopJvm, S3Store, Store

SINKS = ("files", "upserts", "kafka")
LOGS = ("offsets", "commits")
ROWS = 5  # a second, of each source: value V is created in second V // ROWS
TRIGGER = {"kind": "processing_time", "interval": "500 milliseconds"}
_OVER = (RunState.FAILED, RunState.REFUSED, RunState.ENDED)
_EPOCHS = iter(range(1000, 1_000_000))  # of runs; each start has a later one

#: What a store shows of a log's entry, so that a replaced entry is recognized.
Stamp = tuple[int, str]


@dataclass(slots=True)
class Found:
    """What a takeover has left, compared with what the checkpoints' logs say."""

    twice: dict[str, int] = field(default_factory=dict)  # entries that were written again, by log
    returned: list[str] = field(default_factory=list)  # logs to which an old driver wrote again
    again: int = 0  # batches that the old driver had begun and the new one has committed
    missing: dict[str, int] = field(default_factory=dict)  # values, by sink
    surplus: dict[str, int] = field(default_factory=dict)  # values that are there too often
    misplaced: int = 0  # values that the database has from another batch than the log says
    elsewhere: int = 0  # of `surplus` in Kafka: not of the batches in flight
    repeated_calls: int = 0  # batches for which foreachBatch has written more than once


def code(folder: Path) -> str:
    """Return a folder with the queries' code, for `code_roots`."""
    root = folder / "code"
    root.mkdir(exist_ok=True)
    shutil.copy(Path(__file__).with_name("_in_driver.py"), root / "in_driver.py")
    return str(root)


class Streams:
    """The same numbers on their way into files, a database and a topic."""

    def __init__(self, store: Store, jvm: HadoopJvm, broker: KafkaBroker, database: str) -> None:
        """`database` is the address of a PostgreSQL database."""
        self._store, self._jvm, self._broker, self._database = store, jvm, broker, database
        self._files = jvm.files(store)
        self.checkpoints = {sink: store.place(f"checkpoint-{sink}") for sink in SINKS}
        self._output = store.place("output")
        self._table = f"values_{uuid4().hex[:8]}"
        with psycopg.connect(database) as connection:
            connection.execute(
                f"CREATE TABLE {self._table} (value bigint PRIMARY KEY, batch bigint)"
            )
            connection.execute(f"CREATE TABLE {self._table}_calls (batch bigint)")
        self._topic = broker.topic("takeovers")
        self._ends: dict[str, dict[int, int]] = {sink: {} for sink in SINKS}
        self._writers = {(sink, log): dict[int, str]() for sink in SINKS for log in LOGS}
        self._read: dict[str, list[int]] = {}  # values by parquet file
        self._surplus_before: Counter[int] = Counter()
        self._calls_before = 0
        self.restarts: list[str] = []  # why queries were started again, as supervision would

    # --- as supervision ---------------------------------------------------------------

    def start(self, driver: DriverUnderTest, only: Iterable[str] = SINKS) -> None:
        """Assign the queries to a driver, with later epochs than ever before."""
        for sink in only:
            number = SINKS.index(sink) + 1
            for run in [one.run for one in driver.entries.values() if one.query == number]:
                del driver.entries[run]
            epoch = next(_EPOCHS)
            driver.start(
                epoch,
                self._spec(sink),
                query=number,
                name=f"to-{sink}",
                epoch=epoch,
                checkpoint=self.checkpoints[sink],
            )

    def stop(self, driver: DriverUnderTest) -> None:
        """Take the queries from a driver and wait until they have ended."""
        driver.entries.clear()
        driver.assign()
        end = time.monotonic() + LIMIT_S
        while (seen := driver.sight().status) and seen.runs and time.monotonic() < end:
            time.sleep(0.1)

    def wait(self, driver: DriverUnderTest, more: int) -> None:
        """Wait until each query has committed in the driver, then this many more batches.

        A query that fails because of another driver's commit is started again, as supervision
        does; a category after which supervision would not do that is an error.
        """
        first: dict[str, int] = {}
        newest: dict[str, int] = {}
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            seen = driver.sight()
            if seen.exit is not None:
                raise AssertionError(f"the new driver has ended: {seen.exit}\n{_log(driver)}")
            for line in seen.status.runs if seen.status else ():
                if line.run not in driver.entries:
                    continue
                sink = SINKS[line.query - 1]
                if line.last_batch is not None:
                    newest[sink] = line.last_batch
                    first.setdefault(sink, line.last_batch)
                if line.state in _OVER:
                    self._again(driver, sink, line)
            if len(first) == len(SINKS) and all(newest[one] - first[one] >= more for one in SINKS):
                return
            time.sleep(0.1)
        raise AssertionError(f"not within {LIMIT_S} s: {first}, {newest}\n{_log(driver)}")

    def _again(self, driver: DriverUnderTest, sink: str, line: RunStatus) -> None:
        error = line.error
        if error is None:
            raise AssertionError(f"to-{sink} ended without an error")
        what = classify(
            error_class=error.error_class,
            type_name=error.type_name,
            root_cause=error.root_cause,
            message=error.message,
            refused=error.refused,
        )
        fatal = "" if what.policy is Policy.RETRY else f", which is {what.policy}"
        self.restarts.append(f"to-{sink}: {what.category}{fatal}: {what.title}")
        self.start(driver, only=[sink])

    def _spec(self, sink: str) -> dict[str, Any]:
        if sink == "upserts":
            params = {"database": self._database, "table": self._table, "rows": ROWS}
            function = "in_driver:upserts"
            return {"kind": "python", "function": function, "params": params, "trigger": TRIGGER}
        if sink == "files":
            return rate_query(
                sink={"format": "parquet", "options": {"path": self._output}}, trigger=TRIGGER
            )
        options = {"kafka.bootstrap.servers": self._broker.servers, "topic": self._topic}
        return rate_query(
            sql="SELECT CAST(value AS STRING) AS value FROM numbers",
            sink={"format": "kafka", "options": options},
            trigger=TRIGGER,
        )

    # --- as judge ---------------------------------------------------------------------

    def stamps(self) -> dict[str, Stamp]:
        """Return what the store shows of each entry in the logs, the file sink's among them."""
        found = {}
        places = [f"{place}/{log}" for place in self.checkpoints.values() for log in LOGS]
        for place in (*places, f"{self._output}/_spark_metadata"):
            for one in self._files.listStatus(self._jvm.path(place)):
                name = str(one.getPath().getName())
                if not name.startswith("."):
                    stamp = int(one.getModificationTime()), str(one.getOwner())
                    found[f"{place}/{name}"] = stamp
        return found

    def taken_at(self, since: float) -> float:
        """Return when a start first took one of the checkpoints after a time, in s since 1970."""
        times = []
        for place in map(owners_folder, self.checkpoints.values()):
            if isinstance(self._store, S3Store):  # S3 itself shows whole seconds
                folder = self._store.folder / place.removeprefix(f"{self._store.root}/")
                times += [path.stat().st_mtime for path in folder.iterdir()]
            else:
                listed = self._files.listStatus(self._jvm.path(place))
                times += [int(one.getModificationTime()) / 1000 for one in listed]
        return min(each for each in times if each >= since)

    def renames(self) -> bool:
        """Return whether Spark's own manager is about to rename an entry, on S3."""
        assert isinstance(self._store, S3Store)
        return any(
            name.startswith(".") and name.endswith(".tmp")
            for place in self.checkpoints.values()
            for log in LOGS
            for name in os.listdir(
                self._store.folder / place.removeprefix(f"{self._store.root}/") / log
            )
        )

    def judge(self, before: dict[str, Stamp], after: dict[str, Stamp]) -> Found:
        """Compare the sinks with the logs; the stamps are of just before and after the waking."""
        found = Found()
        replaced = [name for name, stamp in before.items() if after.get(name, stamp) != stamp]
        found.twice = dict(Counter(name.rsplit("/", 2)[-2] for name in replaced))
        in_flight: dict[str, set[int]] = {}
        bounds = {}
        for sink in SINKS:
            in_flight[sink] = self._read_logs(sink, found)
            committed = max(self._writers[sink, "commits"])
            bounds[sink] = self._ends[sink][committed]
        self._judge_sink(found, "files", Counter(self._in_files()), bounds["files"])
        rows, calls = self._in_database()
        self._judge_sink(found, "upserts", Counter(rows.keys()), bounds["upserts"])
        found.misplaced = sum(
            batch != self._batch_of("upserts", value)
            for value, batch in rows.items()
            if value < bounds["upserts"]
        )
        repeated = sum(count > 1 for count in Counter(calls).values())
        found.repeated_calls = repeated - self._calls_before
        self._calls_before = repeated
        values = Counter(int(one.value or -1) for one in self._broker.read(self._topic))
        self._judge_sink(found, "kafka", values, bounds["kafka"])
        surplus = Counter({value: count - 1 for value, count in values.items() if count > 1})
        fresh = surplus - self._surplus_before
        self._surplus_before = surplus
        found.surplus["kafka"] = fresh.total()
        found.elsewhere = sum(
            count
            for value, count in fresh.items()
            if self._batch_of("kafka", value) not in in_flight["kafka"]
        )
        return found

    def _read_logs(self, sink: str, found: Found) -> set[int]:
        """Read a query's new log entries; return the batches in flight at the last takeover."""
        place = self.checkpoints[sink]
        for log in ("commits", "offsets"):  # so that each commit's offsets are known
            known = self._writers[sink, log]
            seen = writers(self._files, self._jvm, place, log, after=max(known, default=-1) - 2)
            changed = [batch for batch in seen if known.get(batch, seen[batch]) != seen[batch]]
            if changed:
                found.returned.append(f"{log} {changed} of to-{sink} have another writer now")
            known.update(seen)
            turns = [writer for writer, _ in groupby(known[batch] for batch in sorted(known))]
            if len(turns) != len(set(turns)):
                found.returned.append(f"{log} of to-{sink}: {turns}")
        commits, offsets = self._writers[sink, "commits"], self._writers[sink, "offsets"]
        for batch in offsets:
            if batch not in self._ends[sink]:
                text = self._jvm.read(self._files, f"{place}/offsets/{batch}").decode()
                self._ends[sink][batch] = int(read_offsets(batch, text).sources["0"]) * ROWS
        newest = commits[max(commits)]
        mine = [batch for batch, writer in commits.items() if writer == newest]
        found.again += offsets[min(mine)] != newest
        return {min(mine) - 1, min(mine)}

    def _judge_sink(self, found: Found, sink: str, values: Counter[int], bound: int) -> None:
        found.missing[sink] = sum(value not in values for value in range(bound))
        found.surplus[sink] = sum(count - 1 for value, count in values.items() if value < bound)
        found.surplus[sink] += sum(value < 0 for value in values)

    def _batch_of(self, sink: str, value: int) -> int:
        """Return the batch that has read a value; -1 if no batch in the log has."""
        later = [batch for batch, end in self._ends[sink].items() if end > value]
        return min(later, default=-1)

    def _in_files(self) -> list[int]:
        """Return the values in the files that the file sink's log names, as Spark reads them."""
        log = self._jvm.path(f"{self._output}/_spark_metadata")
        names = [str(one.getPath().getName()) for one in self._files.listStatus(log)]
        compact = max((int(name[:-8]) for name in names if name.endswith(".compact")), default=-1)
        entries = [f"{compact}.compact"] if compact >= 0 else []
        entries += [str(batch) for batch in numbers_of(names) if batch > compact]
        paths = []
        for entry in entries:
            text = self._jvm.read(self._files, f"{log.toString()}/{entry}").decode()
            paths += [json.loads(line)["path"] for line in text.splitlines()[1:]]
        for path in paths:
            if path not in self._read:
                parquet = io.BytesIO(self._jvm.read(self._files, path))
                table = pyarrow.parquet.read_table(parquet)
                self._read[path] = table.column("value").to_pylist()
        return [value for path in paths for value in self._read[path]]

    def _in_database(self) -> tuple[dict[int, int], list[int]]:
        """Return the batch of each value, and the batch of each call of foreachBatch."""
        with psycopg.connect(self._database) as connection:
            rows = connection.execute(f"SELECT value, batch FROM {self._table}").fetchall()
            calls = connection.execute(f"SELECT batch FROM {self._table}_calls").fetchall()
        return dict(rows), [batch for (batch,) in calls]


def _log(driver: DriverUnderTest) -> str:
    return driver.launcher.log_tail(driver.application, driver.epoch, lines=40)
