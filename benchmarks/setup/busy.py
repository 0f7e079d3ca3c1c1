"""Measure what still works on a busy host: 90 processes that compute, on every core it has.

One turn: the system is started while the machine is quiet, the demo is stopped, and ten sessions of
nine processes each begin to compute. Then the demo is started, and one of its drivers is killed
with SIGKILL once it has committed; a query of the demo runs every minute by its schedule. All
limits have their defaults.

- ours: seconds from the start to the first batch of every query of the demo, in this checkout;
- baseline: the same in a clone of another revision (`--before`), if one is given.

A turn that does not get there counts with the seconds that it was given. It also shows how many
drivers were needed, how long the killed one took to commit again, how many of the due times were
decided, how many of the answers of `/readyz` were 200, and, in this checkout, the most seconds by
which periodic work was overdue. A turn takes about a quarter of an hour and loads the machine, so
there is one for each arm unless `--rounds` asks for more; `--seconds` makes it shorter. The last
line is JSON.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import redis

from benchmarks._measuring import report, spread, workplace
from controlplane.ticks import TICKS, Tick
from tests import pieces
from tests.faults.system import System

TAKES = "15 minutes"

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = ("flight-delays", "long-delays", "flights-by-hour")
PLANNED = "every-minute"
SESSIONS, IN_EACH = 10, 9
#: Seconds of load in a turn.
LOADED_S = 780.0
#: Seconds between two looks: the system has other work.
LOOK_EVERY_S = 5.0


class Busy(System):
    """A system that is asked rarely, and may answer late."""

    def ask(self, path: str) -> Any:
        """Return an answer's JSON; None if there was none, or an error."""
        with suppress(OSError, ValueError):
            status, body = self.call("GET", path)
            return body if status == 200 else None
        return None


@dataclass(slots=True)
class Turn:
    """What was seen in one turn."""

    loaded_s: float
    committed_s: dict[str, float] = field(default_factory=dict)
    drivers: int = 0
    healed_s: float | None = None  # None: not within the turn
    due: int = 0
    decided: int = 0
    ready: list[bool] = field(default_factory=list)
    overdue_s: float = 0.0

    @property
    def all_committed_s(self) -> float:
        """Return when the last query of the demo had committed, at most the length of a turn."""
        return max(self.committed_s.get(name, self.loaded_s) for name in DEMO)

    def __str__(self) -> str:
        healed = "not healed" if self.healed_s is None else f"healed in {self.healed_s:.0f} s"
        times = ", ".join(f"{self.committed_s.get(one, self.loaded_s):.0f}" for one in DEMO)
        return (
            f"first batches after {times} s with {self.drivers} drivers; {healed}; "
            f"{self.decided} of {self.due} due times decided; {sum(self.ready)} of "
            f"{len(self.ready)} times ready; overdue by {self.overdue_s:.0f} s at most"
        )


