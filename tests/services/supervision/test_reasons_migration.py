"""What the release before wrote as sentences is kept as codes, and pages show today's words."""

import importlib
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from queries.domain.reasons import Because, Detail
from queries.domain.states import Reason
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.history import Operation, Transition
from tests.web.browserless import Page

migration = importlib.import_module("queries.migrations.0007_reasons_as_codes")
BEFORE = "0005_replayed_after_a_start"
#: The newest migration: what follows is read with the models of today.
AFTER = max(path.stem for path in Path(str(migration.__file__)).parent.glob("0*.py"))
AT = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
FAILURE = "[DIVIDE_BY_ZERO] Division by zero. Look at the batch."


def _migrate(name: str) -> Any:
    """Bring the tables to one migration; return its models."""
    executor = MigrationExecutor(connection)
    executor.migrate([("queries", name)])
    return MigrationExecutor(connection).loader.project_state([("queries", name)]).apps


class _Past:
    """Rows as the release before wrote them."""

    def __init__(self, apps: Any) -> None:
        self.apps = apps
        self.application = self.row(
            "Application", name="delays", hold_reason="No Java was found.", created_at=AT
        )
        self.revision = self.row(
            "ApplicationRevision",
            application=self.application,
            number=1,
            spec={"master": "local[2]", "memory": "1g", "conf": {}},
            author="ada",
            created_at=AT,
        )

    def row(self, model: str, **fields: Any) -> Any:
        return self.apps.get_model("queries", model).objects.create(**fields)

    def query(self, name: str, **fields: Any) -> Any:
        row = self.row("Query", name=name, application=self.application, created_at=AT, **fields)
        form = {
            "kind": "sql",
            "sources": [{"name": "flights", "format": "rate"}],
            "sql": "SELECT * FROM flights",
            "sink": {"format": "noop"},
            "trigger": {"kind": "processing_time", "interval": "5 seconds"},
        }
        revision = self.row(
            "QueryRevision", query=row, number=1, kind="sql", spec=form, author="a", created_at=AT
        )
        place = f"file:///checkpoints/{name}"
        checkpoint = self.row("Checkpoint", query=row, location=place, created_at=AT)
        row.home = {"query": row, "revision": revision, "checkpoint": checkpoint}
        return row

    def driver(self, epoch: int, **fields: Any) -> Any:
        return self.row(
            "Driver",
            application=self.application,
            application_revision=self.revision,
            epoch=epoch,
            host="here",
            directory="/d",
            created_at=AT,
            state_since=AT,
            **{"state": "ENDED", **fields},
        )

    def operation(self, verb: str, **fields: Any) -> Any:
        return self.row(
            "Operation",
            verb=verb,
            application=self.application,
            generation=1,
            actor="olga",
            created_at=AT,
            deadline=AT + timedelta(minutes=3),
            **fields,
        )

    def transition(self, subject: str, reason: str, detail: str, **fields: Any) -> Any:
        return self.row(
            "Transition",
            at=AT,
            application=self.application,
            subject=subject,
            before="",
            after="X",
            reason=reason,
            detail=detail,
            **fields,
        )


#: Reasons in other words since.
REWORDED = {
    "WAITS_SLOT": "waiting for a start slot",
    "WAITS_MEMORY": "waiting for memory",
    "WAITS_DRIVER": "waiting for its driver",
    "WAITS_LOCK": "waiting for the checkpoint's lock",
    "WAITS_COMMIT": "waiting for its first commit",
    "COMPLETED": "read all available data",
    "FAILED_POISON": "same error on the same batch again",  # the limit is the policy's own
    "FAILED_FATAL": "cannot be fixed by a restart",
    "HOST_SILENT": "its host does not respond",
    "STALLED": "stalled; restarted by its policy",
    "PROBE": "retry probe of a broken query",
    "PROBED": "probe driver",
    "RESET": "reset to another start position",
    "NOT_WANTED": "no query needs it",
    "REPLACED": "replaced by a new driver",
    "EXECUTOR_CAME": "executor added",
    "EXECUTOR_LOST": "executor lost",
}
#: Parts of sentences in other words since.
RESAID = {
    "Spark waits without a word; it goes on by itself once the source answers.": (
        "Spark does not report it; the query continues by itself once the source responds."
    ),
    "has it a core per source partition?": "does it have a core per source partition?",
    "A driver has been given the query.": "The query is assigned to a driver.",
}


