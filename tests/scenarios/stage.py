"""A stage for stories: real rows, real decisions, drivers that move when the story says so."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Min

from queries.domain.protocol import RunError
from queries.domain.states import DriverKind, RunOutcome, StopMode
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Run
from queries.models.history import Operation, Transition
from queries.services.definitions import catalog
from queries.services.supervision import operations
from queries.services.supervision.reconcile import due_applications, reconcile
from queries.services.supervision.standbys import keep_standbys
from tests.launchers.in_memory import InMemoryLauncher

START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)  # three in the morning

DIVIDE = RunError(
    error_class="DIVIDE_BY_ZERO",
    type_name="org.apache.spark.SparkArithmeticException",
    root_cause="[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0.",
    message="[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
)
BROKEN_PIPE = RunError("", "java.net.ConnectException", "Connection refused", "Connection refused")
NO_SUCH_SOURCE = RunError(
    "DATA_SOURCE_NOT_FOUND",
    "org.apache.spark.SparkClassNotFoundException",
    "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka.",
    "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka.",
)


def _first_due() -> datetime | None:
    """Return the moment at which the first application wants to be looked at."""
    found: datetime | None = Application.objects.aggregate(first=Min("reconcile_after"))["first"]
    return found


def _transitions() -> int:
    """Return how many changes have been recorded; asked at each step, so without the ORM."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM queries_transition")
        return int(cursor.fetchone()[0])


