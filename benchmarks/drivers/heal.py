"""Measure how long a stateful query takes to heal, with and without a standby driver.

- ours: from SIGKILL of the driver's Python, or of its JVM, to the next commit, in an application
  with a standby (`standby: own`);
- baseline: the same kill of the same query in an application without one.

Both arms take turns on one running system (`manage.py up`, embedded Redis, SQLite, the demo's real
flights), and so do the two kinds of kill. Only the query that is measured runs: it is started, it
commits for a few seconds, its standby is ready, and then it is killed. So each kill is a first
failure. The commits are those that the driver reports, by this machine's clock. The last line is
JSON.
"""

import argparse
import os
import signal
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks._measuring import report, spread, workplace
from examples.flights.feeder import STATE, next_hour
from tests import pieces
from tests.faults.system import System

TAKES = "8 minutes"

DEMO = ("flight-delays", "long-delays", "flights-by-hour")
OURS, BASELINE = "healed", "restarted"
KILLS = ("pid", "jvm_pid")
#: Batches without a fault before a kill.
CALM = 5
#: Hours of the flights' day, each of 1.25 s, of which the next ten have flights, too.
MORNING = range(7, 12)


def main() -> None:
    """Start the system, kill drivers repeatedly, stop the system."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=10)
    rounds = max(5, options.parse_args().rounds)
    found: dict[tuple[str, str], list[float]] = {
        (name, kill): [] for name in (OURS, BASELINE) for kill in KILLS
    }
    with workplace("heal") as folder:
        system = System(folder, pieces.free_port())
        try:
            system.up()
            _define(system)
            for number in range(rounds):
                kill = KILLS[number % 2]
                for name in (OURS, BASELINE):
                    found[name, kill].append(_heal(system, name, kill))
                    print(f"{name}, {kill}: {found[name, kill][-1]:.2f} s", flush=True)
        finally:
            system.close()
    ours = sorted(found[OURS, "pid"] + found[OURS, "jvm_pid"])
    baseline = sorted(found[BASELINE, "pid"] + found[BASELINE, "jvm_pid"])
    for (name, kill), values in found.items():
        what = "Python" if kill == "pid" else "JVM"
        print(f"{name}: SIGKILL of {what} to the next commit: {spread(values, '.2f')} s")
    p50 = statistics.median(ours)
    report(
        "heal",
        ours=round(p50, 2),
        baseline=round(statistics.median(baseline), 2),
        ratio=round(statistics.median(baseline) / p50, 1),
        p50_s=round(p50, 2),
        p95_s=round(_p95(ours), 2),
        rounds=rounds,
    )


def _define(system: System) -> None:
    """Define and start both queries: the demo's stateful query, each in its own application."""
    spec: dict[str, Any] = dict(system.query("flight-delays")["spec"], pool="")
    spec |= {"sink": {"format": "noop"}, "trigger": {"kind": "processing_time"}}
    spec["trigger"]["interval"] = "1 second"
    for name in DEMO:
        system.verb(name, "stop", {"mode": "now"})
    for name, standby in ((OURS, "own"), (BASELINE, "none")):
        body = {
            "name": name,
            "spec": {
                "conf": {"spark.sql.shuffle.partitions": "4"},
                "standby": standby,
            },
        }
        _post(system, "applications/", body)
        _post(system, "queries/", {"name": name, "application": name, "spec": spec})


def _post(system: System, path: str, body: Any) -> None:
    status, answer = system.call("POST", path, body)
    if status != 201:
        raise SystemExit(f"{path} rejected the definition: {answer}")


def _heal(system: System, name: str, kill: str) -> float:
    """Start the query, kill one of its driver's processes; return seconds until it commits."""
    feeder = system.home / "demo" / "flights" / STATE
    system.verb(name, "start")
    system.running(name)
    before = system.batch(name)
    if name == OURS:
        system.wait("a standby", lambda: _standby_is_ready(system), 180)
    system.wait("a few batches", lambda: system.batch(name) > before + CALM)
    system.wait("the flights' morning", lambda: _is_morning(feeder))
    run, before = system.running(name)["current_run"], system.batch(name)
    killed = datetime.now(UTC)
    os.kill(run[kill], signal.SIGKILL)
    healed = system.wait("the next run's commit", lambda: _committed(system, name, run["id"]), 180)
    assert system.running(name)["current_run"]["id"] != run["id"]
    assert system.wait("a later batch", lambda: system.batch(name) > before)
    system.verb(name, "stop", {"mode": "now"})
    system.wait("no driver", lambda: _is_at_rest(system, name))
    return (datetime.fromisoformat(healed) - killed).total_seconds()


def _is_morning(feeder: Path) -> bool:
    hour = next_hour(feeder)
    return hour is not None and hour.hour in MORNING


def _is_at_rest(system: System, name: str) -> bool:
    found = system.get(f"applications/{name}/")
    return found["driver"] is None and found["standby"] is None


def _committed(system: System, name: str, before: int) -> str | None:
    """Return when the run after this one committed first; None if it has not."""
    run = system.get(f"queries/{name}/")["current_run"]
    if run is None or run["id"] == before:
        return None
    found: str | None = system.get(f"runs/{run['id']}/")["first_commit_at"]
    return found


def _standby_is_ready(system: System) -> bool:
    standby = system.get(f"applications/{OURS}/")["standby"]
    return standby is not None and standby["state"] == "LIVE"


def _p95(values: list[float]) -> float:
    return values[min(len(values) - 1, round(0.95 * len(values)))]


if __name__ == "__main__":
    main()
