"""Measure how long supervision takes: a start in a running driver, a detected exit, first batches.

- ours: click to first commit of a query that starts in a driver that is already running;
- baseline: the same query in its own application: the same click, a new driver.

Both arms take turns on one running system (`manage.py up`, embedded Redis, SQLite, the demo's real
flights). Two other times are measured: from `kill -9` of a driver's Python to the row that records
its exit, and from the printed URL to five batches of each demo query. Times are read from the rows,
all by this machine's clock. The last line is JSON.
"""

import argparse
import os
import signal
import statistics
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

from benchmarks._measuring import report, spread, workplace
from tests import pieces
from tests.faults.system import System

TAKES = "5 minutes"

DEMO = ("flight-delays", "long-delays", "flights-by-hour")


def main() -> None:
    """Start the system, measure, stop the system."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = max(5, options.parse_args().rounds)
    with workplace("supervision") as folder:
        system = System(folder, pieces.free_port())
        try:
            system.up()
            shown = time.monotonic()
            for name in DEMO:
                system.wait(f"5 batches of {name}", partial(_has, system, name))
            first_batches = time.monotonic() - shown
            _define(system)
            warm, cold, noticed = [], [], []
            for _ in range(rounds):
                warm.append(_start(system, "long-delays"))
                cold.append(_start(system, "long-delays-alone"))
                noticed.append(_kill(system, "long-delays-alone"))
                _stop(system, "long-delays-alone")
        finally:
            system.close()
    _print("start in a running driver, click to first commit", warm)
    _print("start in a new driver, click to first commit", cold)
    _print("kill -9 of a driver's Python to its recorded exit", noticed)
    print(f"printed URL to five batches of each demo query: {first_batches:.1f} s")
    report(
        "supervision",
        ours=round(statistics.median(warm), 3),
        baseline=round(statistics.median(cold), 3),
        ratio=round(statistics.median(cold) / statistics.median(warm), 2),
        noticed_s=round(statistics.median(noticed), 3),
        first_batches_s=round(first_batches, 1),
    )


def _has(system: System, name: str) -> bool:
    return system.batch(name) >= 4


def _define(system: System) -> None:
    """Define the baseline's query: the demo's query in its own application."""
    spec: dict[str, Any] = dict(system.query("long-delays")["spec"], pool="")
    spec["sink"] = {"format": "noop"}
    application = {"conf": {"spark.sql.shuffle.partitions": "4"}}
    body = {"name": "long-delays-alone", "spec": spec, "application_spec": application}
    status, answer = system.call("POST", "queries/", body)
    if status != 201:
        raise SystemExit(f"the baseline's query was rejected: {answer}")


def _start(system: System, name: str) -> float:
    """Stop the query if it is running, then start it; return seconds from click to first commit."""
    _stop(system, name)
    clicked = datetime.now(UTC)
    _await(system, system.verb(name, "start"))
    run = system.query(name)["current_run"]["id"]
    committed = system.wait(
        "the first commit", lambda: system.get(f"runs/{run}/")["first_commit_at"]
    )
    return (_time(committed) - clicked).total_seconds()


def _kill(system: System, name: str) -> float:
    """Kill the driver's Python; return seconds until its run has an end."""
    run = system.running(name)["current_run"]
    killed = datetime.now(UTC)
    os.kill(run["pid"], signal.SIGKILL)
    ended = system.wait("the end", lambda: system.get(f"runs/{run['id']}/")["ended_at"])
    system.running(name)
    return (_time(ended) - killed).total_seconds()


def _stop(system: System, name: str) -> None:
    _await(system, system.verb(name, "stop", {"mode": "now"}))
    if name.endswith("-alone"):  # the next start is to find no driver
        system.wait(
            "the driver's end", lambda: system.get(f"applications/{name}/")["driver"] is None
        )


def _await(system: System, operation: Any) -> None:
    path = f"operations/{operation['id']}/?wait=30"
    system.wait(operation["verb"], lambda: system.get(path)["outcome"] == "DONE")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _print(what: str, values: list[float]) -> None:
    print(f"{what}: {spread(values, '.2f')} s, {len(values)} times")


if __name__ == "__main__":
    main()
