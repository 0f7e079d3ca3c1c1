"""Measure the control plane's CPU time with 10,000 defined queries, none of which is running.

A database is filled, and all programs of `make run` are started with it, without the demo: web,
worker, beat, ingester, watcher and Valkey. After a pause, the processor time of their processes
(user and system) is read from the kernel, and once more at the end: other work on the machine does
not affect these figures.

- ours: per cent of a core at 10,000 defined queries (`--queries`);
- baseline: the same with 100.

Figures are reported only if both systems have all their queries, are ready according to `/readyz`
at the beginning and at the end, and have not lost a process in between. The last line is JSON.
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import psutil

from benchmarks._measuring import report, workplace
from benchmarks.pages import FEW, MANY, configure, fill
from tests import pieces
from tests.faults.system import System

TAKES = "5 minutes"

#: What begins with the processes is over by then: their first ticks, the looks at every table.
RESTS_S = 30
PROGRAMS = ("web", "worker", "beat", "ingester", "watcher", "valkey", "spark-ui", "supervisord")


def main() -> None:
    """Measure one system, then the other."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, default=MANY)
    options.add_argument("--seconds", type=int, default=90)
    options.add_argument("--fill", nargs=2, help=argparse.SUPPRESS)  # a folder, how many queries
    chosen = options.parse_args()
    if chosen.fill:
        configure(Path(chosen.fill[0]))
        fill(int(chosen.fill[1]), running=False)
        return
    if chosen.seconds < 60:
        raise SystemExit("ticks are up to 60 s apart: --seconds must be at least 60")
    with workplace("idle") as folder:
        few = _measured(folder / "few", FEW, chosen.seconds)
        many = _measured(folder / "many", chosen.queries, chosen.seconds)
    for name in PROGRAMS:
        print(f"{name:10} {chosen.queries:,}: {many[name]:5.2f} %   {FEW}: {few[name]:5.2f} %")
    ours, baseline = (sum(found.values()) for found in (many, few))
    report(
        "idle",
        ours=round(ours, 2),
        baseline=round(baseline, 2),
        ratio=round(ours / baseline, 2),
        unit="% of a core",
        programs={name: round(share, 2) for name, share in many.items()},
        seconds=chosen.seconds,
    )


def _measured(folder: Path, queries: int, seconds: int) -> dict[str, float]:
    """Return each program's use of a core, in per cent."""
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.at_rest.idle", "--fill", str(folder), str(queries)]
    subprocess.run(command, check=True)
    system = System(folder / "home", pieces.free_port(), HEADGATE_DEMO="0")
    try:
        system.up()
        _check(system, queries)
        time.sleep(RESTS_S)
        processes = {name: _process(system, name) for name in PROGRAMS}
        before = {name: _taken(one) for name, one in processes.items()}
        began = time.monotonic()
        time.sleep(seconds)
        after = {name: _taken(one) for name, one in processes.items()}
        lasted = time.monotonic() - began
        _check(system, queries)
    finally:
        system.close()
    return {name: 100 * (after[name] - before[name]) / lasted for name in PROGRAMS}


def _check(system: System, queries: int) -> None:
    """Check that all queries exist, and that everything works."""
    with closing(sqlite3.connect(system.home / "headgate.sqlite3")) as database:
        found, running = database.execute(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE phase <> 'STOPPED') FROM queries_query"
        ).fetchone()
    if (found, running) != (queries, 0):
        raise SystemExit(f"{found} queries are defined, {running} are not stopped")
    system.wait("readiness", lambda: ready(system))


def ready(system: System) -> bool:
    """Return whether `/readyz` reports that all parts work."""
    try:
        with urllib.request.urlopen(f"{system.base}/readyz", timeout=10) as answer:
            return bool(json.load(answer)["status"] == "ready")
    except urllib.error.HTTPError:
        return False


def _process(system: System, program: str) -> psutil.Process:
    identity = json.loads((system.home / "run" / f"{program}.process").read_text())
    return psutil.Process(identity["pid"])


def _taken(process: psutil.Process) -> float:
    """Return a process's processor time so far, in seconds; it must still be the same process."""
    if not process.is_running():
        raise SystemExit(f"{process} has ended")
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    main()
