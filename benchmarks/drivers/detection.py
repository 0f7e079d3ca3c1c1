"""Measure how soon a driver's end is recorded in its row: by waiting for it, and by a 1 s poll.

- ours: from the exit of the later of a driver's two processes, Python and JVM, to the commit of the
  row that records it: the shim waits for both, and announces the exit to the worker;
- baseline: from the same exit to its detection by a loop that checks both processes once a second.

Both arms observe the same exits (`kill -9` of the driver's Python) on one running system with the
embedded Redis and SQLite. The exits are read from pidfds, the commit from the database, which is
queried every millisecond. In addition, the time from the kill to the row is measured; most of it is
the JVM's own exit. The last line is JSON.
"""

import argparse
import os
import random
import select
import signal
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from benchmarks._measuring import report, spread, workplace
from tests import pieces
from tests.faults.system import System

TAKES = "15 minutes"

QUERY = "detection"
#: Each of the three gives up after this long, and the benchmark with it.
LIMIT_S = 120.0
POLL_S = 1.0  # the baseline's
ASKED_EVERY_S = 0.001


def main() -> None:
    """Start the system, kill a driver repeatedly, stop the system."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=20)
    rounds = max(2, options.parse_args().rounds)
    with workplace("detection") as folder:
        system = System(folder, pieces.free_port(), HEADGATE_DEMO="0")
        try:
            system.up()
            _define(system)
            found = [_kill(system, folder / "headgate.sqlite3") for _ in range(rounds)]
        finally:
            system.close()
    noticed, polled, from_kill = (sorted(one) for one in zip(*found, strict=True))
    print(f"from the later exit to the row: {spread(_ms(noticed))} ms, {rounds} deaths")
    print(f"from the later exit to a 1 s poll: {spread(_ms(polled))} ms")
    print(f"from the kill to the row: {spread(_ms(from_kill))} ms")
    ours, baseline = _p95(noticed), _p95(polled)
    report(
        "detection",
        ours=round(ours * 1000, 1),
        baseline=round(baseline * 1000, 1),
        ratio=round(baseline / ours, 1),
        unit="ms, p95",
        median_ms=round(statistics.median(noticed) * 1000, 1),
        kill_to_row_ms=round(statistics.median(from_kill) * 1000, 1),
        rounds=rounds,
    )


def _define(system: System) -> None:
    """Define and start a query that reads little data, in its own application."""
    spec: dict[str, Any] = {
        "kind": "sql",
        "sources": [{"name": "numbers", "format": "rate", "options": {"rowsPerSecond": "5"}}],
        "sql": "SELECT value FROM numbers",
        "sink": {"format": "noop"},
        "trigger": {"kind": "processing_time", "interval": "1 second"},
    }
    # Each kill is a failure: with the usual delays the eighth restart would take five minutes.
    policy = {"base_delay_s": 1, "max_delay_s": 1}
    for path, body in (
        ("applications/", {"name": QUERY, "spec": {"policy": policy}}),
        ("queries/", {"name": QUERY, "application": QUERY, "spec": spec}),
    ):
        status, answer = system.call("POST", path, body)
        if status != 201:
            raise SystemExit(f"{path} refused it: {answer}")
    system.verb(QUERY, "start")


def _kill(system: System, database: Path) -> tuple[float, float, float]:
    """Kill the driver's Python; return seconds to the row, to the poll, and from kill to row."""
    run = system.running(QUERY)["current_run"]
    pids = (run["pid"], run["jvm_pid"])
    seen: dict[str, float] = {}
    threads = [
        threading.Thread(target=_noted, args=(seen, what, look))
        for what, look in {
            "end": lambda: _wait_ends([os.pidfd_open(pid) for pid in pids]),
            "row": lambda: _wait_row(database, run["id"]),
            "poll": lambda: _wait_poll(pids),
        }.items()
    ]
    for thread in threads:
        thread.start()
    time.sleep(random.uniform(0.5, 0.5 + POLL_S))  # so that the poll meets deaths at any phase
    killed = time.monotonic()
    os.kill(run["pid"], signal.SIGKILL)
    for thread in threads:
        thread.join(LIMIT_S)
    if missing := {"end", "row", "poll"} - seen.keys():
        raise SystemExit(f"not seen within {LIMIT_S:g} s: {', '.join(sorted(missing))}")
    return seen["row"] - seen["end"], seen["poll"] - seen["end"], seen["row"] - killed


def _noted(seen: dict[str, float], what: str, look: Callable[[], bool]) -> None:
    if look():
        seen[what] = time.monotonic()


def _wait_ends(descriptors: list[int]) -> bool:
    """Return once both processes have exited."""
    left, poll = set(descriptors), select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    while left:
        ready = {descriptor for descriptor, _ in poll.poll(LIMIT_S * 1000)}
        if not ready:
            return False
        for descriptor in ready:
            poll.unregister(descriptor)
            os.close(descriptor)
        left -= ready
    return True


def _wait_row(database: Path, run: int) -> bool:
    """Return once the commit of the run's end can be read."""
    ended = "SELECT ended_at FROM queries_run WHERE id = ?"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as rows:
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            if rows.execute(ended, (run,)).fetchone()[0] is not None:
                return True
            time.sleep(ASKED_EVERY_S)
    return False


def _wait_poll(pids: tuple[int, ...]) -> bool:
    """Return once a check, made every second, finds neither process."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if not any(_is_there(pid) for pid in pids):
            return True
        time.sleep(POLL_S)
    return False


def _is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _p95(values: list[float]) -> float:
    return sorted(values)[max(0, round(0.95 * len(values)) - 1)]


def _ms(values: list[float]) -> list[float]:
    return [value * 1000 for value in values]


if __name__ == "__main__":
    main()
