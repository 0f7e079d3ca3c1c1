"""Let two drivers fight for checkpoints on S3 and HDFS, and judge what both have written.

- starts: two drivers of two installations start one query on a new checkpoint at once. One of
  them must own and commit, the other must be refused, and both must stay alive;
- takeovers: a driver runs three queries into files on the store, an upsert in `foreachBatch`
  (PostgreSQL), and Kafka. Its processes are stopped (Python, JVM, both or none, in turn), the next
  driver takes the checkpoints over, and the old one is woken. It must halt. No entry of a log may
  be written by both, files and upserts must be exact, and Kafka may have the batches in flight
  twice;
- window: the same on S3 with Spark's own file manager, both processes stopped, at a random moment
  and while it renames an entry in turn. Figures, no verdict;
- healthy: 30 s of a `foreachBatch` that holds the GIL, full collections, a JVM that is stopped for
  20 s, and a load of 40 must not end a driver, although the worker on its host is silent.

Who has written an entry of a log is shown on S3 by the object, where our file manager names its
JVM, and on HDFS by the owner of the file: each driver has a user of its own.

- ours: entries of logs that an old driver has written again, with our file manager;
- baseline: the same with Spark's.

The exit code is 1 if anything does not hold. The last line is JSON.
"""

import argparse
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._measuring import kafka_broker, report, workplace
from benchmarks.storage._streams import ROWS, TRIGGER, Found, Stamp, Streams, code
from examples.flights import s3_definitions
from installation.machine import trial_servers
from installation.machine.trial_servers import MiniHadoop
from queries.domain.protocol import CUT_OFF, EXIT_CHECKPOINT_LOST, JVM_DIED, RunState
from tests import pieces
from tests.conftest_kafka import KafkaBroker
from tests.soak.__main__ import JAVA_OPTIONS
from tests.spark.driver_under_test import LIMIT_S, DriverUnderTest, rate_query, wait_for
from tests.storage.fenced_drivers import HALTS_WITHIN_S, exits, launched, writers
from tests.storage.stores import HadoopJvm, S3Store, Store

TAKES = "50 minutes"

WATCH_S = 2.0  # as in production: HEADGATE_FENCE_WATCH_S
#: What is stopped, in turn.
KINDS = ("none", "python", "jvm", "both")
GIL_S = 30
GC_TIMES = 3
PAUSE_S = 20.0
LOAD, LOAD_S = 40, 60.0
#: What a refused start says: the other one has created its number first, or owns the checkpoint.
REFUSALS = {
    "held": "Another start was faster: it has taken the checkpoint",
    "foreign": "belongs to another installation",
}


@dataclass(slots=True)
class Figures:
    """Everything that was found, and what does not hold."""

    wrong: list[str] = field(default_factory=list)
    starts: dict[str, Counter[str]] = field(default_factory=dict)
    takeovers: dict[str, list["Round"]] = field(default_factory=dict)
    window: list["Round"] = field(default_factory=list)
    healthy: dict[str, list[str]] = field(default_factory=dict)
    load: list[float] = field(default_factory=list)

    def refuse(self, text: str) -> None:
        """Note something that does not hold."""
        self.wrong.append(text)
        say(f"  DOES NOT HOLD: {text}")