class Stage:
    """One installation with a clock of its own."""

    def __init__(self, *, obliging: bool = False) -> None:
        self.now = START
        self.keeps_standbys = False  # an application wants one
        self.launcher = InMemoryLauncher(clock=self.clock, obliging=obliging)

    def clock(self) -> datetime:
        """Return the story's own time."""
        return self.now

    def application(self, name: str, **spec: Any) -> Application:
        """Define an application."""
        form = {"master": "local[2]", "memory": "1g", "conf": {}, **spec}
        self.keeps_standbys |= "standby" in spec
        row = Application.objects.create(name=name, created_at=self.now)
        revision = row.revisions.create(number=1, spec=form, author="ada", created_at=self.now)
        row.target_revision = revision
        row.save()
        if form.get("kind") == "script":
            Script.objects.create(application=row, phase_since=self.now)
        return row

    def query(self, name: str, application: str = "", **spec: Any) -> Query:
        """Define a query; in an application of its own unless one is named."""
        owner = Application.objects.filter(name=application).first() if application else None
        owner = owner or self.application(name)
        row = Query.objects.create(name=name, application=owner, created_at=self.now)
        form = {
            "kind": "sql",
            "sources": [{"name": "flights", "format": "rate"}],
            "sql": "SELECT * FROM flights",
            "sink": {"format": "noop"},
            "trigger": {"kind": "processing_time", "interval": "5 seconds"},
            **spec,
        }
        read: dict[str, list[Any]] = {"relations": [], "unknown": []}  # by Spark's parser
        row.revisions.create(
            number=1, kind="sql", spec=form, author="ada", created_at=self.now, reads=read
        )
        Checkpoint.objects.create(
            query=row, location=f"file:///checkpoints/{name}", created_at=self.now
        )
        return row

    # --- acts of people ---------------------------------------------------------------

    def start(self, name: str) -> Operation:
        """Click start, and let supervision work."""
        operation = operations.request_start(query=self.row(name), actor="olga", now=self.now)
        self.settle()
        return operation

    def stop(self, name: str, mode: StopMode = StopMode.GRACEFUL) -> Operation:
        """Click stop, and let supervision work."""
        operation = operations.request_stop(
            query=self.row(name), mode=mode, actor="olga", now=self.now
        )
        self.settle()
        return operation

    def restart(self, name: str) -> Operation:
        """Click restart, and let supervision work."""
        operation = operations.request_restart(query=self.row(name), actor="olga", now=self.now)
        self.settle()
        return operation

    def revise(self, name: str, **changes: Any) -> None:
        """Save a revision with these fields changed."""
        newest = self.row(name).revisions.latest("number")
        catalog.revise_query(
            query=self.row(name),
            spec=newest.spec | changes,
            expected_revision=newest.number,
            actor="ada",
            now=self.now,
        )

    # --- time -------------------------------------------------------------------------

    def settle(self) -> datetime | None:
        """Run the sweep as often as it takes at this instant; return when the next one is due."""
        for _ in range(5):
            for application in due_applications(now=self.now):
                reconcile(application, launcher=self.launcher, now=self.now)
            if self.keeps_standbys:
                keep_standbys(launcher=self.launcher, now=self.now)
            first = _first_due()
            if first is None or first > self.now:
                break
        return first

    def look(self, application: str = "") -> None:
        """Look at an application now, as a nudge would; without a name at every one."""
        rows = Application.objects.all()
        nudged = rows.filter(name=application) if application else rows
        nudged.update(reconcile_after=self.now)
        self.settle()

    def wait(self, seconds: float) -> None:
        """Let time pass, with the sweep at work where something is due.

        It works each second at first, and more rarely the longer nothing happens: a deadline is
        seen late by a fourth of the calm before it at most, and by a thirtieth of the wait.
        """
        calm_since, until = self.now, self.now + timedelta(seconds=seconds)
        rarest = timedelta(seconds=seconds / 30)
        seen = _transitions()
        due = _first_due()
        while self.now < until:
            pace = max(timedelta(seconds=1), min(rarest, (self.now - calm_since) / 4))
            self.now = min(max(self.now + pace, due or until), until)
            due = self.settle()
            if (newest := _transitions()) != seen:
                calm_since, seen = self.now, newest

    def pause(self, name: str) -> None:
        """Let the time until the query's next attempt pass."""
        at = self.row(name).next_attempt_at
        if at is not None:
            self.wait((at - self.now).total_seconds())

    # --- what there is ----------------------------------------------------------------

    def row(self, name: str) -> Query:
        """Return the query as the database has it now."""
        return Query.objects.select_related("application").get(name=name, archived_at=None)

    def phase(self, name: str) -> str:
        """Return the query's phase."""
        return self.row(name).phase

    def run(self, name: str) -> Run:
        """Return the query's open run."""
        rows = Run.objects.select_related("query__application")
        return rows.get(query__name=name, outcome=RunOutcome.OPEN)

    def last_run(self, name: str) -> Run:
        """Return the query's newest run, ended or not."""
        return Run.objects.filter(query__name=name).order_by("-epoch")[0]

    def driver(self, application: str) -> Driver:
        """Return the application's newest driver, which is no storage JVM and no standby."""
        rows = Driver.objects.filter(application__name=application)
        beside = (DriverKind.STORAGE, DriverKind.STANDBY)
        return rows.exclude(kind__in=beside).order_by("-epoch")[0]

    def standby(self, application: str) -> Driver:
        """Return the application's newest standby that has not taken over."""
        rows = Driver.objects.filter(application__name=application, kind=DriverKind.STANDBY)
        return rows.order_by("-epoch")[0]

    def stands_by(self, name: str, application: str = "") -> Driver:
        """Bring a query to RUNNING and its application's standby to LIVE; return the standby."""
        self.up(name, application)
        self.wait(5)
        standby = self.standby(application or name)
        self.launcher.ready(application or name, epoch=standby.epoch)
        self.wait(2)
        return self.standby(application or name)

    def ready(self, application: str) -> None:
        """The driver's session comes up."""
        self.launcher.ready(application)
        self.look(application)

    def commit(self, name: str) -> None:
        """The query's run commits a batch."""
        run = self.run(name)
        self.launcher.commit(run.pk)
        self.look(run.query.application.name)

    def fail(self, name: str, error: RunError, batch: int | None = None) -> None:
        """The query's run fails."""
        run = self.run(name)
        self.launcher.fail_run(run.pk, error, batch=batch)
        self.look(run.query.application.name)

    def up(self, name: str, application: str = "") -> None:
        """Start a query and bring it to RUNNING."""
        self.start(name)
        self.ready(application or name)
        self.commit(name)

    def phases(self, name: str) -> list[str]:
        """Return the phases the query went through, oldest first."""
        rows = Transition.objects.filter(query__name=name, subject="phase").order_by("pk")
        return [row.after for row in rows]