def _today(text: str) -> str:
    """Return the words of today for a phrase or a sentence of the release before."""
    for code, phrase in migration.REASONS.items():
        if text == phrase:
            return REWORDED.get(code, text)
    for before, now in RESAID.items():
        text = text.replace(before, now)
    return text


def test_each_reason_of_the_release_before_has_a_code_and_reads_as_today() -> None:
    for code, phrase in migration.REASONS.items():
        assert Reason(code) is not Reason.OTHER
        assert str(Because(Detail.REASON, {"reason": code})) == _today(phrase)


QUERIES: tuple[tuple[str, str, str, Because], ...] = (
    ("STOPPED", "never started", "", Because()),
    (
        "PENDING",
        "waits for a start slot",
        "2 of 3 drivers are starting on this host.",
        Because(Detail.SLOTS_TAKEN, {"starting": 2, "limit": 3}),
    ),
    (
        "PENDING",
        "waits for memory",
        "It needs 1024 MB; 4000 of 4096 MB are taken by other drivers.",
        Because(Detail.MEMORY_TAKEN, {"needed": 1024, "used": 4000, "budget": 4096}),
    ),
    (
        "STARTING",
        "source not reachable",
        "Source not reachable since 02:59:30 UTC. Spark waits without a word; "
        "it goes on by itself once the source answers.",
        Because(Detail.SOURCE_SILENT, {"since": "02:59:30"}),
    ),
    (
        "STARTING",
        "waits for its first commit",
        "No epoch since 02:59:30 UTC: has it a core per source partition?",
        Because(Detail.NO_CORES, {"what": "epoch", "since": "02:59:30"}),
    ),
    (
        "STARTING",
        "restart requested",
        "A driver has been given the query.",
        Because(Detail.GIVEN),
    ),
    (
        "FAILED",
        "cannot be mended by a restart",
        FAILURE,
        Because(Detail.OTHER, {"text": FAILURE}),
    ),
)


def _write_queries(past: _Past) -> None:
    for number, (phase, reason, text, _) in enumerate(QUERIES):
        past.query(f"q{number}", phase=phase, phase_reason=reason, phase_detail=text)


def _write_a_run(past: _Past) -> None:
    driver = past.driver(1, state_reason="its driver died", end_wanted="no query wants it")
    query = past.query("ran")
    past.row("Run", driver=driver, epoch=2, generation=1, cause="retry due", created_at=AT,
             outcome="FAILED", **query.home)  # fmt: skip


OPERATIONS: tuple[tuple[str, str, str, Because], ...] = (
    ("start", "DONE", "", Because()),
    (
        "start",
        "SUPERSEDED",
        "stop by pat",
        Because(Detail.SUPERSEDED_BY, {"verb": "stop", "actor": "pat"}),
    ),
    ("start", "SUPERSEDED", "deleted by ada", Because(Detail.DELETED_BY, {"actor": "ada"})),
    ("rewind", "CANCELLED", "cancelled by otto", Because(Detail.CANCELLED_BY, {"actor": "otto"})),
    ("start", "FAILED", FAILURE, Because(Detail.OTHER, {"text": FAILURE})),
    (
        "start",
        "FAILED",
        "cannot be mended by a restart",
        Because(Detail.REASON, {"reason": "FAILED_FATAL"}),
    ),
    (
        "start",
        "TIMED_OUT",
        "Starting: Spark is building the query.",
        Because(Detail.WAITED, {"phase": "STARTING", "about": {"code": "QUERY_BUILDING"}}),
    ),
    (
        "start",
        "TIMED_OUT",
        "Backoff: its driver died",
        Because(
            Detail.WAITED,
            {"phase": "BACKOFF", "about": {"code": "REASON", "reason": "DRIVER_DIED"}},
        ),
    ),
    ("rewind", "TIMED_OUT", "not yet", Because(Detail.OTHER, {"text": "not yet"})),
    ("rewind", "", "for batch 7", Because(Detail.STEP, {"note": "for batch 7"})),
)