def main() -> None:
    """Run the turns of this checkout, and of another revision if one is given."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--before", default="", help="a revision to compare with")
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--seconds", type=float, default=LOADED_S, help="of load in a turn")
    given = options.parse_args()
    turns: dict[str, list[Turn]] = {"ours": []}
    with workplace("busy") as folder:
        trees = {"ours": REPOSITORY}
        if given.before:
            trees["baseline"] = _clone(given.before, folder / "before")
            turns["baseline"] = []
        for number in range(given.rounds):
            for arm in sorted(trees, reverse=number % 2 == 0):
                turns[arm].append(_turn(trees[arm], folder / f"{arm}-{number}", given.seconds))
                print(f"{arm}: {turns[arm][-1]}", flush=True)
    took = {arm: [one.all_committed_s for one in seen] for arm, seen in turns.items()}
    for arm, values in took.items():
        print(f"{arm}: all first batches after {spread(values)} s")
    ours = statistics.median(took["ours"])
    baseline = statistics.median(took["baseline"]) if given.before else None
    report(
        "busy",
        ours=round(ours),
        baseline=None if baseline is None else round(baseline),
        ratio=None if baseline is None else round(baseline / ours, 2),
        rounds=given.rounds,
    )


def _clone(revision: str, folder: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "--quiet", revision], check=True)
    return folder


def _turn(tree: Path, home: Path, loaded_s: float) -> Turn:
    system = Busy(home, pieces.free_port())
    system.folder = tree
    for name in ("START_DEADLINE_S", "CLASS_ARCHIVES", "STANDBYS_WHEN_BUSY"):
        system.environment.pop(f"HEADGATE_{name}")  # the defaults are what is measured
    try:
        system.up()
        for name in DEMO:
            system.running(name)
        _plan(system)
        for name in DEMO:
            system.verb(name, "stop", {"mode": "now"})
        system.rest()
        known = len(_drivers(home))
        with _load():
            seen = _watch(system, loaded_s)
        seen.drivers = len(_drivers(home)) - known
        return seen
    finally:
        system.close()


def _plan(system: System) -> None:
    """Define a query that reads what there is every minute, in an application of its own."""
    spec: dict[str, Any] = dict(system.query("flight-delays")["spec"], pool="")
    spec |= {"sink": {"format": "noop"}, "trigger": {"kind": "available_now"}}
    spec |= {"schedule": {"cron": "* * * * *"}}
    for path, body in (
        ("applications/", {"name": PLANNED}),
        ("queries/", {"name": PLANNED, "application": PLANNED, "spec": spec}),
    ):
        status, answer = system.call("POST", path, body)
        if status != 201:
            raise SystemExit(f"{path} rejected the definition: {answer}")


def _watch(system: Busy, loaded_s: float) -> Turn:
    seen, began, started = Turn(loaded_s), time.monotonic(), datetime.now(UTC)
    for name in DEMO:
        system.verb(name, "start")
    killed: tuple[float, int] | None = None
    while (passed := time.monotonic() - began) < loaded_s:
        seen.ready.append(system.ready())
        for name in DEMO:
            run = _open_run(system, name)
            if name not in seen.committed_s and run.get("first_commit_at"):
                at = datetime.fromisoformat(run["first_commit_at"]) - started
                seen.committed_s[name] = at.total_seconds()
            if name != DEMO[0] or not run:
                continue
            if killed is None and name in seen.committed_s and run["pid"]:
                os.kill(run["pid"], signal.SIGKILL)
                killed = (time.monotonic(), run["id"])
            elif killed and run["id"] != killed[1] and run.get("first_commit_at"):
                seen.healed_s = seen.healed_s or time.monotonic() - killed[0]
        seen.overdue_s = max(seen.overdue_s, _overdue_s(system, datetime.now(UTC)))
        time.sleep(min(LOOK_EVERY_S, max(0.0, loaded_s - passed)))
    ended = datetime.now(UTC)
    first = started.replace(second=0, microsecond=0) + timedelta(minutes=1)
    due = {first + timedelta(minutes=number) for number in range(60)}
    seen.due = sum(at < ended - timedelta(seconds=60) for at in due)
    page = system.ask(f"queries/{PLANNED}/schedule/runs/?limit=50") or {"results": []}
    planned = {datetime.fromisoformat(row["due_at"]) for row in page["results"]}
    seen.decided = len({at for at in due if at < ended - timedelta(seconds=60)} & planned)
    return seen


def _open_run(system: Busy, name: str) -> dict[str, Any]:
    """Return a query's open run with its first commit; an empty one if there was no answer."""
    current = (system.ask(f"queries/{name}/") or {}).get("current_run")
    return (current and system.ask(f"runs/{current['id']}/")) or {}


def _overdue_s(system: System, now: datetime) -> float:
    """Return by how many seconds the tick that is latest is overdue; 0 if that is not reported."""
    address = (system.home / "redis_url").read_text().strip()
    with suppress(redis.RedisError), redis.Redis.from_url(address, socket_timeout=60) as client:
        raw: Any = client.hgetall("headgate:ticks")
        runs = [json.loads(text)["runs"] for text in raw.values()]
        return max((_late_s(tick, runs, now) for tick in TICKS), default=0.0)
    return 0.0


def _late_s(tick: Tick, runs: Sequence[Mapping[str, Any]], now: datetime) -> float:
    ends = [one[tick.name][1] for one in runs if tick.name in one and one[tick.name][1]]
    if not ends:
        return 0.0
    newest = max(datetime.fromisoformat(end) for end in ends)
    return (now - newest).total_seconds() - tick.every_s


def _drivers(home: Path) -> set[Path]:
    """Return the folders of all drivers there were."""
    found = (home / "drivers").glob("*/*")
    return {folder for folder in found if folder.name.isdigit()}


@contextmanager
def _load() -> Iterator[None]:
    """Have ten sessions of nine processes each compute: a kernel may schedule by sessions."""
    one = "while True: pass"
    start = f"import os; [os.fork() for _ in range({IN_EACH - 1}) if os.getpid() == os.getsid(0)]"
    sessions = [
        subprocess.Popen([sys.executable, "-c", f"{start}\n{one}"], start_new_session=True)
        for _ in range(SESSIONS)
    ]
    try:
        yield
    finally:
        for session in sessions:
            os.killpg(session.pid, signal.SIGKILL)
            session.wait()


if __name__ == "__main__":
    main()
