"""Measure the control plane's CPU time with 10,000 defined queries, none of which is running.

A database is filled, and all programs of `make run` are started with it, without the demo: web,
worker, ingester, watcher and Valkey. After a pause, the processor time of their processes
(user and system) is read from the kernel, and once more at the end: other work on the machine does
not affect these figures.

- ours: per cent of a core at 10,000 defined queries (`--queries`);
- baseline: the same with 100.

A third system runs 200 queries (`--running`), five to an application, by a launcher without
processes: supervision works as for real drivers, and no batch ends meanwhile.

Figures are reported only if each system has all its queries in the expected phase, is ready
according to `/readyz` at the beginning and at the end, and has not lost a process in between. The
last line is JSON.
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
from benchmarks.many import Filled
from benchmarks.pages import FEW, MANY, configure, fill
from tests import pieces
from tests.faults.system import System

TAKES = "8 minutes"

#: What begins with the processes is over by then: their first ticks, the looks at every table.
RESTS_S = 30
#: A query with this trigger is not late without events while it is measured.
RARE = {"kind": "processing_time", "interval": "10 minutes"}
#: For the system whose queries run without drivers.
_DOUBLED = {
    "DJANGO_SETTINGS_MODULE": "benchmarks.at_rest._doubled",
    "HEADGATE_DRIVER_MEMORY_BUDGET_MB": "16777216",
    "HEADGATE_STARTS_AT_ONCE": "64",
}
PROGRAMS = ("web", "worker", "ingester", "watcher", "valkey", "spark-ui", "supervisord")


def main() -> None:
    """Measure one system, then the other."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, default=MANY)
    options.add_argument("--seconds", type=int, default=90)
    options.add_argument("--running", type=int, default=200, help="in the third system")
    options.add_argument("--run", nargs=2, help=argparse.SUPPRESS)  # a folder, how many queries
    options.add_argument("--fill", nargs=2, help=argparse.SUPPRESS)  # a folder, how many queries
    chosen = options.parse_args()
    if chosen.fill:
        configure(Path(chosen.fill[0]))
        fill(int(chosen.fill[1]), running=False)
        return
    if chosen.run:
        configure(Path(chosen.run[0]))
        Filled(int(chosen.run[1]), trigger=RARE).define_and_request()
        return
    if chosen.seconds < 60:
        raise SystemExit("ticks are up to 60 s apart: --seconds must be at least 60")
    with workplace("idle") as folder:
        few = _measured(folder / "few", FEW, chosen.seconds)
        many = _measured(folder / "many", chosen.queries, chosen.seconds)
        busy = _measured(folder / "busy", chosen.running, chosen.seconds, running=True)
    for name in PROGRAMS:
        print(
            f"{name:10} {chosen.queries:,}: {many[name]:5.2f} %   {FEW}: {few[name]:5.2f} %   "
            f"{chosen.running} running: {busy[name]:5.2f} %"
        )
    ours, baseline = (sum(found.values()) for found in (many, few))
    report(
        "idle",
        ours=round(ours, 2),
        baseline=round(baseline, 2),
        ratio=round(ours / baseline, 2),
        unit="% of a core",
        programs={name: round(share, 2) for name, share in many.items()},
        running=round(sum(busy.values()), 2),
        programs_running={name: round(share, 2) for name, share in busy.items()},
        seconds=chosen.seconds,
    )


def _measured(
    folder: Path, queries: int, seconds: int, *, running: bool = False
) -> dict[str, float]:
    """Return each program's use of a core, in per cent."""
    folder.mkdir()
    how = "--run" if running else "--fill"
    command = [sys.executable, "-m", "benchmarks.at_rest.idle", how, str(folder), str(queries)]
    subprocess.run(command, check=True)
    more = _DOUBLED if running else {}
    system = System(folder / "home", pieces.free_port(), HEADGATE_DEMO="0", **more)
    try:
        system.up()
        if running:
            system.wait("all to run", lambda: _counts(system) == (queries, queries))
        _check(system, queries, running=queries if running else 0)
        time.sleep(RESTS_S)
        processes = {name: _process(system, name) for name in PROGRAMS}
        before = {name: _taken(one) for name, one in processes.items()}
        began = time.monotonic()
        time.sleep(seconds)
        after = {name: _taken(one) for name, one in processes.items()}
        lasted = time.monotonic() - began
        _check(system, queries, running=queries if running else 0)
    finally:
        system.close()
    return {name: 100 * (after[name] - before[name]) / lasted for name in PROGRAMS}


def _check(system: System, queries: int, *, running: int) -> None:
    """Check that all queries exist and run or do not, and that everything works."""
    found, run = _counts(system)
    if (found, run) != (queries, running):
        raise SystemExit(f"{found} queries are defined, {run} run")
    system.wait("readiness", lambda: ready(system))


def _counts(system: System) -> tuple[int, int]:
    """Return how many queries are defined, and how many run; -1 while some are changing phase."""
    with closing(sqlite3.connect(system.home / "headgate.sqlite3")) as database:
        found, stopped, running = database.execute(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE phase = 'STOPPED'), "
            "COUNT(*) FILTER (WHERE phase = 'RUNNING') FROM queries_query"
        ).fetchone()
    if running not in (0, found - stopped):
        return found, -1
    return found, found - stopped


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