def _write_operations(past: _Past) -> None:
    query = past.query("operated")
    for verb, outcome, text, _ in OPERATIONS:
        past.operation(verb, query=query, outcome=outcome, detail=text)


#: Subject, reason and text of the release before; the codes of both.
CHANGES: tuple[tuple[str, str, str, str, str], ...] = (
    ("desired", "start requested", "", "ASKED_START", "NOTHING"),
    (
        "phase",
        "waits for its driver",
        "Spark is building the query.",
        "WAITS_DRIVER",
        "QUERY_BUILDING",
    ),
    ("phase", "failed; will be retried", FAILURE, "FAILED_RETRY", "OTHER"),
    ("driver", "its driver died", "Driver died: SIGKILL", "DRIVER_DIED", "DRIVER_FAILURE"),
    ("driver", "could not be launched", "No Java.", "NOT_LAUNCHED", "NOT_LAUNCHED"),
    ("driver", "a short-lived Spark of its own", "x-ray of delays", "PROBED", "PROBE_FOR"),
    (
        "executor",
        "an executor was lost",
        "executor 3 on h:1: worker lost",
        "EXECUTOR_LOST",
        "EXECUTOR_REMOVED",
    ),
    ("executor", "an executor came", "executor 3 on h:1", "EXECUTOR_CAME", "EXECUTOR"),
    ("checkpoint", "rewound to an earlier batch", "to batch 6", "REWOUND", "TO_BATCH"),
    ("checkpoint", "reset to another start", "to earliest", "RESET", "TO_START"),
    ("definition", "", "pool gold", "", "POOL"),
    ("group", "", FAILURE, "", "GROUP"),
    ("phase", "in the words of nobody", "and more", "in the words of nobody", "OTHER"),
)


def _write_changes(past: _Past) -> None:
    query = past.query("changed")
    for subject, reason, text, _, _ in CHANGES:
        past.transition(subject, reason, text, query=query)


def _write_probes(past: _Past) -> None:
    operation = past.operation("x-ray", query=past.query("probed"))
    said = f"probe of {operation.uuid}"
    past.driver(11, kind="PROBE", state_reason=said)  # of a worker that died
    past.driver(12, kind="PROBE", state_reason=said)
    past.driver(13, kind="PROBE", state_reason=f"probe of {uuid.uuid4()}")
    past.driver(14, kind="PROBE", state_reason="probe of nothing known")


WAITING = "2 of 3 drivers are starting on this host."


def _write_what_goes_back(past: _Past) -> None:
    query = past.query("back", phase_reason="waits for a start slot", phase_detail=WAITING)
    operation = past.operation(
        "x-ray", query=query, detail=f"Pending: {WAITING}", outcome="TIMED_OUT"
    )
    past.driver(21, kind="PROBE", state_reason=f"probe of {operation.uuid}")
    past.transition("phase", "its driver died", "", query=query)


