"""Measure the memory of the control plane at rest, without drivers, without the demo, with no page.

All programs of `make run` are started in a home of their own, as `up` starts them. After a pause,
the proportional set size (PSS) of each process is read from the kernel: its own pages, and its
share of the pages that several processes map. JVMs are counted apart; at rest there is none.

- ours: the sum of all processes, in MB of 2^20 bytes (`total_mb`);
- baseline: the sum of the Python processes that Headgate had before each imported only what it
  needs (`_BEFORE`), having imported what it did then: all of them the tables, and most of them the
  tasks, every page and the REST API, too. Earlier versions cannot run here, so this stands in for
  them, without supervisord and Valkey. The last of them took 840 MB, measured as ours is.

Beside that, the Python of a driver with one running query is compared with the Python of a plain
PySpark script with the same query, without their JVMs (`driver_mb` more; the limit is 90 MB).

All take turns. Figures are reported only if every program is running and `/readyz` is ready at the
beginning and at the end. The last line is JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import psutil

from benchmarks._measuring import ratios, report, spread, workplace
from benchmarks.at_rest.idle import ready
from tests import pieces
from tests.faults.system import System
from tests.spark.driver_under_test import DriverUnderTest, rate_query, wait_for

TAKES = "10 minutes"

#: The first ticks of all tasks but the hourly ones are over by then.
RESTS_S = 40
#: Batches of half a second after which a driver's and a script's memory is read.
RUNS_FOR = 20
PROGRAMS = ("supervisord", "valkey", "ingester", "worker", "web", "spark-ui", "watcher")
_TABLES = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
import django
django.setup()
import apprise, queries.services.spark_ui, queries.services.alerts.watcher
"""
_EVERYTHING = f"""{_TABLES}
import queries.tasks, listeners.ticks, celery.apps.worker
import numpy, pyspark, tsdownsample
from django.core.checks import run_checks
run_checks()
"""
_READY = """
print("ready", flush=True)
sys.stdin.read()
"""
#: A script of a user's: the query of `rate_query`.
_PLAIN = f"""
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.driver.memory", "512m").getOrCreate()
numbers = spark.readStream.format("rate").option("rowsPerSecond", "5").load().select("value")
query = numbers.writeStream.format("noop").trigger(processingTime="500 milliseconds").start()
while query.lastProgress is None:
    query.awaitTermination(0.2)
{_READY}"""
#: What each process imported.
_BEFORE = {
    **dict.fromkeys(("up", "ingester", "worker", "web"), _EVERYTHING),
    **dict.fromkeys(("spark-ui", "watcher"), _TABLES),
}


def main() -> None:
    """Measure both arms in turns."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--rests", type=int, default=RESTS_S, help="seconds before a measurement")
    chosen = options.parse_args()
    ours: list[dict[str, float]] = []
    baseline: list[float] = []
    drivers: list[float] = []
    plain: list[float] = []
    with workplace("footprint") as folder:
        for number in range(chosen.rounds):
            place = folder / str(number)
            place.mkdir()
            if number % 2:
                baseline.append(_of_before(place))
            ours.append(_of_the_system(place, chosen.rests))
            if not number % 2:
                baseline.append(_of_before(place))
            drivers.append(_of_a_driver(place / "driver"))
            plain.append(_of_plain_spark(place))
    for name in ours[0]:
        print(f"{name:12} {spread([one[name] for one in ours])} MB")
    totals = [sum(one.values()) - one["JVMs"] for one in ours]
    print(f"{'total':12} {spread(totals)} MB, without JVMs; before {spread(baseline)}")
    print(f"a driver's Python {spread(drivers)} MB; of a plain script {spread(plain)} MB")
    report(
        "footprint",
        ours=round(statistics.median(totals), 1),
        baseline=round(statistics.median(baseline), 1),
        ratio=round(statistics.median(ratios(totals, baseline)), 2),
        unit="MB (PSS)",
        total_mb=round(statistics.median(totals), 1),
        processes={
            name: round(statistics.median(one[name] for one in ours), 1) for name in ours[0]
        },
        driver_mb=round(statistics.median(drivers) - statistics.median(plain), 1),
        rounds=chosen.rounds,
    )


def _of_the_system(place: Path, rests_s: int) -> dict[str, float]:
    """Return the memory of each process of a system at rest, in MB."""
    system = System(place / "home", pieces.free_port(), HEADGATE_DEMO="0")
    try:
        system.up()
        system.wait("readiness", lambda: ready(system))
        time.sleep(rests_s)
        found = _by_process(system)
        if missing := {"up", *PROGRAMS} - found.keys():
            raise SystemExit(f"not running: {', '.join(sorted(missing))}")
        system.wait("readiness", lambda: ready(system))
        return found
    finally:
        system.close()


def _by_process(system: System) -> dict[str, float]:
    assert system.process is not None
    names = {system.process.pid: "up"}
    for file in sorted((system.home / "run").glob("*.process")):
        names[json.loads(file.read_text())["pid"]] = file.stem
    found: dict[str, float] = defaultdict(float, {"JVMs": 0.0})
    root = psutil.Process(system.process.pid)
    for process in (root, *root.children(recursive=True)):
        name = "JVMs" if process.name() == "java" else names.get(process.pid, process.name())
        found[name] += pss_mb(process.pid)
    return found


def _of_before(place: Path) -> float:
    """Return the memory of the processes of `_BEFORE`, in MB."""
    environment = System(place / "other", pieces.free_port()).environment
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", imports + _READY],
            env={**environment, "SECRET_KEY": "of nothing"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for imports in _BEFORE.values()
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit("a process could not import what it should")
        return sum(pss_mb(process.pid) for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _of_a_driver(home: Path) -> float:
    """Return the memory of the Python of a driver whose query runs, in MB."""
    driver = DriverUnderTest(home)
    try:
        driver.launch().ready()
        driver.start(11, rate_query())
        wait_for(lambda: (run := driver.run(11)) and (run.last_batch or 0) > RUNS_FOR, "batches")
        return pss_mb(driver.ident().pid)
    finally:
        driver.end()


def _of_plain_spark(place: Path) -> float:
    """Return the memory of the Python of a plain script whose query runs, in MB."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _PLAIN],
        cwd=place,
        env={**os.environ, "JAVA_HOME": str(pieces.java().home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the plain script did not run its query")
        time.sleep(RUNS_FOR / 2)
        return pss_mb(process.pid)
    finally:
        process.communicate("", timeout=60)


def pss_mb(pid: int) -> float:
    """Return a process's proportional set size, in MB; raise `OSError` if it has ended."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"the kernel does not tell the memory of process {pid}")


if __name__ == "__main__":
    main()
