"""One installation in one thread: real rows, a real driver, a real broker, and every task's work.

What workers and ingester do side by side is done here in turn, each time somebody waits.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from django.utils import timezone

from listeners.ingest import Ingester
from queries.domain.states import OperationOutcome, StopMode
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Run
from queries.models.history import Operation
from queries.services.kafka.lag import look_at_sources
from queries.services.kafka.loss_ledger import keep_ledger
from queries.services.procedures.engine import advance, due_operations
from queries.services.supervision import application_operations, operations
from queries.services.supervision.reconcile import due_applications, reconcile
from queries.tasks import PROCEDURES

T = TypeVar("T")

LIMIT_S = 240.0  # generous: a loaded machine must not fail a test
LOOK_EVERY_S = 2.0


class World:
    """An installation with one application."""

    def __init__(self, home: Path, ingester: Ingester) -> None:
        self.home = home
        self.ingester = ingester
        self.launcher = LocalProcessLauncher(home / "drivers", home / "code")
        self.looks = True  # at the brokers
        self._looked = 0.0
        now = timezone.now()
        self.application = Application.objects.create(name="streams", created_at=now)
        spec = {
            "master": "local[2]",
            "memory": "1g",
            "conf": {"spark.sql.shuffle.partitions": "2"},
            "connectors": ["kafka"],
        }
        revision = self.application.revisions.create(
            number=1, spec=spec, author="aude", created_at=now
        )
        self.application.target_revision = revision
        self.application.save()

    def query(self, name: str, servers: str, topic: str, **changes: Any) -> Query:
        """Define a query over a topic; by default it counts records by key, into nothing."""
        options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **changes.pop("options", {}),
        }
        now = timezone.now()
        row = Query.objects.create(name=name, application=self.application, created_at=now)
        spec = {
            "kind": "sql",
            "sources": [{"name": "records", "format": "kafka", "options": options}],
            "sql": "SELECT value FROM records",
            "sink": {"format": "noop"},
            "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
            **changes,
        }
        row.revisions.create(number=1, kind="sql", spec=spec, author="aude", created_at=now)
        location = f"file://{self.home}/checkpoints/{name}"
        Checkpoint.objects.create(query=row, location=location, created_at=now)
        return row

    def row(self, name: str) -> Query:
        """Return the query as it is now."""
        return Query.objects.select_related("application").get(name=name)

    def start(self, name: str) -> None:
        """Click start."""
        operations.request_start(query=self.row(name), actor="otto", now=timezone.now())

    def stop(self, name: str) -> None:
        """Click stop, and wait until it stands."""
        operations.request_stop(
            query=self.row(name), mode=StopMode.GRACEFUL, actor="otto", now=timezone.now()
        )
        self.wait(lambda: self.row(name).phase == "STOPPED", f"{name} stands")

    def runs(self, name: str) -> int:
        """Return how often the query was started."""
        return Run.objects.filter(query__name=name).count()

    def wait(self, look: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
        """Let everything work until `look` finds something, and return that."""
        end = time.monotonic() + limit_s
        while True:
            self._work()
            found = look()
            if found:
                return found
            assert time.monotonic() < end, f"{what}: not within {limit_s} s; {self._standing()}"
            time.sleep(0.3)

    def look(self) -> None:
        """Look at the brokers once, as a worker does every 5 s."""
        look_at_sources(now=timezone.now())
        self._looked = time.monotonic()

    def end(self) -> None:
        """Stop everything; the driver by force should it not leave."""
        self.looks = False
        application_operations.request_application_stop(
            application=self.application, mode=StopMode.NOW, actor="otto", now=timezone.now()
        )
        self.wait(
            lambda: not Driver.objects.exclude(state__in=("ENDED", "FENCED")).exists(),
            "the driver has left",
        )

    def _work(self) -> None:
        for application in due_applications(now=timezone.now()):
            reconcile(application, launcher=self.launcher, now=timezone.now())
        self.ingester.step()
        if self.looks and time.monotonic() - self._looked >= LOOK_EVERY_S:
            self.look()
        for operation in due_operations(now=timezone.now()):
            advance(operation, procedures=PROCEDURES, launcher=self.launcher, now=timezone.now())
        keep_ledger(now=timezone.now())

    def _standing(self) -> str:
        queries = [
            f"{query.name}: {query.phase} ({query.phase_reason}; {query.phase_detail.text})"
            for query in Query.objects.all()
        ]
        under_way = [
            f"{one.verb}: {one.detail.text}"
            for one in Operation.objects.filter(outcome=OperationOutcome.OPEN)
        ]
        return "; ".join(queries + under_way)
