"""Order and replay under fire: random latencies, errors, and SIGKILLs of workers and drivers.

Kafka -> calls -> Spark's file sink, which is exactly-once. HEADGATE_ASYNC_KILLS says how often to
kill (6; every third time the driver with its JVM, else a Python worker).
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.headgate_async.remote import Remote, remote
from tests.headgate_async.replay_driver import Story
from tests.spark.driver_under_test import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.faults, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("HEADGATE_ASYNC_KILLS", "2"))
KEYS = 40
BATCH = 600


class Driver:
    """The driver's process, its JVM and its Python workers."""

    def __init__(self, story: Story) -> None:
        command = [sys.executable, "-m", "tests.headgate_async.replay_driver"]
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        self.process = subprocess.Popen(
            [*command, json.dumps(asdict(story))],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def gone(self) -> bool:
        """Whether its process has ended."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """SIGKILL the driver's Python, its JVM and its workers."""
        if self.process.poll() is None:
            for one in [*self._below(), psutil.Process(self.process.pid)]:
                _kill(one)
        self.process.wait()

    def kill_a_worker(self) -> bool:
        """SIGKILL one Python worker; tell whether there was one."""
        daemons = [one for one in self._below() if "pyspark.daemon" in _command(one)]
        workers = [one for one in daemons if any(_pid(one.parent()) == d.pid for d in daemons)]
        if workers:
            _kill(random.choice(workers))
        return bool(workers)

    def _below(self) -> list[psutil.Process]:
        try:
            return list(psutil.Process(self.process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []


def _pid(process: psutil.Process | None) -> int:
    return process.pid if process else 0


def _kill(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "remote.log"


@pytest.fixture
def rude(log: Path) -> Iterator[Remote]:
    with remote(latency_ms=1.0, log=log) as service:
        service.behave(jitter_ms=15.0, failing=0.02, closing=0.0005)
        yield service


def test_no_inversion_no_loss_and_no_double_whatever_is_killed(
    broker: KafkaBroker, rude: Remote, log: Path, tmp_path: Path
) -> None:
    total = BATCH * (KILLS * 4 + 4)
    topic = broker.topic("in", partitions=3)
    broker.produce(topic, ((f"key-{one % KEYS}", str(one)) for one in range(total)))
    story = Story(
        servers=broker.servers,
        topic=topic,
        output=str(tmp_path / "out"),
        checkpoint=str(tmp_path / "checkpoint"),
        port=rude.port,
        jars=",".join(str(jar) for jar in sorted(pieces.kafka_connector().glob("*.jar"))),
        local=str(tmp_path / "local"),
        rows=BATCH,
    )
    driver = Driver(story)
    try:
        for number in range(KILLS):
            batches = committed(tmp_path)
            wait_for(lambda seen=batches: committed(tmp_path) > seen, "another batch", 300)  # type: ignore[misc]
            if number % 3 == 2:
                driver.kill()
            else:
                wait_for(driver.kill_a_worker, "a Python worker to kill", 60)
                # An idle one is replaced unnoticed. A busy one ends the query, for Spark in local
                # mode tries a task once; its driver starts it again from the checkpoint.
                wait_for(partial(went_on, driver, tmp_path, committed(tmp_path)), "it goes on", 300)
            if driver.gone:
                driver = Driver(story)
        wait_for(lambda: len(written(tmp_path / "out")) >= total, "all rows in the sink", 900)
    finally:
        driver.kill()
    expected = {f"{topic}:{one.partition}:{one.offset}" for one in broker.read(topic)}
    rows = Counter(written(tmp_path / "out"))
    assert set(rows) == expected, "rows lost"
    assert max(rows.values()) == 1, "rows double"
    called = calls(log)
    assert {identity for _, _, identity in called} == expected, "a row that was never called"
    assert inversions(called) == []


def went_on(driver: Driver, folder: Path, since: int) -> bool:
    return driver.gone or committed(folder) > since + 1


def committed(folder: Path) -> int:
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def written(output: Path) -> list[str]:
    """Return the identities in the sink, of the files that its own log names."""
    paths: set[str] = set()
    for entry in (output / "_spark_metadata").glob("[0-9]*"):
        for line in entry.read_text().splitlines()[1:]:
            paths.add(json.loads(line)["path"].rpartition("/")[2])
    return [
        json.loads(line)["identity"]
        for name in paths
        for line in (output / name).read_text().splitlines()
    ]


def calls(log: Path) -> list[tuple[str, str, str]]:
    """Return (task of a worker, key, identity) of each call, in the order they came."""
    found = []
    for line in log.read_text().splitlines():
        if line.startswith("> ") and line.count("|") == 2:
            task, key, identity = line[2:].split("|")
            found.append((task, key, identity))
    return found


def inversions(called: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """Return calls that came before an earlier row of their key: in a task, and over all."""
    found = []
    newest: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    first: dict[str, int] = defaultdict(lambda: -1)
    seen: set[str] = set()
    for task, key, identity in called:
        offset = int(identity.rpartition(":")[2])
        if offset < newest[(task, key)]:
            found.append((task, identity))
        newest[(task, key)] = offset
        if identity not in seen:  # a replay goes back; a first call must not
            seen.add(identity)
            if offset < first[key]:
                found.append(("first call", identity))
            first[key] = offset
    return found


def test_an_inversion_would_be_found() -> None:
    right = [("a", "k", "t:0:1"), ("a", "k", "t:0:2"), ("b", "k", "t:0:1"), ("b", "k", "t:0:2")]
    assert inversions(right) == []
    assert inversions([right[1], right[0]]) == [("a", "t:0:1"), ("first call", "t:0:1")]