@dataclass(frozen=True, slots=True)
class Round:
    """One takeover."""

    kind: str
    exit: tuple[str, str]
    halted_ms: float  # after it was woken, or after the takeover if its JVM was not stopped
    found: Found
    restarts: list[str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the drivers meet."""

    store: Store
    jvm: HadoopJvm
    folder: Path
    broker: KafkaBroker
    database: str

    @property
    def kind(self) -> str:
        """Return "s3" or "hdfs"."""
        return "s3" if isinstance(self.store, S3Store) else "hdfs"

    def launch(self, name: str, number: int, **changes: Any) -> DriverUnderTest:
        """Start a driver with a home and a Hadoop user of its own."""
        return launched(
            self.folder / f"{name}-{number}",
            self.store,
            more_jars=sorted(pieces.kafka_connector().glob("*.jar")),
            epoch=number,
            env={"HADOOP_USER_NAME": f"driver-{number}"},
            code_roots=(code(self.folder),),
            **{"fence_watch_s": WATCH_S} | changes,
        )


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def main() -> int:
    """Run the requested parts on each store; return 1 if a check fails."""
    asked = _options()
    stores = asked.stores.split(",")
    for reason in (
        pieces.missing_s3() if "s3" in stores or asked.window else "",
        pieces.missing_hdfs() if "hdfs" in stores else "",
        pieces.missing_kafka(),
        pieces.missing_postgres(),
    ):
        if reason:
            raise SystemExit(reason)
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)  # of drivers, gateways and broker
    random.seed(asked.seed)
    say(f"seed {asked.seed}")
    figures = Figures()
    with workplace("takeovers") as folder, kafka_broker(folder) as broker, ExitStack() as ends:
        database = ends.enter_context(pieces.postgres_server())
        jvm = HadoopJvm()
        ends.callback(jvm.end)
        for name in dict.fromkeys([*stores, *(["s3"] if asked.window else [])]):
            store = ends.enter_context(_store(name, folder))
            place = Place(store, jvm, folder / name, broker, database)
            place.folder.mkdir()
            if name in stores:
                _trying(figures, _starts, place, asked.starts)
                _trying(figures, _takeovers, place, asked.takeovers)
            if name == "s3":
                _trying(figures, _window, place, asked.window)
            if name in stores and asked.healthy:
                _trying(figures, _healthy, place)
    return _tell(figures)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--starts", type=int, default=50, help="per store")
    options.add_argument("--takeovers", type=int, default=20, help="per store")
    options.add_argument("--stores", default="s3,hdfs")
    options.add_argument("--window", type=int, default=10, help="takeovers with Spark's manager")
    options.add_argument("--healthy", action=argparse.BooleanOptionalAction, default=True)
    options.add_argument("--seed", type=int, default=random.randrange(2**31))
    return options.parse_args()


@contextmanager
def _store(name: str, folder: Path) -> Iterator[Store]:
    if name == "s3":
        gateway = trial_servers.Gateway(
            folder / "gateway", program=pieces.versitygw(), usual_port=None
        )
        gateway.start(pieces.java().home)
        address = gateway.address()
        keys = address.access_key, address.secret_key
        conf = s3_definitions.store(gateway.place, *keys)
        data = gateway.data / trial_servers.BUCKET
        try:
            yield S3Store(
                f"s3a://{trial_servers.BUCKET}", gateway, conf, gateway.place, *keys, folder=data
            )
        finally:
            gateway.stop()
        return
    program, port = pieces.hadoop(), pieces.free_port()
    hadoop = MiniHadoop(folder / "hadoop", port=port, program=program, yarn_memory_mb=0)
    hadoop.start(pieces.java().home)
    try:
        yield Store(hadoop.place, hadoop)
    finally:
        hadoop.stop()


def _trying(figures: Figures, phase: Any, place: Place, *arguments: Any) -> None:
    """Run a phase; what ends it early does not hold, but the others are still run."""
    began = time.monotonic()
    name = f"{phase.__name__.removeprefix('_')} on {place.kind}"
    try:
        phase(figures, place, *arguments)
    except AssertionError as error:
        figures.refuse(f"{name} ended early: {error}")
    figures.load.append(round(os.getloadavg()[1], 1))
    say(f"{name}: {time.monotonic() - began:.0f} s, load {figures.load[-1]}")


@contextmanager
def _ended(*drivers: DriverUnderTest) -> Iterator[None]:
    try:
        yield
    finally:
        for driver in drivers:
            driver.end()


# --- starts -------------------------------------------------------------------------------
def _starts(figures: Figures, place: Place, rounds: int) -> None:
    """Start a query in two drivers at once."""
    seen = figures.starts[place.kind] = Counter()
    drivers = [
        place.launch("start", number, installation=f"installation-{number}", fence_watch_s=0.5)
        for number in ((1, 2) if rounds else ())
    ]
    files = place.jvm.files(place.store)
    with _ended(*drivers):
        for driver in drivers:
            driver.ready()
        for turn in range(rounds):
            location = place.store.place("start")
            told = _start_at_once(drivers, turn, location)
            seen[told] += 1
            by = set(writers(files, place.jvm, location).values())
            say(f"start {turn + 1} on {place.kind}: {told}, commits by {len(by)}")
            if len(by) != 1 or told.partition(" ")[0] != "one":
                figures.refuse(f"start {turn + 1} on {place.kind}: {told}; commits by {by}")
    files.close()


def _start_at_once(drivers: list[DriverUnderTest], turn: int, location: str) -> str:
    """Return what came of it, "one owns …" if it is as it must be; nothing runs afterwards."""
    run = 10 * (turn + 1) + 1
    together = threading.Barrier(len(drivers))

    def start(driver: DriverUnderTest) -> None:
        together.wait(LIMIT_S)
        driver.start(run, rate_query(), checkpoint=location)

    threads = [threading.Thread(target=start, args=[driver]) for driver in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def settled() -> list[Any] | None:
        for driver in drivers:
            assert driver.sight().exit is None, f"a driver has ended: {driver.sight().exit}"
        lines = [driver.run(run) for driver in drivers]
        done = [
            line is not None
            and (line.state in (RunState.REFUSED, RunState.FAILED) or bool(line.last_batch))
            for line in lines
        ]
        return lines if all(done) else None

    lines = wait_for(settled, "both have started or were refused")
    owners = [line for line in lines if line.state is RunState.RUNNING]
    told = []
    for line in lines:
        if line.state is not RunState.RUNNING:
            error = line.error
            named = error is not None and REFUSALS.get(error.refused, "?") in error.message
            told.append(f"{error.refused if named else error}")
    for driver in drivers:
        driver.drop(run)
    wait_for(lambda: not any(driver.run(run) for driver in drivers) or None, "both runs have ended")
    return f"{'one owns' if len(owners) == 1 else len(owners)}, {' '.join(told)}"


# --- takeovers ----------------------------------------------------------------------------
class Ending(threading.Thread):
    """Notes when a process ends, to the millisecond; it need not be a child."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._descriptor = os.pidfd_open(pid)
        self.at = 0.0  # s since 1970
        self.start()

    def run(self) -> None:
        """Wait for the end."""
        select.select([self._descriptor], [], [])
        self.at = time.time()
        os.close(self._descriptor)


def _takeovers(figures: Figures, place: Place, rounds: int) -> None:
    """Take the same three queries over again and again."""
    found = figures.takeovers[place.kind] = []
    if not rounds:
        return
    streams = Streams(place.store, place.jvm, place.broker, place.database)
    with ExitStack() as ends:
        drivers = _one_after_the_other(place, "takeover", rounds, ends)
        old = next(drivers)
        streams.start(old)
        streams.wait(old, 2)
        for turn, new in enumerate(drivers):
            kind = KINDS[turn % len(KINDS)]
            streams.restarts.clear()
            one = _take_over(streams, old, new, kind, _at_random)
            found.append(one)
            name = f"takeover {turn + 1} on {place.kind}, {kind} stopped"
            say(f"{name}: {_told(one)}")
            _judge(figures, name, one)
            old.end()
            old = new


def _one_after_the_other(
    place: Place, name: str, rounds: int, ends: ExitStack, **changes: Any
) -> Iterator[DriverUnderTest]:
    """Yield drivers that are ready, one more than rounds; each starts during the round before."""
    following: DriverUnderTest | None = None
    for number in range(1, rounds + 2):
        driver = following or place.launch(name, number, **changes)
        ends.callback(driver.end)
        if number <= rounds:
            following = place.launch(name, number + 1, **changes)
            ends.callback(following.end)
        driver.ready()
        yield driver


def _take_over(
    streams: Streams, old: DriverUnderTest, new: DriverUnderTest, kind: str, moment: Any
) -> Round:
    """Stop the old driver, let the new one take over, wake the old one, and judge."""
    ident = old.ident()
    assert ident.jvm_pid is not None
    pids = {
        "none": [],
        "python": [ident.pid],
        "jvm": [ident.jvm_pid],
        "both": [ident.jvm_pid, ident.pid],
    }[kind]
    ending = Ending(ident.jvm_pid)
    moment(streams)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.time()
    streams.start(new)
    streams.wait(new, 3)
    before = streams.stamps()
    woken = time.time()
    for pid in pids:
        if kind != "python":  # its shim has killed it, with its JVM
            os.kill(pid, signal.SIGCONT)
    left = exits(old)
    ending.join(HALTS_WITHIN_S)
    since = woken if ident.jvm_pid in pids else streams.taken_at(began)
    after: dict[str, Stamp] = streams.stamps()
    streams.wait(new, 2)
    halted_ms = (ending.at - since) * 1000
    return Round(kind, left, halted_ms, streams.judge(before, after), list(streams.restarts))


def _at_random(_: Streams) -> None:
    time.sleep(random.uniform(0, 1))  # a batch a second


def _judge(figures: Figures, name: str, one: Round) -> None:
    found = one.found
    python = "SIGKILL" if one.kind == "python" else str(JVM_DIED)
    if one.exit != (python, str(EXIT_CHECKPOINT_LOST)):
        figures.refuse(f"{name}: the driver ended with {one.exit}")
    if found.twice:
        figures.refuse(f"{name}: written again: {found.twice}")
    for text in found.returned:
        figures.refuse(f"{name}: {text}")
    if any(found.missing.values()):
        figures.refuse(f"{name}: values are missing: {found.missing}")
    if found.surplus["files"] or found.surplus["upserts"] or found.misplaced:
        figures.refuse(f"{name}: values are there too often: {found.surplus}, {found.misplaced}")
    if found.elsewhere:
        figures.refuse(f"{name}: {found.elsewhere} records of Kafka are not of a batch in flight")
    for text in one.restarts:
        if ", which is" in text:
            figures.refuse(f"{name}: supervision would not start the query again: {text}")


def _told(one: Round) -> str:
    found = one.found
    parts = [
        f"exit {'/'.join(one.exit)}",
        f"halted after {one.halted_ms:.0f} ms",
        f"written again {found.twice or 0}",
        f"begun by the old, committed by the new {found.again}",
        f"foreachBatch wrote again {found.repeated_calls}",
        f"repeated in Kafka {found.surplus['kafka']}",
        f"started again {len(one.restarts)}",
    ]
    return ", ".join(parts) + "".join(f"\n    {text}" for text in one.restarts)


# --- the window with Spark's own manager --------------------------------------------------
def _window(figures: Figures, place: Place, rounds: int) -> None:
    """Take over without our file manager: each time on new checkpoints."""
    if not rounds:
        return
    own = {"conf": dict(place.store.conf)}
    with ExitStack() as ends:
        drivers = _one_after_the_other(place, "window", rounds, ends, **own)
        old = next(drivers)
        for turn, new in enumerate(drivers):
            streams = Streams(place.store, place.jvm, place.broker, place.database)
            streams.start(old)
            streams.wait(old, 2)
            aimed = bool(turn % 2)
            one = _take_over(streams, old, new, "both", _in_a_rename if aimed else _at_random)
            figures.window.append(one)
            moment = "while an entry is renamed" if aimed else "at random"
            say(f"window {turn + 1}, stopped {moment}: {_told(one)}")
            lost, more = one.found.missing, one.found.surplus
            say(f"    missing {lost}, too often {more}, misplaced {one.found.misplaced}")
            old.end()
            streams.stop(new)
            old = new


def _in_a_rename(streams: Streams) -> None:
    """Return while an entry has its temporary name, somewhere in Spark's renaming of it."""
    wait_for(streams.renames, "Spark renames an entry")
    time.sleep(random.uniform(0, 0.02))


# --- healthy drivers ----------------------------------------------------------------------
def _healthy(figures: Figures, place: Place) -> None:
    """Burden a driver as users' code and a busy machine do."""
    told = figures.healthy[place.kind] = []
    folder = place.folder / "burdens"
    folder.mkdir()
    driver = place.launch("healthy", 1, memory="2g")
    with _ended(driver):
        driver.ready()
        params = {"folder": str(folder), "rows": ROWS}
        function = "in_driver:burdened"
        spec = {"kind": "python", "function": function, "params": params, "trigger": TRIGGER}
        driver.start(11, spec, checkpoint=place.store.place("healthy"))
        driver.wait_run(11, RunState.RUNNING)
        for burden in (_gil, _collections, _stopped_jvm, _busy):
            told.append(burden(driver, folder))
            _goes_on(driver)
            say(f"healthy on {place.kind}: {told[-1]}: the query goes on")


def _goes_on(driver: DriverUnderTest) -> None:
    line = driver.run(11)
    before = line.last_batch if line is not None and line.last_batch is not None else 0

    def beyond() -> bool:
        seen = driver.sight()
        assert seen.exit is None, f"the driver has ended ({CUT_OFF} is cut off): {seen.exit}"
        now = driver.run(11)
        assert now is None or now.error is None, now
        return now is not None and (now.last_batch or 0) > before + 3

    wait_for(beyond, "the query goes on")


def _asked(folder: Path, name: str, value: int) -> float:
    (folder / f"{name}.asked").write_text(str(value))
    (folder / f"{name}.asked").rename(folder / name)
    done = folder / f"{name}.done"
    wait_for(done.exists, f"{name} is done")
    return float(done.read_text())


def _gil(_: DriverUnderTest, folder: Path) -> str:
    return f"foreachBatch held the GIL for {_asked(folder, 'gil', GIL_S):.0f} s"


def _collections(_: DriverUnderTest, folder: Path) -> str:
    took = _asked(folder, "gc", GC_TIMES)
    return f"{GC_TIMES} full collections of 300 MB of objects, {took:.1f} s with their creation"


def _stopped_jvm(driver: DriverUnderTest, _: Path) -> str:
    pid = driver.ident().jvm_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    os.kill(pid, signal.SIGCONT)
    return f"the JVM was stopped for {PAUSE_S:.0f} s"


def _busy(driver: DriverUnderTest, _: Path) -> str:
    line = driver.run(11)
    before = line.last_batch if line is not None and line.last_batch is not None else 0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOAD)]
    try:
        time.sleep(LOAD_S)
        load = os.getloadavg()[0]
        line = driver.run(11)
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()
    more = (line.last_batch if line is not None and line.last_batch is not None else 0) - before
    return f"{LOAD} busy processes for {LOAD_S:.0f} s (load {load:.0f}), {more} batches meanwhile"


