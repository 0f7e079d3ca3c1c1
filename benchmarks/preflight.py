"""Measure how long it takes to find out whether a changed definition can use its checkpoint.

- ours: a preflight over REST, from the click to the operation's end: a copy of the checkpoint, a
  separate Spark, the newest batch again, new data, the sink's temporary folder, and a comparison of
  the two plans. It tests a stateful SQL query with a changed window, while the query is streaming.
- baseline: the alternative without a preflight: restart the real query with the new definition,
  from the click to its first commit (or to its failure, which affects all users).

Both take turns on one running system (`manage.py up`, the demo's real flights), whose drivers share
the machine with the probe. In addition, a preflight of the demo's Python query is measured. At the
end, the live query's batches are checked: none must be missing or come from another run. The last
line is JSON; `slowest_s` must stay under 30.
"""

import argparse
import json
import statistics
from datetime import datetime
from functools import partial
from typing import Any

from benchmarks._measuring import report, spread, workplace
from tests import pieces
from tests.faults.system import System

TAKES = "7 minutes"

STREAMING = "flight-delays"
PYTHON = "flights-by-hour"


def main() -> None:
    """Start the system, measure, stop the system."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = max(5, options.parse_args().rounds)
    with workplace("preflight") as folder:
        system = System(folder, pieces.free_port())
        try:
            system.up()
            for name in (STREAMING, PYTHON):
                system.wait(f"5 batches of {name}", partial(_has_run, system, name))
            tried, python, restarts = [], [], []
            for _ in range(rounds):
                tried.append(_preflight(system, STREAMING, _changed(system), "differs"))
                python.append(_preflight(system, PYTHON, None, "passed"))
                restarts.append(_restart(system, PYTHON))
            _check(system, STREAMING)
        finally:
            system.close()
    _print("preflight of a stateful SQL query with a changed window", tried)
    _print("preflight of a Python query", python)
    _print("restart of the real query to its first commit", restarts)
    report(
        "preflight",
        ours=round(statistics.median(tried), 3),
        baseline=round(statistics.median(restarts), 3),
        ratio=round(statistics.median(restarts) / statistics.median(tried), 2),
        python_s=round(statistics.median(python), 3),
        slowest_s=round(max(tried + python), 3),
    )


def _has_run(system: System, name: str) -> bool:
    return system.batch(name) >= 4


def _changed(system: System) -> dict[str, Any]:
    """Return the streaming query's definition with its windows twice as long."""
    spec: dict[str, Any] = dict(system.query(STREAMING)["spec"])
    changed = spec["sql"].replace("1 hour", "2 hours")
    if changed == spec["sql"]:
        raise SystemExit("the demo's query no longer has a window of 1 hour")
    return {**spec, "sql": changed}


def _preflight(system: System, name: str, spec: dict[str, Any] | None, verdict: str) -> float:
    """Run a preflight for a definition; return the seconds from the click to the end."""
    operation = system.verb(name, "preflight", {"spec": spec} if spec else None)
    path = f"operations/{operation['id']}/?wait=30"
    ended = system.wait("the preflight's end", lambda: _over(system.get(path)))
    found = ended["result"].get("preflight", {}).get("verdict")
    if found != verdict:
        raise SystemExit(f"{name}: {found}, not {verdict}: {json.dumps(ended, indent=1)[:4000]}")
    return (_time(ended["ended_at"]) - _time(operation["created_at"])).total_seconds()


def _restart(system: System, name: str) -> float:
    """Restart a query; return the seconds from the click to the new run's first commit."""
    before = system.query(name)["current_run"]["id"]
    operation = system.verb(name, "restart")

    def committed() -> Any:
        run = system.query(name)["current_run"]
        if not run or run["id"] == before:
            return None
        return system.get(f"runs/{run['id']}/")["first_commit_at"]

    at = system.wait("the first commit", committed)
    return (_time(at) - _time(operation["created_at"])).total_seconds()


def _check(system: System, name: str) -> None:
    """Check that the live query kept running, in one run and batch after batch."""
    rows = system.get(f"queries/{name}/runs/")["results"]
    if len(rows) != 1:
        raise SystemExit(f"{name} was disturbed: {len(rows)} runs")
    batches = system.batches(name)
    if batches != list(range(batches[0], batches[-1] + 1)):
        raise SystemExit(f"{name} lost batches: {batches}")


def _over(operation: Any) -> Any:
    return operation if operation["outcome"] else None


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _print(what: str, values: list[float]) -> None:
    print(f"{what}: {spread(values)} s, {len(values)} times")


if __name__ == "__main__":
    main()
