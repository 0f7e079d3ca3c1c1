"""A secret that looks like any word is on no path out: no page, body, row, file or stream entry.

Each test lets a driver, Spark or users' code say it, then looks at everything that was made of it.
"""

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import redis
from django.apps import apps
from django.contrib.auth.models import User
from django.core import serializers
from django.test import Client
from django.utils import timezone

from headgate_ground.wire import FIELD, WireEvent
from queries.domain.probes.questions import (
    TASK,
    AttemptEnd,
    PlanSeen,
    PreflightAttempt,
    ProbeResult,
    Tried,
    XrayTask,
)
from queries.domain.protocol import (
    ASSIGNMENT,
    DRIVER_LOG,
    SPEC,
    STATUS,
    Assignment,
    AssignmentEntry,
    DriverSpec,
    DriverStatus,
    ExecutorSeen,
    FoundQuery,
    RunError,
    RunState,
    RunStatus,
    ScriptReport,
    ScriptState,
    Want,
)
from queries.driver_folder import DriverFolder
from queries.launchers.process import exits
from queries.launchers.process.shim import Shim
from queries.models.applications import Script
from queries.models.definitions import Checkpoint
from queries.models.history import Failure, FailureGroup, Operation, Transition
from queries.runtime.jvms.driver import Jvm
from queries.runtime.probes.main import Probe
from queries.runtime.status_report import StatusFile
from queries.secret_references import References
from queries.services.probes.inspections import begin_xray, rows_of
from queries.services.probes.preflight import begin_preflight
from queries.services.procedures.engine import advance
from queries.tasks import PROCEDURES
from tests.conftest_redis import ValkeyServer
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind

PLAIN = "tr0ub4dor"  # of the application, by reference
WRITTEN = "correct horse"  # of the query, written out in full
SAID = f"login with {PLAIN} and {WRITTEN} denied"
ERROR = RunError(
    "", "java.lang.SecurityException", SAID, f"{SAID}\n\tat com.acme.Login.go(L.java:1)"
)


@pytest.fixture
def stage(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage with a query that has two secrets, up and running."""
    settings.SECRETS_DIR = tmp_path / "secrets"
    settings.SECRETS_DIR.mkdir()
    (settings.SECRETS_DIR / "vault").write_text(f"{PLAIN}\n")
    stage = Stage()
    bind("file:vault", "flights")
    stage.application("flights", env={"VAULT": "file:vault"})
    sink = {"format": "kafka", "options": {"kafka.password": WRITTEN}}
    stage.query("delays", "flights", sink=sink)
    stage.start("delays")
    stage.ready("flights")
    stage.commit("delays")
    for module in ("queries.views.failures.logs", "queries.api.supervision.history"):
        monkeypatch.setattr(f"{module}.launcher", lambda: stage.launcher)
    stage.launcher.log("flights", stage.run("delays").driver.epoch, f"first line\n{SAID}\n")
    return stage


@pytest.fixture
def reader(client: Client) -> Client:
    """Return a superuser's browser."""
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


def silent(text: str) -> bool:
    """Tell whether neither secret stands in a text, which must say something."""
    assert text.strip()
    return PLAIN not in text and WRITTEN not in text


def stored() -> str:
    """Return every row but the definitions, and what was asked with one: they hold a secret."""
    Operation.objects.update(arguments={})
    rows = [
        row
        for model in apps.get_models()
        if model._meta.app_label in ("queries", "listeners")
        and not model.__name__.endswith("Revision")
        for row in model._default_manager.all()
    ]
    return str(serializers.serialize("json", rows))


@pytest.mark.django_db
def test_the_log_page_and_the_logs_body(stage: Stage, reader: Client) -> None:
    run = stage.run("delays")
    for address in ("/queries/delays/log/", f"/api/v1/runs/{run.pk}/log/"):
        shown = reader.get(address).content.decode()
        assert "denied" in shown
        assert silent(shown)


@pytest.mark.django_db
def test_what_a_failure_leaves_in_the_database(stage: Stage) -> None:
    for _ in range(2):  # the first retry comes at once, the second waits and says for what
        stage.fail("delays", ERROR, batch=3)
    failure = Failure.objects.all()[0]
    assert "denied" in failure.log_tail
    assert "denied" in failure.message
    assert "denied" in FailureGroup.objects.get().title
    assert "denied" in stage.row("delays").phase_detail.text
    assert any("denied" in one.detail.text for one in Transition.objects.all())
    assert silent(stored())


@pytest.mark.django_db
def test_what_a_driver_that_cannot_start_leaves_in_the_database(stage: Stage) -> None:
    stage.stop("delays")
    stage.launcher.leave("flights")
    stage.look()
    stage.start("delays")
    stage.launcher.session_fails("flights", ERROR)
    stage.look()
    assert "denied" in Failure.objects.get().root_cause
    assert silent(stored())


@pytest.mark.guarantee("G-SECRET-7")
@pytest.mark.django_db
def test_every_page_and_body_of_a_failure(stage: Stage, reader: Client) -> None:
    stage.fail("delays", ERROR, batch=3)
    failure = Failure.objects.get()
    # As a release that masked by form alone has stored it.
    raw = {"log_tail": SAID, "message": ERROR.message, "root_cause": SAID}
    Failure.objects.filter(pk=failure.pk).update(**raw)
    for address in (f"/failures/{failure.pk}/", f"/api/v1/failures/{failure.pk}/"):
        shown = reader.get(address).content.decode()
        assert shown.count("denied") >= 3
        assert silent(shown)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/failures/",
        "/queries/delays/",
        "/queries/delays/runs/",
        "/queries/delays/failures/",
        "/queries/delays/activity/",
        "/applications/flights/",
        "/api/v1/queries/delays/",
        "/api/v1/queries/delays/failures/",
        "/api/v1/failure-groups/",
        "/api/v1/operations/",
    ],
)
def test_every_page_and_body_that_tells_of_a_failed_query(
    stage: Stage, reader: Client, address: str
) -> None:
    stage.fail("delays", ERROR, batch=3)
    answer = reader.get(address)
    assert answer.status_code == 200
    assert silent(answer.content.decode())