@pytest.fixture(scope="module")
def migrated(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Migrate the rows of all tests at once, as a release does: each migration takes a second."""
    with django_db_blocker.unblock():
        past = _Past(_migrate(BEFORE))
        try:
            _write_queries(past)
            _write_a_run(past)
            _write_operations(past)
            _write_changes(past)
            _write_probes(past)
            _write_what_goes_back(past)
            _migrate(AFTER)
            yield
        finally:  # a migration that fails leaves the tables of today to the next test, too
            call_command("flush", interactive=False, verbosity=0)
            _migrate(AFTER)


class _Back(NamedTuple):
    """Rows as the release before finds them after a way back."""

    query: Any
    driver: Any
    operation: Any
    change: Any


@pytest.fixture(scope="module")
def gone_back(migrated: None, django_db_blocker: Any) -> _Back:
    """Go back to the release before, after today's has written, and come again."""
    with django_db_blocker.unblock():
        Operation.objects.filter(query__name="back").update(
            detail=Because(Detail.WAITED, {"phase": "PENDING", "about": {"code": "GIVEN"}})
        )
        old = partial(_migrate(BEFORE).get_model, "queries")
        try:
            return _Back(
                query=old("Query").objects.get(name="back"),
                driver=old("Driver").objects.get(epoch=21),
                operation=old("Operation").objects.get(query__name="back"),
                change=old("Transition").objects.get(query__name="back"),
            )
        finally:
            _migrate(AFTER)


@pytest.mark.django_db
@pytest.mark.usefixtures("migrated")
def test_a_query_keeps_its_code_and_reads_as_today(viewer: User, client: Client) -> None:
    client.force_login(viewer)
    for number, (_, reason, text, said) in enumerate(QUERIES):
        row = Query.objects.get(name=f"q{number}")
        assert (migration.REASONS[row.phase_reason], row.phase_detail) == (reason, said)
        shown = _today(text or reason)
        shown = shown[:1].upper() + shown[1:]
        assert shown in Page(client, f"/queries/{row.name}/").text


@pytest.mark.django_db
@pytest.mark.usefixtures("migrated")
def test_drivers_runs_and_what_holds_an_application_keep_their_codes() -> None:
    row = Driver.objects.get(kind="SERVICE")
    assert (row.state_reason, row.end_wanted) == (Reason.DRIVER_DIED, Reason.NOT_WANTED)
    assert Run.objects.get().cause == Reason.RETRY_DUE
    assert Application.objects.get().hold_reason.text == "No Java was found."


@pytest.mark.django_db
@pytest.mark.usefixtures("migrated")
def test_an_operation_keeps_its_code_and_reads_as_today(viewer: User, client: Client) -> None:
    client.force_login(viewer)
    page = Page(client, "/queries/operated/activity/").text
    rows = Operation.objects.filter(query__name="operated").order_by("pk")
    for row, (_, _, text, said) in zip(rows, OPERATIONS, strict=True):
        assert (row.detail, row.detail.text) == (said, _today(text))
        assert _today(text) in page


@pytest.mark.django_db
@pytest.mark.usefixtures("migrated")
def test_a_change_keeps_its_codes_and_reads_as_today(viewer: User, client: Client) -> None:
    client.force_login(viewer)
    page = Page(client, "/queries/changed/activity/").text
    rows = Transition.objects.filter(query__name="changed").order_by("pk")
    for row, (_, reason, text, code, detail) in zip(rows, CHANGES, strict=True):
        assert (row.reason, row.detail.code.name, row.detail.text) == (code, detail, text)
        assert text in page
        assert _today(reason)[1:] in page  # it begins with a capital there


@pytest.mark.django_db
@pytest.mark.usefixtures("migrated")
def test_a_probe_is_linked_to_the_operation_that_its_reason_named() -> None:
    operation = Operation.objects.get(query__name="probed")
    rows = Driver.objects.filter(epoch__in=(11, 12, 13, 14)).order_by("epoch")
    assert [row.operation_id for row in rows] == [None, operation.pk, None, None]
    assert [row.state_reason for row in rows][:3] == [Reason.PROBED] * 3


def test_the_way_back_gives_the_sentences_again(gone_back: _Back) -> None:
    query, operation = gone_back.query, gone_back.operation
    assert (query.phase_reason, query.phase_detail) == ("waits for a start slot", WAITING)
    assert gone_back.driver.state_reason == f"probe of {operation.uuid}"
    assert operation.detail == "Pending: A driver has been given the query."
    change = gone_back.change
    assert (change.reason, change.detail) == ("its driver died", "")


@pytest.mark.parametrize(
    "detail", [each for each in Detail if each.value], ids=lambda one: one.name
)
def test_the_way_back_loses_no_sentence(detail: Detail) -> None:
    values = {name: f"<{name}>" for name in re.findall(r"\{(\w+)\}", detail.value)}
    said = migration.spoken({"code": detail.name, **values})
    assert said
    assert all(value in said for name, value in values.items() if name != "phase")
