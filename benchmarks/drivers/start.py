"""Measure how soon a query commits in a new driver, with a class archive and without one.

- ours: from the click on Start to the first commit in a driver that does not exist yet, whose JVM
  maps the archive of Spark's classes;
- baseline: the same without the archive.

Both arms take turns on one running system (`manage.py up`, embedded Redis, SQLite), with a query
with state over files, in an application of its own; every start continues its checkpoint with a new
file. The archive is made first, as the worker makes it. A table shows where the time goes: times
are read from the driver's files, the time of code generation from Spark's own metrics. The target
is 9 s on two quiet cores. The last line is JSON.
"""

import argparse
import json
import os
import re
import statistics
import threading
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks._measuring import ratios, report, spread, workplace
from controlplane import jws
from queries.domain.protocol import DRIVER_LOG, IDENT, SPEC, STATUS, DriverSpec, DriverStatus, Ident
from queries.driver_folder import DriverFolder
from queries.launchers.process import class_archives, environment
from tests import pieces
from tests.faults.system import System

TAKES = "6 minutes"

QUERY = "start"
#: Seconds after which a start is given up, and the benchmark with it.
LIMIT_S = 300.0
_READY = re.compile(r"ready; seconds: (.+)")


def main() -> None:
    """Start the system, start the query repeatedly, stop the system."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = max(5, options.parse_args().rounds)
    with workplace("start") as folder:
        os.environ["JAVA_HOME"] = str(pieces.java().home)
        system = System(folder, pieces.free_port(), HEADGATE_DEMO="0")
        archive = class_archives.archive(
            class_archives.beside(folder / "drivers"), environment.passed(os.environ, ())
        )
        began = time.monotonic()
        class_archives.make(archive, dict(os.environ), "", threading.Event().wait)
        print(f"the archive: {archive.stat().st_size / 1e6:.0f} MB in {_since(began):.0f} s")
        try:
            system.up()
            _define(system)
            _start(system, archive, True)  # the control plane's first start imports more
            found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
            for turn in range(rounds):
                for mapped in (True, False) if turn % 2 else (False, True):
                    found[mapped].append(_start(system, archive, mapped))
        finally:
            system.close()
    _table(found)
    ours, baseline = ([one["all"] for one in found[mapped]] for mapped in (True, False))
    report(
        "start",
        ours=round(statistics.median(ours), 2),
        baseline=round(statistics.median(baseline), 2),
        ratio=round(statistics.median(ratios(baseline, ours)), 2),
        p50_s=round(statistics.median(ours), 2),
        unit="s from the click to the first commit",
        target_s=9.0,
        rounds=rounds,
    )


def _define(system: System) -> None:
    """Define the query in its own application."""
    data = system.home / "data"
    spec: dict[str, Any] = {
        "kind": "sql",
        "sources": [
            {
                "name": "flights",
                "format": "json",
                "options": {"path": str(data / "in")},
                "schema": "carrier STRING, at TIMESTAMP, delay INT",
                "watermark": {"column": "at", "delay": "10 minutes"},
            }
        ],
        "sql": "SELECT window(at, '1 minute') AS minute, carrier, count(*) AS flights,"
        " avg(delay) AS delay FROM flights GROUP BY 1, 2",
        "sink": {"format": "json", "options": {"path": str(data / "out")}},
        "trigger": {"kind": "processing_time", "interval": "1 second"},
    }
    _write_file(system)
    body = {"name": QUERY, "spec": spec, "application_spec": {}}
    status, answer = system.call("POST", "queries/", body)
    if status != 201:
        raise SystemExit(f"the query was rejected: {answer}")


def _write_file(system: System) -> None:
    """Add a file with rows for the next batch."""
    folder = system.home / "data" / "in"
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat()
    rows = [{"carrier": f"C{one % 20}", "at": now, "delay": one % 90} for one in range(500)]
    draft = folder / f".{time.time_ns()}"
    draft.write_text("\n".join(map(json.dumps, rows)))
    draft.rename(folder / f"{draft.name[1:]}.json")


def _start(system: System, archive: Path, mapped: bool) -> dict[str, float]:
    """Start the query in a new driver, then stop it; return the seconds of each step."""
    aside = archive.with_suffix(".aside")
    if archive.exists() is not mapped:
        (aside if mapped else archive).rename(archive if mapped else aside)
    _write_file(system)
    clicked = datetime.now(UTC)
    path = f"operations/{system.verb(QUERY, 'start')['id']}/?wait=30"
    system.wait("the start", lambda: system.get(path)["outcome"] == "DONE", LIMIT_S)
    run = system.query(QUERY)["current_run"]["id"]
    committed = system.wait(
        "the first commit", lambda: system.get(f"runs/{run}/")["first_commit_at"], LIMIT_S
    )
    folder = DriverFolder.of(max((system.home / "drivers" / QUERY).glob("[0-9]*"), key=_number))
    ident = Ident.loads((folder.control / IDENT).read_text())
    [status] = DriverStatus.loads((folder.own / STATUS).read_text()).runs
    maps = Path(f"/proc/{ident.jvm_pid}/maps").read_text()
    if (str(archive) in maps) is not mapped:
        raise SystemExit(f"{archive} is {'not ' if mapped else ''}mapped")
    steps = _steps(folder, ident, status.started_at or "", clicked, committed)
    steps["of these, code generation"] = _compiling(folder)
    print(f"{'with' if mapped else 'without'} the archive: {steps['all']:.2f} s", flush=True)
    system.verb(QUERY, "stop", {"mode": "now"})
    system.wait("its end", lambda: system.get(f"applications/{QUERY}/")["driver"] is None)
    return steps


def _steps(
    folder: DriverFolder, ident: Ident, started: str, clicked: datetime, committed: str
) -> dict[str, float]:
    """Return the steps of a start in seconds, in order, and "all"."""
    [told] = _READY.findall((folder.own / DRIVER_LOG).read_text())
    inside = {
        name: float(took) for name, _, took in (one.rpartition(" ") for one in told.split(", "))
    }
    spawned, began = _time(ident.spawned_at), _time(started)
    ready = spawned.timestamp() + sum(inside.values())
    return {
        "supervision, until the spawn": (spawned - clicked).total_seconds(),
        **inside,
        "the query's session and plan, to its start": began.timestamp() - ready,
        "first batch, to its commit": (_time(committed) - began).total_seconds(),
        "all": (_time(committed) - clicked).total_seconds(),
    }


def _compiling(folder: DriverFolder) -> float:
    """Return the seconds that Spark has spent compiling generated code, by its own metrics."""
    spec = DriverSpec.loads((folder.control / SPEC).read_text())
    token = jws.token(bytes.fromhex(spec.ui_key), now=datetime.now(UTC))
    request = urllib.request.Request(
        f"http://127.0.0.1:{spec.ui_port}/metrics/json",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        found: Mapping[str, Any] = json.load(answer)["histograms"]
    [times] = [one for name, one in found.items() if name.endswith("CodeGenerator.compilationTime")]
    return float(times["count"] * times["mean"] / 1000)


def _table(found: Mapping[bool, list[dict[str, float]]]) -> None:
    print(f"| seconds, median (range) of {len(found[True])} | with the archive | without |")
    print("|---|---|---|")
    for step in found[True][0]:
        cells = (spread([one[step] for one in found[mapped]], ".2f") for mapped in (True, False))
        print(f"| {step} | {' | '.join(cells)} |")


def _number(path: Path) -> int:
    return int(path.name)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _since(began: float) -> float:
    return time.monotonic() - began


if __name__ == "__main__":
    main()