# --- the table ----------------------------------------------------------------------------
def _tell(figures: Figures) -> int:
    """Print the table and the JSON; return the exit code."""
    for store, seen in figures.starts.items():
        told = ", ".join(f"{what} {count}" for what, count in seen.items())
        say(f"starts at once on {store}: {seen.total()}: {told}")
    for store, rounds in figures.takeovers.items():
        for kind in KINDS:
            _tell_rounds(f"{store}, {kind} stopped", [one for one in rounds if one.kind == kind])
    _tell_rounds("s3, Spark's own manager, both stopped", figures.window)
    for store, burdens in figures.healthy.items():
        say(f"healthy on {store}: {'; '.join(burdens)}")
    for text in figures.wrong:
        say(f"DOES NOT HOLD: {text}")
    report(
        "takeovers",
        ours=sum(_written_again(rounds) for rounds in figures.takeovers.values()),
        baseline=_written_again(figures.window),
        ratio=None,
        unit="log entries written again by an old driver",
        starts={store: seen.total() for store, seen in figures.starts.items()},
        takeovers={store: len(rounds) for store, rounds in figures.takeovers.items()},
        window=len(figures.window),
        does_not_hold=len(figures.wrong),
        loads=figures.load,
    )
    return 1 if figures.wrong else 0


def _written_again(rounds: Iterable[Round]) -> int:
    return sum(sum(one.found.twice.values()) for one in rounds)


def _tell_rounds(name: str, rounds: list[Round]) -> None:
    if not rounds:
        return
    halted = sorted(one.halted_ms for one in rounds)
    found = [one.found for one in rounds]
    twice: Counter[str] = Counter()
    for each in found:
        twice.update(each.twice)
    say(
        f"{name}: {len(rounds)} takeovers, halted after {statistics.median(halted):.0f} ms "
        f"({halted[0]:.0f} to {halted[-1]:.0f}), written again {dict(twice) or 0}, "
        f"repeated batches {sum(one.again for one in found)} of {3 * len(rounds)}, "
        f"foreachBatch twice {sum(one.repeated_calls for one in found)}, "
        f"files and upserts missing {sum(sum(one.missing.values()) for one in found)} "
        f"too often {sum(one.surplus['files'] + one.surplus['upserts'] for one in found)}, "
        f"misplaced {sum(one.misplaced for one in found)}, "
        f"Kafka repeated {sum(one.surplus['kafka'] for one in found)}, "
        f"queries started again {sum(len(one.restarts) for one in rounds)}"
    )


if __name__ == "__main__":
    sys.exit(main())
