"""The installation that is soaked: the whole system, a broker, the queries, and their feed."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.cimpl import NewTopic

from controlplane.home import StartProblem
from controlplane.write_lock import write_lock_holder
from examples.flights import s3_definitions
from headgate_ground import identities
from installation.machine import trial_servers
from queries.domain.protocol import IDENT, Current
from queries.driver_folder import read_current
from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.faults.system import System
from tests.soak import checkpoint, definitions, tables
from tests.soak.evidence import Evidence
from tests.soak.faults import BROKER, DRIVER_PARTS, STANDBY, STORE, Fault, do
from tests.soak.producer import Feed

HELD = ("ON_HOLD", "FAILED")
LOOK_EVERY_S = 0.5
#: These limits are generous: the machine may be small and shared.
STARTS_WITHIN_S = 1200.0
BROKER_WITHIN_S = 600.0
DRAINS_WITHIN_S = 900.0
LEDGER_WITHIN_S = 120.0
TOPIC_WITHIN_S = 60.0
#: How far the flight that closes all windows lies in the future.
CLOSES_AHEAD_S = 600


@dataclass(slots=True)
class Followed:
    """A fault, and what followed it."""

    fault: Fault
    at: datetime
    ended_at: datetime  # of a freeze or an outage; of a kill the same moment
    happened: str
    recovered_s: float | None  # until every query has committed again; None: not yet
    new_runs: list[str]  # the queries that were started again
    held: list[str]
    absent: bool = False  # there was no such process at that moment


class World:
    """What runs; everything in one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        rate: float,
        seed: int,
        over: threading.Event,
        on_s3: bool = False,
        table: str = "",
        standbys: bool = False,
    ) -> None:
        """With `on_s3`, the checkpoints are in a bucket of a gateway, which can fail, too.

        With a format of tables, those are written instead of files. With `standbys`, each
        application has a standby driver.
        """
        self.folder = folder
        self.over = over
        self.broker = KafkaBroker(folder / "kafka")
        self.store = (
            trial_servers.Gateway(folder / "s3", program=pieces.versitygw(), usual_port=None)
            if on_s3
            else None
        )
        self.out = folder / "out"
        self.table = table
        self.standby = "own" if standbys else "none"
        self.system = System(
            folder / "home",
            pieces.free_port(),
            HEADGATE_DEMO="0",
            HEADGATE_CONNECTORS=str(pieces.kafka_connector().parent),
            HEADGATE_ALLOWED_PATHS=str(self.out),
        )
        self.queries: list[definitions.SoakQuery] = []
        self.feed: Feed | None = None
        self._feed_is = (rate, seed)
        self._checkpoints: dict[str, Path] = {}
        self.closing_ms = 0  # the time of the flight that closed all windows

    # --- its beginning and its end ----------------------------------------------------------

    def start(self) -> None:
        """Start everything; return once each query has committed."""
        self._start_broker()
        self._create_topics()
        self._start_store()
        self._link_spark()
        self.out.mkdir()  # a driver sees the allowed paths that were there when it started
        self.system.up()
        if self.store is not None:  # only an admin binds secrets
            self.system.token = self.system.manage(
                "createtoken", "admin", "--scope", "admin"
            ).strip()
        servers = self.broker.servers
        self.queries = definitions.queries(servers, str(self.out), self.table)
        endpoint = None if self.store is None else self.store.place
        applications = definitions.applications(endpoint, self.table, str(self.out), self.standby)
        for name, spec in applications.items():
            self._permit(name)
            self._create("applications/", {"name": name, "spec": spec})
        for query in self.queries:
            body = {"name": query.name, "application": query.application, "spec": query.spec}
            if self.store is not None:
                body["checkpoint"] = f"{s3_definitions.BUCKET}/checkpoints/{query.name}"
            self._create("queries/", body)
        self._checkpoints = {query.name: self.checkpoint(query.name) for query in self.queries}
        rate, seed = self._feed_is
        self.feed = Feed(servers, definitions.FLIGHTS, rate=rate, seed=seed)
        self.feed.start()
        for query in self.queries:
            self.system.verb(query.name, "start")
        self.wait(
            "the first commits", lambda: min(self.commits().values()) >= 0, limit_s=STARTS_WITHIN_S
        )

    def close(self) -> None:
        """End all of it."""
        try:
            if self.feed is not None:
                self.feed.close()
        finally:
            try:
                if self.system.process is not None:
                    self.system.close()
            finally:
                self.broker.stop()
                if self.store is not None:
                    self.store.stop()

    # --- faults ---------------------------------------------------------------------------------

    def suffer(self, fault: Fault, *, until: float) -> Followed:
        """Do a fault; watch until every query has committed again, or `until` (monotonic)."""
        at = datetime.now(UTC)
        runs = self._runs()
        process = self._victim(fault)
        if process is None:
            return Followed(fault, at, at, "not there", None, [], [], absent=True)
        try:
            do(
                fault,
                process,
                over=self.over,
                again=self._again(fault),
                writes=lambda: self._holder() == process.pid,
            )
        except psutil.NoSuchProcess:
            return Followed(fault, at, at, "it ended by itself", None, [], [], absent=True)
        ended, ended_at = time.monotonic(), datetime.now(UTC)
        before = self.commits()
        recovered = None
        while time.monotonic() < until and not self.over.wait(LOOK_EVERY_S):
            if self._goes_on(before):
                recovered = time.monotonic() - ended
                break
        after = self._runs()
        new = [name for name, run in after.items() if runs.get(name, run) != run]
        return Followed(fault, at, ended_at, f"pid {process.pid}", recovered, new, self._release())

    def _holder(self) -> int | None:
        """Return the pid of the process within a write to the database; None if there is none."""
        home = self.system.home
        found = write_lock_holder(home / "headgate.sqlite3", home / "run")
        return None if found is None else found.pid

    def _victim(self, fault: Fault) -> psutil.Process | None:
        try:
            if fault.part == BROKER:
                broker = self.broker.broker.process()
                return None if broker is None else psutil.Process(broker.pid)
            if fault.part == STORE:
                store = None if self.store is None else self.store.process()
                return None if store is None else psutil.Process(store.pid)
            if fault.part in DRIVER_PARTS:
                return self._driver(fault.application, fault.part)
            file = self.system.home / "run" / f"{fault.part}.process"
            program = identities.read_identity(file)
            return psutil.Process(program.pid) if program and program.alive() else None
        except (psutil.Error, OSError):
            return None

    def _driver(self, application: str, part: str) -> psutil.Process | None:
        """Return a process of the application's driver or standby, None where it is gone."""
        folder = self.system.home / "drivers" / application
        named = read_current(folder)
        if named is None:
            return None
        epoch = Current.loads(named).epoch
        if part == STANDBY:
            later = [int(one.name) for one in folder.glob("[0-9]*") if int(one.name) > epoch]
            epoch = max(later, default=0)
        file = folder / str(epoch) / "control" / IDENT
        if not file.exists():
            return None
        ident = json.loads(file.read_text())
        before = {"jvm": "jvm_", "shim": "shim_"}.get(part, "")
        pid, began = ident[f"{before}pid"], ident[f"{before}start_time"]
        if pid is None or not identities.is_alive(pid, began):
            return None
        return psutil.Process(pid)

    def takeovers(self) -> int:
        """Return how many standbys have taken over so far."""
        names = {query.application for query in self.queries}
        drivers = [one for name in names for one in self.pages(f"applications/{name}/drivers/")]
        return sum(one["took_over_at"] is not None for one in drivers)

    def _again(self, fault: Fault) -> Callable[[], None] | None:
        if fault.act != "kill":
            return None
        return {BROKER: self._start_broker, STORE: self._start_store}.get(fault.part)

    def _start_broker(self) -> None:
        until = time.monotonic() + BROKER_WITHIN_S
        while True:
            try:
                self.broker.start()
            except StartProblem:  # it does not answer yet: the next call waits for the same process
                if time.monotonic() > until:
                    raise
            else:
                return

    def _start_store(self) -> None:
        if self.store is not None:
            self.store.start(pieces.java().home, limit_s=BROKER_WITHIN_S)
            self.store.keep_secrets(self.system.home / "secrets")

    def _goes_on(self, before: dict[str, int]) -> bool:
        """Tell whether each query is RUNNING, over REST, and has committed since."""
        after = self.commits()
        if any(after[name] <= before[name] for name in before):
            return False
        bodies = [self.ask(f"queries/{query.name}/") for query in self.queries]
        return all(body is not None and body["phase"] == "RUNNING" for body in bodies)

    def _release(self) -> list[str]:
        """Start what is held and waits for a person; return who that was, with the reason."""
        held = []
        for query in self.queries:
            body = self.ask(f"queries/{query.name}/")
            if body is not None and body["phase"] in HELD:
                with suppress(OSError, AssertionError):  # asked again at the next look
                    self.system.verb(query.name, "start")
                    held.append(f"{query.name}: {body['phase']}, {body['phase_reason']}")
        return held

    def _runs(self) -> dict[str, int]:
        """Return the newest run of each query, as far as the web process answers."""
        found = {}
        for query in self.queries:
            page = self.ask(f"queries/{query.name}/runs/")
            if page is not None and page["results"]:
                found[query.name] = int(page["results"][0]["id"])
        return found

    # --- what it says ---------------------------------------------------------------------------

    def checkpoint(self, name: str) -> Path:
        """Return the folder of a query's checkpoint; the gateway's objects are files."""
        place = str(self.system.query(name)["checkpoint"])
        if self.store is not None:
            return self.store.data / place.removeprefix("s3a://")
        return Path(place.removeprefix("file://"))

    def commits(self) -> dict[str, int]:
        """Return the newest committed batch by query, from the checkpoints."""
        return {name: checkpoint.last_commit(folder) for name, folder in self._checkpoints.items()}

    def ask(self, path: str) -> Any:
        """Return the JSON of an address, None where it does not answer now."""
        try:
            status, body = self.system.call("GET", path)
        except (OSError, HTTPException, ValueError):  # the web process may end as it answers
            return None
        return body if status == 200 else None

    def pages(self, path: str) -> list[Any]:
        """Return all elements of a list."""
        found: list[Any] = []
        while path:
            page = self.system.get(path)
            found += page["results"]
            path = (page["next"] or "").partition("/api/v1/")[2]
        return found

    def wait(self, what: str, look: Callable[[], Any], *, limit_s: float) -> Any:
        """Return what `look` finds once it finds something."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if found := look():
                return found
            if self.over.wait(LOOK_EVERY_S):
                raise KeyboardInterrupt
        raise AssertionError(f"not seen in {limit_s:.0f} s: {what}; {self.commits()}")

    # --- after the faults -----------------------------------------------------------------------

    def drain(self) -> None:
        """Write no more, wait until all is read and every window is written, and stop."""
        assert self.feed is not None
        self.feed.stop()
        self._wait_until_read()
        self.closing_ms = int((time.time() + CLOSES_AHEAD_S) * 1000)
        flight = {"tailnum": "N00000", "carrier": "--", "dep_delay": 0, "arr_delay": 0}
        self.feed.send(flight, self.closing_ms)
        self.feed.stop()
        self._wait_until_read()
        closed = self.closing_ms - definitions.WATERMARK_S * 1000
        windows = self._checkpoints[definitions.BY_MINUTE]
        self.wait(
            "the end of all windows",
            lambda: checkpoint.position(windows, definitions.FLIGHTS)[0] >= closed,
            limit_s=DRAINS_WITHIN_S,
        )

    def _wait_until_read(self) -> None:
        ends = {
            partition: end
            for partition, (_, end) in self.broker.watermarks(definitions.FLIGHTS).items()
        }

        def read() -> bool:
            self._release()
            return all(
                checkpoint.position(folder, definitions.FLIGHTS)[1] == ends
                for folder in self._checkpoints.values()
            )

        self.wait("everything read", read, limit_s=DRAINS_WITHIN_S)

    def ledger(self, name: str) -> int:
        """Return how many rows the loss ledger counts as late, once it has judged all batches."""
        last = self.commits()[name]
        self.system.wait("the last batch's report", lambda: self.system.batch(name) >= last)
        told, until = -1, time.monotonic() + LEDGER_WITHIN_S
        while time.monotonic() < until:  # the ledger is kept every 10 s
            lines = [one for one in self.pages(f"queries/{name}/losses/") if one["kind"] == "late"]
            count = sum(int(line["records"]) for line in lines)
            if count == told:
                return count
            told = count
            self.over.wait(25)
        raise AssertionError("the ledger does not come to rest")

    def evidence(self, followed: list[Followed]) -> Evidence:
        """Stop the queries and the system; return what is known beside what was written."""
        assert self.feed is not None
        ledger = self.ledger(definitions.BY_MINUTE)
        reports = self.system.reports(definitions.BY_MINUTE)
        dropped = self.system.query(definitions.BY_MINUTE)["dropped_events"]
        for name in self._checkpoints:
            self.system.verb(name, "stop")
        for name in self._checkpoints:
            self.system.wait(f"{name} stopped", partial(self._is_stopped, name))
        found = Evidence(
            out=str(self.out),
            checkpoints={name: str(folder) for name, folder in self._checkpoints.items()},
            starts={name: self._starts(name) for name in self._checkpoints},
            taken=self.feed.taken,
            stamped_late=self.feed.stamped_late,
            closing_ms=self.closing_ms,
            told=sorted({int(report["batchId"]) for report in reports}),
            not_executed=tuple(int(one["batchId"]) for one in reports if not _executed(one)),
            ledger=ledger,
            missing_batches=dropped["missing_batches"],
            faults_ended=[one.ended_at.isoformat() for one in followed if not one.absent],
            table=self.table,
        )
        self.system.close()
        return found

    def _is_stopped(self, name: str) -> bool:
        return bool(self.system.query(name)["phase"] == "STOPPED")

    def _starts(self, name: str) -> list[str]:
        """Return when each run of a query was made, oldest first."""
        return sorted(run["created_at"] for run in self.pages(f"queries/{name}/runs/"))

    # --- inside ---------------------------------------------------------------------------------

    def _create(self, path: str, body: dict[str, Any]) -> None:
        status, answer = self.system.call("POST", path, body)
        if status != 201:
            raise AssertionError(f"{path} refused {body}: {answer}")

    def _link_spark(self) -> None:
        """Give the installation the Spark of the tables' format, which this tree has already."""
        if self.table:
            version = tables.SPARKS[self.table]
            sparks = self.system.home / "sparks"
            sparks.mkdir(parents=True)
            (sparks / version).symlink_to(pieces.spark_folder(version))

    def _permit(self, application: str) -> None:
        """Let an application use the bucket and its keys, if there is one, before it is created."""
        if self.store is None:
            return
        for key in s3_definitions.KEYS:
            host = self.store.place.partition("://")[2]
            holder = {"holder_kind": "application", "holder": application}
            self._create("secret-bindings/", {"secret": key, "hosts": [host], **holder})
        root = {"application": application, "path": s3_definitions.BUCKET}
        self._create("allowed-paths/", root)

    def _create_topics(self) -> None:
        admin = self.broker.admin()
        names = (definitions.FLIGHTS, definitions.CLEAN, definitions.PLANES)
        new = [
            NewTopic(name, definitions.PARTITIONS, 1, config={"retention.ms": "-1"})
            for name in names
        ]
        for done in admin.create_topics(new).values():
            done.result(TOPIC_WITHIN_S)


def _executed(report: dict[str, Any]) -> bool:
    """Return whether Spark executed a batch: otherwise no state store took part in it.

    After a death between the file sink's commit and the query's, Spark passes over the repeated
    batch ("Skipping already committed batch", FileStreamSink) and reports that it read nothing.
    """
    return any(operator["numStateStoreInstances"] for operator in report["stateOperators"])
