"""Compare pages with 10,000 queries and the same pages with 100.

Two databases are filled in the same way: queries have a revision, a checkpoint and an ended run;
one query in ten is running and has a progress line with numbers. The list, its groups, the overview
and a search are requested as by a signed-in browser, through all middleware.

- ours: each page with 10,000 queries (`--queries`);
- baseline: the same page with 100.

Figures are reported only if each page shows the expected rows and counts at both sizes, and has at
most 300 KB. The two sizes take turns in each round. Times are processor times: SQLite works in the
same process, so any waiting is only for other work on the machine. The last line is JSON: the ratio
is that of the page with the largest slowdown.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks._measuring import report, spread, workplace

TAKES = "4 minutes"

FEW, MANY = 100, 10_000
LARGEST_KB = 300
ADDRESSES = (
    "/",
    "/queries/",
    "/queries/?group=attention",
    "/queries/?q=query-0007",
    "/queries/?page=2",
    "/queries/?group=running&q=query-0000",
    "/queries/?group=stopped",
    "/queries/?health=PROGRESSING&q=query-0000",
    "/queries/?phase=STOPPED",
    "/queries/?label=team%3Dteam-3&q=query-0000",
    "/queries/?by=application",
    "/queries/?by=team",
    "/applications/",
    "/failures/",
    "/runs/",
    "/checkpoints/",
    "/alerts/",
    "/audit/",
)
NOW = datetime.now(UTC)


def main() -> None:
    """Fill two databases, then measure them in turn."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, default=MANY)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)  # a folder, how many queries
    chosen = options.parse_args()
    if chosen.serve:
        _serve(Path(chosen.serve[0]), int(chosen.serve[1]))
        return
    with workplace("pages") as folder:
        few, many = (
            Server("benchmarks.pages", folder / "few", FEW),
            Server("benchmarks.pages", folder / "many", chosen.queries),
        )
        try:
            _run(few, many, rounds=chosen.rounds)
        finally:
            few.end()
            many.end()