@pytest.mark.django_db
def test_the_words_of_a_lost_executor_and_of_a_warning(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sight = stage.launcher.sight

    def telling(application: str, epoch: int, **more: Any) -> Any:
        seen = sight(application, epoch, **more)
        assert seen.status is not None
        lost = ExecutorSeen("0", "h:1", 2, False, stage.now.isoformat(), None, SAID)
        up = replace(lost, id="1", active=True, reason="")
        runs = tuple(replace(run, warnings=(SAID,)) for run in seen.status.runs)
        return replace(seen, status=replace(seen.status, executors=(up, lost), runs=runs))

    monkeypatch.setattr(stage.launcher, "sight", telling)
    stage.look()
    assert "denied" in stored()
    assert silent(stored())


@pytest.mark.django_db
def test_the_notes_of_a_script_and_why_a_checkpoint_is_temporary(
    settings: Any, tmp_path: Path, reader: Client
) -> None:
    (tmp_path / "vault").write_text(f"{PLAIN}\n")
    settings.SECRETS_DIR = tmp_path
    stage = ScriptStage(env={"VAULT": "file:vault"})
    bind("file:vault", "job")
    stage.running()
    stage.launcher.says("job", f"login with {PLAIN} denied")
    query = stage.find("clicks", temporary=f"{PLAIN} denied")
    assert "denied" in str(stage.script.notes)
    assert "denied" in query.temporary
    assert silent(stored())
    addresses = ("/applications/job/", "/api/v1/applications/job/")
    for address in addresses:
        shown = reader.get(address).content.decode()
        assert "denied" in shown
        assert silent(shown)
    # As a release that did not mask notes has stored them.
    Script.objects.update(notes=[f"password={PLAIN} denied"])
    assert silent(reader.get(addresses[1]).content.decode())


def test_a_log_is_read_at_one_place() -> None:
    """Whoever asks the launcher itself for a log gets it raw."""
    root = Path(__file__).resolve().parents[3] / "queries"
    readers = [
        path.relative_to(root)
        for path in root.rglob("*.py")
        if "launchers" not in path.parts
        and re.search(r"launcher(\(\))?\.(probe_)?log_(tail|part)", path.read_text())
    ]
    assert len(readers) == 1, readers


# --- probes ---------------------------------------------------------------------------

ANSWER = ProbeResult(
    "Comparing the plans",
    done=True,
    took_ms={"Starting Spark": 7},
    tried=(Tried(PreflightAttempt.FRESH, AttemptEnd.FAILED, error=asdict(ERROR)),),
    plan=PlanSeen({"op": "Project", "streaming": True, "text": SAID, "children": []}, "append"),
    old_plan=PlanSeen(missing=SAID),
    sink="noop",
)


def _probe(stage: Stage, operation: Operation, answer: ProbeResult | None) -> Operation:
    """Take an operation with a probe to its end: it answers, or it dies."""
    for _ in range(20):
        advance(operation.pk, procedures=PROCEDURES, launcher=stage.launcher, now=timezone.now())
        living = [one for one in stage.launcher.probes.values() if one.exit is None]
        if living and answer is not None:
            stage.launcher.answer(answer.dumps())
        for one in living if answer is None else ():
            one.gone = True
    operation.refresh_from_db()
    assert operation.outcome
    return operation


@pytest.mark.django_db
@pytest.mark.parametrize("answer", [ANSWER, None], ids=["answered", "died"])
def test_what_a_preflight_finds(
    stage: Stage, answer: ProbeResult | None, monkeypatch: pytest.MonkeyPatch, reader: Client
) -> None:
    monkeypatch.setattr(stage.launcher, "log_tail", lambda *_, **__: SAID)
    query = stage.row("delays")
    begun = begin_preflight(query=query, spec=None, actor="olga", now=timezone.now())
    operation = _probe(stage, begun, answer)
    assert "denied" in operation.detail.text + json.dumps(operation.result)
    assert silent(stored())
    for address in (f"/operations/{operation.uuid}/", f"/api/v1/operations/{operation.uuid}/"):
        shown = reader.get(address).content.decode()
        assert "denied" in shown
        assert silent(shown)


@pytest.mark.django_db
def test_the_rows_of_an_xray(stage: Stage, tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    for folder in ("offsets", "commits", "state/0/0"):
        (root / folder).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"an id"}')
    (root / "offsets/0").write_text('v1\n{"batchTimestampMs":1,"batchWatermarkMs":0,"conf":{}}\n0')
    (root / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    (root / "state/0/0/1.snapshot").write_text("x")
    Checkpoint.objects.update(location=f"file://{root}")
    rows = {"sample": [{"partition": 0, "key": SAID, "value": SAID}], "rows": 1, "bytes": 9}
    kept: dict[str, Any] = {"operators": [], "operator": 0, "partitions": []}
    answer = ProbeResult("Reading the state", done=True, state={**rows, **kept})
    query = stage.row("delays")
    begun = begin_xray(query=query, actor="olga", now=timezone.now())
    operation = _probe(stage, begun, answer)
    shown = json.dumps(rows_of(operation, launcher=stage.launcher, now=timezone.now()))
    assert "denied" in shown
    assert silent(shown)
    assert silent(stored())


# --- the driver's side ----------------------------------------------------------------


def _spec(**more: Any) -> DriverSpec:
    return DriverSpec(
        **{
            "driver": 1,
            "epoch": 7,
            "application": "flights",
            "installation": "i",
            "host": "h",
            "master": "local[2]",
            "memory": "1g",
            "conf": {},
            "env": {"VAULT": "file:vault"},
            "code_roots": (),
            "code_sha256": "",
            "scheduler_mode": "FIFO",
            "listeners": (),
            "redis_url": "",
            "stream": "events",
            **more,
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> DriverFolder:
    """Return a driver's folders next to a folder of secrets, with a log that tells all."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/vault").write_text(f"{PLAIN}\n")
    folder = DriverFolder.make(tmp_path / "driver")
    (folder.own / DRIVER_LOG).write_text(f"x{SAID}\n" * 2_000)
    written = {"sink": {"options": {"kafka.password": WRITTEN}}}
    entry = AssignmentEntry(2, "delays", 3, 1, written, "file:///c", "", Want.RUN)
    (folder.control / ASSIGNMENT).write_text(Assignment(1, 7, (entry,)).dumps())
    return folder


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[str]:
    server = ValkeyServer(tmp_path)
    server.start()
    yield server.url
    server.kill()


@pytest.mark.redis
def test_the_exit_report_in_its_file_and_on_redis(folder: DriverFolder, valkey: str) -> None:
    spec = _spec(secrets_dir=str(folder.root.parent / "secrets"), redis_url=valkey)
    (folder.control / SPEC).write_text(spec.dumps())
    with socket.socket(socket.AF_UNIX) as claim:
        report = Shim(folder, spec, claim).report()
    assert "denied" in report.log_tail
    assert silent(report.dumps())
    exits.notify(spec, report)
    with redis.Redis.from_url(valkey, socket_timeout=5) as client:
        ((_, fields),) = client.xrange("events")
    body = WireEvent.decode(fields[FIELD.encode()]).body
    assert body["python"] == report.python
    assert silent(json.dumps(body))


def test_the_status_of_a_driver(folder: DriverFolder) -> None:
    references = References(env_allowlist=(), secrets_dir=str(folder.root.parent / "secrets"))
    references.learn({"env": "file:vault", "password": WRITTEN})
    board = StatusFile(folder.own, 7, lambda: None, references.mask_within)
    board.add(
        RunStatus(
            3,
            2,
            RunState.FAILED,
            error=ERROR,
            warnings=(SAID,),
            last_progress={"batchId": 1, "sink": {"description": SAID}},
        )
    )
    board.driver(error=ERROR)
    board.driver(executors=(ExecutorSeen("0", "h:1", 1, False, "", None, SAID),))
    board.driver(script=ScriptReport(ScriptState.RUNNING, notes=(SAID,)))
    board.found(FoundQuery(1, "name:a", "a", "", "file:///c", temporary=SAID))
    board.write()
    text = (folder.own / STATUS).read_text()
    assert text.count("denied") == 9
    assert silent(text)
    assert DriverStatus.loads(text).runs[0].state is RunState.FAILED


def test_what_a_probe_writes_down(folder: DriverFolder) -> None:
    spec = _spec(
        secrets_dir=str(folder.root.parent / "secrets"), conf={"spark.a.password": WRITTEN}
    )
    (folder.control / TASK).write_text(XrayTask("file:///c", 10, 5).dumps())
    probe = Probe(folder, spec, Jvm(spec, folder.own, lock=-1))
    probe.report = ANSWER
    probe.publish(state={"sample": [{"key": SAID}]})
    text = (folder.own / "result.json").read_text()
    assert text.count("denied") == 5
    assert silent(text)


def test_what_every_driver_has_in_its_environment_is_masked_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VAULT", PLAIN)
    references = References(env_allowlist=("VAULT", "NOT_SET"), secrets_dir="")
    references.learn({"a": "file:nowhere", "b": "env:OTHER"})  # cannot be had: left out
    assert silent(references.mask(f"printed {PLAIN}"))