class Server:
    """A process that serves pages from its own database, one line per request."""

    def __init__(self, module: str, folder: Path, queries: int) -> None:
        folder.mkdir()
        self.queries = queries
        command = [sys.executable, "-m", module, "--serve", str(folder), str(queries)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, address: str) -> dict[str, Any]:
        """Return the process's measurements for a URL."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(address + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the server for {self.queries} queries exited")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def _run(few: Server, many: Server, *, rounds: int) -> None:
    for address in ADDRESSES:
        shown = set()
        for server in (few, many):
            answer = server.ask(address)
            _check(server, address, answer)
            shown.add(answer["rows"])
        if len(shown) > 1:  # to draw more rows takes longer, however many there are
            raise SystemExit(f"{address} shows {shown} rows: the two sizes do not compare")
    taken: dict[str, dict[str, list[float]]] = {a: {"ours": [], "few": []} for a in ADDRESSES}
    largest = 0.0
    for number in range(rounds):
        for address in ADDRESSES:
            arms: list[tuple[str, Server]] = [("few", few), ("ours", many)]
            for name, server in arms if number % 2 else reversed(arms):
                answer = server.ask(address)
                _check(server, address, answer)
                taken[address][name].append(1000 * answer["seconds"])
                largest = max(largest, answer["kb"])
    worst = max(ADDRESSES, key=lambda a: _ratio(taken[a]))
    for address, found in taken.items():
        ours, base = spread(found["ours"]), spread(found["few"])
        print(f"{address:28} {many.queries:,}: {ours} ms   {few.queries}: {base} ms")
    print(f"largest page {largest:.0f} KB; slowest against {few.queries} queries: {worst}")
    slow, quick = (statistics.median(taken[worst][name]) for name in ("ours", "few"))
    report(
        "pages",
        ours=round(slow, 1),
        baseline=round(quick, 1),
        ratio=round(_ratio(taken[worst]), 2),
        largest_kb=round(largest),
    )


def _ratio(found: dict[str, list[float]]) -> float:
    return statistics.median(found["ours"]) / statistics.median(found["few"])


def _check(server: Server, address: str, answer: dict[str, Any]) -> None:
    """Check that a page shows the expected content."""
    if answer["status"] != 200:
        raise SystemExit(f"{address} answered {answer['status']}")
    if answer["kb"] > LARGEST_KB:
        raise SystemExit(f"{address} has {answer['kb']:.0f} KB at {server.queries} queries")
    if address == "/queries/" and (answer["rows"], answer["total"]) != (50, server.queries):
        raise SystemExit(f"{address} shows {answer['rows']} of {answer['total']} queries")
    if "q=query-0007" in address and answer["rows"] < 1:
        raise SystemExit(f"{address} finds nothing")


# --- a server -----------------------------------------------------------------------------
def _serve(folder: Path, queries: int) -> None:
    configure(folder)
    fill(queries)
    client = signed_in()

    def page(address: str) -> dict[str, Any]:
        """Return {seconds, kb, rows, status, total} of a page."""
        began = time.process_time()
        answer = client.get(address)
        text = answer.content.decode()
        seconds = time.process_time() - began
        total = re.search(r'id="count-all"[^>]*>([\d,]+)<', text)
        return {
            "seconds": seconds,
            "status": answer.status_code,
            "kb": len(text) / 1024,
            "rows": len(re.findall(r'<tr id="row-', text)),
            "total": int(total[1].replace(",", "")) if total else 0,
        }

    answers(sys.stdin, page)


def answers(addresses: Iterable[str], ask: Callable[[str], dict[str, Any]]) -> None:
    """Respond to each line with the measurements of its page."""
    for line in addresses:
        print(json.dumps(ask(line.strip())), flush=True)


def configure(folder: Path, redis_url: str = "redis://127.0.0.1:9/0") -> None:
    """Set up Django with its own database in the folder, without Redis unless there is a URL."""
    os.environ.update(
        DJANGO_SETTINGS_MODULE="controlplane.settings",
        HEADGATE_HOME=str(folder / "home"),
        HEADGATE_LOG_LEVEL="ERROR",
        ALLOWED_HOSTS="testserver",
        REDIS_URL=redis_url,  # by default, no server: pages get no notification
    )
    os.environ.pop("DATABASE_URL", None)
    (folder / "home").mkdir(exist_ok=True)
    import django

    django.setup()
    from django.conf import settings

    # Files of the console are served by another part of the stack, under names of their own.
    settings.STORAGES["staticfiles"] = {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
    }


def signed_in() -> Any:
    """Return a client in which an admin is signed in."""
    from django.contrib.auth.models import User
    from django.test import Client

    admin = User.objects.create_superuser("admin", password=os.urandom(8).hex())
    client = Client()
    client.force_login(admin, backend="django.contrib.auth.backends.ModelBackend")
    return client


def fill(count: int, *, running: bool = True) -> None:
    """Write a number of queries, of which one in ten is running, or none."""
    from django.core.management import call_command
    from django.db import transaction

    call_command("migrate", verbosity=0)
    with transaction.atomic():
        _rows(count, running=running)


def _rows(count: int, *, running: bool) -> None:
    from listeners.models import Latest
    from queries.domain.states import Desired, DriverState, Phase, RunOutcome, Verdict
    from queries.models.applications import Application, ApplicationRevision
    from queries.models.definitions import Checkpoint, Query, QueryRevision
    from queries.models.drivers import Driver, Run

    homes = [
        Application(name=f"app-{number:04}", created_at=NOW, labels={"team": f"team-{number % 7}"})
        for number in range(count // 2)
    ]
    Application.objects.bulk_create(homes)
    revisions = ApplicationRevision.objects.bulk_create(
        ApplicationRevision(application=home, number=1, spec={}, created_at=NOW) for home in homes
    )
    drivers = Driver.objects.bulk_create(
        Driver(
            application=home,
            application_revision=revision,
            epoch=number,
            host="here",
            directory=f"/d/{number}",
            state=DriverState.LIVE if running else DriverState.ENDED,
            state_since=NOW,
            ended_at=None if running else NOW,
            created_at=NOW,
        )
        for number, (home, revision) in enumerate(zip(homes, revisions, strict=True))
    )
    queries = Query.objects.bulk_create(
        Query(
            name=f"query-{number:05}",
            application=homes[number % len(homes)],
            created_at=NOW,
            phase_since=NOW,
            **(
                {"desired": Desired.RUNNING, "phase": Phase.RUNNING, "verdict": Verdict.PROGRESSING}
                if running and number % 10 == 0
                else {}
            ),
        )
        for number in range(count)
    )
    forms = QueryRevision.objects.bulk_create(
        QueryRevision(query=query, number=1, kind="sql", spec=_spec(), created_at=NOW)
        for query in queries
    )
    checkpoints = Checkpoint.objects.bulk_create(
        Checkpoint(query=query, location=f"file:///c/{query.name}", created_at=NOW)
        for query in queries
    )
    Run.objects.bulk_create(
        Run(
            query=query,
            driver=drivers[number % len(homes)],
            revision=form,
            checkpoint=checkpoint,
            epoch=number,
            generation=1,
            cause="ASKED_START",
            created_at=NOW - timedelta(hours=2),
            **(
                {"outcome": RunOutcome.OPEN, "proven_at": NOW}
                if running and number % 10 == 0
                else {"outcome": RunOutcome.STOPPED, "ended_at": NOW - timedelta(minutes=30)}
            ),
        )
        for number, (query, form, checkpoint) in enumerate(
            zip(queries, forms, checkpoints, strict=True)
        )
    )
    Latest.objects.bulk_create(
        Latest(query=query.pk, driver=1, epoch=1, seq=1, run=1, at=NOW, progress=_line())
        for query in (queries[::10] if running else ())
    )


def _spec() -> dict[str, Any]:
    return {
        "kind": "sql",
        "sources": [{"name": "ticks", "format": "rate", "options": {"rowsPerSecond": "10"}}],
        "sql": "SELECT * FROM ticks",
        "sink": {"format": "noop"},
        "trigger": {"kind": "processing_time", "interval": "5 seconds"},
    }


def _line() -> dict[str, Any]:
    return {
        "batchId": 7,
        "timestamp": NOW.isoformat(),
        "numInputRows": 1_000,
        "inputRowsPerSecond": 200.0,
        "processedRowsPerSecond": 900.0,
        "batchDuration": 800,
        "durationMs": {"addBatch": 700, "triggerExecution": 800},
    }


if __name__ == "__main__":
    main()
