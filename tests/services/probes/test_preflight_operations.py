"""Preflights and state inspections as operations: their place, their ends, what hangs on them."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from queries import host_pressure
from queries.domain.errors import Invalid, Missing, NotAllowed, Problem
from queries.domain.hosts import Pressure
from queries.domain.probes.questions import (
    AttemptEnd,
    PlanSeen,
    PreflightAttempt,
    ProbeResult,
    Tried,
    XrayTask,
    read_task,
)
from queries.domain.sparks import CHECKSUM, PINS, PRUNED, Spark, pinned_by
from queries.domain.states import DriverKind, DriverState, OperationOutcome, Reason
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Installation, Run
from queries.models.history import Operation
from queries.roles import AuthorRights
from queries.services.definitions.catalog import plan_application, revise_application
from queries.services.probes import probe_steps
from queries.services.probes.inspections import begin_xray, rows_of
from queries.services.probes.preflight import begin_preflight, begin_trial
from queries.services.procedures.engine import advance, cancel
from queries.services.supervision import operations
from queries.services.supervision.application_operations import request_application_restart
from queries.services.supervision.reconcile import due_applications, reconcile
from queries.services.supervision.start_checks import Unproven
from queries.tasks import PROCEDURES
from tests.launchers.in_memory import InMemoryLauncher
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

PLAN = PlanSeen({"op": "Project", "streaming": True, "children": []}, "append", (("a", "int"),))
PASSED = ProbeResult(
    "Comparing the plans",
    done=True,
    took_ms={"Starting Spark": 7000},
    tried=(Tried(PreflightAttempt.FRESH, AttemptEnd.PASSED, 0, 20, 300),),
    plan=PLAN,
    sink="noop",
)


class Ground:
    """A query with a checkpoint on disk, and a launcher that does what the test says."""

    def __init__(self, folder: Path) -> None:
        self.stage = Stage()
        self.query: Query = self.stage.query("delays")
        self.launcher = InMemoryLauncher(clock=timezone.now)
        self.root = folder / "delays"
        Checkpoint.objects.update(location=f"file://{self.root}")

    def commit(self, batches: int, *, continuous: bool = False, state: bool = False) -> None:
        """Write the logs of a checkpoint."""
        for folder in ("offsets", "commits"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "metadata").write_text('{"id":"an id"}')
        about = {"batchTimestampMs": 1, "batchWatermarkMs": 0, "conf": {"spark.sql.x": "1"}}
        for batch in range(batches):
            line = "" if continuous else json.dumps(about)
            (self.root / "offsets" / str(batch)).write_text(f"v1\n{line}\n{batch}")
            (self.root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        if state:
            (self.root / "state/0/0").mkdir(parents=True)
            (self.root / "state/0/0" / f"{batches}.snapshot").write_text("x")

    def written_by(
        self, spark: Spark, operator: str, conf: dict[str, str] | None = None, *, without: str = ""
    ) -> None:
        """Let the newest batch be one that this version wrote, with state."""
        newest = max((self.root / "offsets").iterdir(), key=lambda one: int(one.name))
        pins = {key: PINS[key].new for key in pinned_by(spark) - {without}} | (conf or {})
        about = {"batchTimestampMs": 1, "batchWatermarkMs": 0, "conf": pins}
        newest.write_text(f"v1\n{json.dumps(about)}\n1")
        folder = self.root / "state/0/_metadata"
        folder.mkdir(parents=True)
        info = {"operatorInfo": {"operatorId": 0, "operatorName": operator}, "stateStoreInfo": []}
        (folder / "metadata").write_text(f"v1\n{json.dumps(info)}")
        (self.root / "state/0/0").mkdir()
        for version in (1, 2):
            (self.root / "state/0/0" / f"{version}.snapshot").write_text("x")

    def upgrade(self, spark: Spark) -> Operation:
        """Try the newest revision with another Spark for its application."""
        spec = self.query.application.revisions.get().spec
        return begin_trial(
            query=self.query,
            spec=self.query.revisions.order_by("-number")[0].spec,
            application_spec={**spec, "spark": spark},
            actor="aude",
            now=timezone.now(),
        )

    def ran(self, *, code_sha256: str = "") -> Run:
        """Record that revision 1 has run on the checkpoint."""
        now = timezone.now()
        driver = Driver.objects.create(
            application=self.query.application,
            application_revision=self.query.application.revisions.get(),
            epoch=Installation.draw_epoch(),
            host=settings.HEADGATE_HOST,
            directory="/nowhere",
            created_at=now,
            state=DriverState.ENDED,
            state_since=now,
        )
        return Run.objects.create(
            query=self.query,
            driver=driver,
            epoch=Installation.draw_epoch(),
            checkpoint=Checkpoint.objects.get(),
            revision=self.query.revisions.order_by("number")[0],
            code_sha256=code_sha256,
            generation=0,
            cause="",
            created_at=now,
            first_commit_at=now,
            outcome="STOPPED",
        )

    def begin(self, spec: dict[str, Any] | None = None) -> Operation:
        return begin_preflight(query=self.query, spec=spec, actor="aude", now=timezone.now())

    def advance(self, operation: Operation) -> Operation:
        now = timezone.now() + timedelta(seconds=1)
        advance(operation.pk, procedures=PROCEDURES, launcher=self.launcher, now=now)
        operation.refresh_from_db()
        return operation

    def task(self) -> Any:
        return read_task(next(iter(self.launcher.probes.values())).task)

    def left(self) -> list[str]:
        return [p.name for p in self.root.parent.glob(".headgate/probes/*")]

    def revise(self, **changes: Any) -> dict[str, Any]:
        spec = {**self.query.revisions.order_by("-number")[0].spec, **changes}
        number = self.query.revisions.count() + 1
        self.query.revisions.create(
            number=number, kind="sql", spec=spec, author="aude", created_at=timezone.now()
        )
        return spec


@pytest.fixture
def ground(tmp_path: Path, db: None) -> Ground:
    return Ground(tmp_path)


def test_a_preflight_waits_for_its_probe_and_ends_with_what_it_found(ground: Ground) -> None:
    ground.commit(3)
    ground.ran()
    operation = ground.advance(ground.begin())
    assert [step["state"] for step in operation.steps][:3] == ["DONE"] * 3
    assert operation.detail.text == "Launching"
    task = ground.task()
    assert (task.batch, task.old_spec["kind"]) == (2, "sql")
    copy = Path(task.copy.removeprefix("file://"))
    assert sorted(p.name for p in (copy / "commits").iterdir()) == ["0", "1"]
    probe = Driver.objects.get(kind=DriverKind.PROBE)
    assert probe.state == DriverState.STARTING
    ground.launcher.answer(replace(PASSED, done=False).dumps(), leaves=False)
    assert ground.advance(operation).detail.text == "Comparing the plans"
    probe.refresh_from_db()
    assert probe.state == DriverState.LIVE  # the start slot is free again
    ground.launcher.answer(PASSED.dumps())
    operation = ground.advance(operation)
    assert operation.outcome == OperationOutcome.DONE
    assert operation.result["preflight"]["verdict"] == "passed"
    probe.refresh_from_db()
    assert (probe.state, probe.exit_python) == (DriverState.ENDED, "0")
    assert ground.left() == []


def test_a_probe_disturbs_neither_its_application_nor_its_driver(ground: Ground) -> None:
    ground.commit(1)
    ground.stage.launcher.obliging = True
    ground.stage.start("delays")
    operation = ground.advance(ground.begin())
    service = Driver.objects.get(kind=DriverKind.SERVICE)
    for _ in range(3):
        for pk in due_applications(now=timezone.now() + timedelta(days=1)):
            reconcile(pk, launcher=ground.stage.launcher, now=ground.stage.now)
    service.refresh_from_db()
    assert service.state in (DriverState.STARTING, DriverState.LIVE)
    assert service.end_wanted == ""
    assert operation.outcome == ""


def test_on_a_busy_host_it_waits_for_a_driver_that_starts_and_its_time_does_not_run_out(
    ground: Ground, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.STARTS_AT_ONCE = 9
    ground.stage.now = timezone.now()
    ground.stage.start("delays")
    with monkeypatch.context() as busy:
        busy.setattr(host_pressure, "read_pressure", lambda: Pressure(95.0, 90.0, 2))
        operation = ground.advance(ground.begin())
        said = "Waiting because a driver is starting on this busy host (load 90 on 2 cores, a"
        assert operation.detail.text.startswith(said)
        assert not Driver.objects.filter(kind=DriverKind.PROBE).exists()
        Operation.objects.filter(pk=operation.pk).update(deadline=timezone.now())
        assert ground.advance(operation).outcome == ""
        late = timezone.now() - timedelta(seconds=settings.START_MAX_S)
        Operation.objects.filter(pk=operation.pk).update(deadline=late)
        assert ground.advance(operation).outcome == OperationOutcome.TIMED_OUT


def test_a_probe_whose_start_advances_is_not_ended_by_its_operations_limit(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = ground.advance(ground.begin())
    used = iter((5.0, 5.0))
    seen = ground.launcher.sight_probe
    monkeypatch.setattr(
        ground.launcher, "sight_probe", lambda *at: replace(seen(*at), cpu_s=next(used))
    )
    Operation.objects.filter(pk=operation.pk).update(deadline=timezone.now() + timedelta(days=1))
    operation = ground.advance(operation)
    assert Driver.objects.get(kind=DriverKind.PROBE).advanced_cpu_s == 5.0
    Operation.objects.filter(pk=operation.pk).update(deadline=timezone.now())
    assert ground.advance(operation).outcome == ""
    monkeypatch.undo()
    long_ago = timezone.now() - timedelta(seconds=181)
    Driver.objects.filter(kind=DriverKind.PROBE).update(advanced_at=long_ago)
    assert ground.advance(operation).outcome == OperationOutcome.TIMED_OUT


def test_it_takes_a_place_like_any_driver_and_says_what_it_waits_for(
    ground: Ground, settings: Any
) -> None:
    settings.STARTS_AT_ONCE = 0
    operation = ground.advance(ground.begin())
    assert operation.detail.text == "waiting for a start slot on the host"
    assert not Driver.objects.filter(kind=DriverKind.PROBE).exists()
    settings.STARTS_AT_ONCE = 2
    ground.advance(operation)
    assert Driver.objects.filter(kind=DriverKind.PROBE).count() == 1


def test_a_worker_that_dies_after_the_row_was_written_makes_no_second(ground: Ground) -> None:
    operation = ground.advance(ground.begin())
    steps = operation.steps
    for step in steps[1:]:
        step["state"] = "TODO"
    Operation.objects.filter(pk=operation.pk).update(steps=steps)
    ground.advance(operation)
    assert Driver.objects.filter(kind=DriverKind.PROBE).count() == 1
    assert len(ground.launcher.probes) == 1


def test_a_probe_that_dies_fails_the_operation_and_leaves_nothing(ground: Ground) -> None:
    ground.commit(2)
    operation = ground.advance(ground.begin())
    probe = Driver.objects.get(kind=DriverKind.PROBE)
    ground.launcher.end_probe("delays", probe.epoch)
    operation = ground.advance(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert "ended without a result" in operation.detail.text
    probe.refresh_from_db()
    assert (probe.state, probe.exit_python) == (DriverState.ENDED, "SIGKILL")
    assert ground.left() == []


@pytest.mark.parametrize("text", [PASSED.dumps()[:-30], '{"done":true}', "[1]"])
def test_an_answer_that_is_not_whole_fails_the_operation_and_is_not_waited_for(
    ground: Ground, text: str
) -> None:
    ground.commit(2)
    operation = ground.advance(ground.begin())
    ground.launcher.answer(text)
    operation = ground.advance(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert "The probe's result cannot be read" in operation.detail.text
    assert operation.detail.params["error"] == "no-answer"
    assert ground.left() == []


def test_an_answer_that_only_holds_the_words_is_not_waited_for(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.commit(2)
    operation = ground.advance(ground.begin())
    ground.launcher.answer(ProbeResult("x", error={"done": True}).dumps())
    graces: list[float] = []
    end = ground.launcher.end_probe

    def noted(application: str, epoch: int, *, grace_s: float = 0) -> None:
        graces.append(grace_s)
        end(application, epoch)

    monkeypatch.setattr(ground.launcher, "end_probe", noted)
    cancel(operation, actor="otto", now=timezone.now())
    ground.advance(operation)
    assert graces == [0]


def test_a_probe_is_found_by_its_operation(ground: Ground) -> None:
    first, second = ground.begin(), ground.begin()
    ground.advance(first)
    ground.advance(second)
    found = [probe_steps.probe_of(first), probe_steps.probe_of(second)]
    assert found == list(Driver.objects.filter(kind=DriverKind.PROBE).order_by("epoch"))
    assert [one and one.state_reason for one in found] == [Reason.PROBED] * 2


def test_a_cancelled_one_kills_its_probe_and_removes_its_copy(ground: Ground) -> None:
    ground.commit(2)
    operation = ground.advance(ground.begin())
    assert ground.left() == [str(operation.uuid)]
    cancel(operation, actor="otto", now=timezone.now())
    operation = ground.advance(operation)
    assert (operation.outcome, operation.to_undo) == (OperationOutcome.CANCELLED, False)
    assert Driver.objects.get(kind=DriverKind.PROBE).exit_python == "SIGKILL"
    assert ground.left() == []


def test_what_does_not_pass_fails_with_sparks_reason(ground: Ground) -> None:
    operation = ground.advance(ground.begin())
    error = {"error_class": "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", "root_cause": "key schema"}
    refused = Tried(PreflightAttempt.REPLAY, AttemptEnd.FAILED, error=error)
    ground.launcher.answer(replace(PASSED, tried=(refused,)).dumps())
    operation = ground.advance(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE" in operation.detail.text
    assert operation.result["preflight"]["verdict"] == "failed"


def test_a_checkpoint_that_cannot_be_tried_is_said(ground: Ground) -> None:
    ground.commit(2, continuous=True)
    operation = ground.advance(ground.begin())
    assert ground.task().copy == ""
    ground.launcher.answer(PASSED.dumps())
    operation = ground.advance(operation)
    assert "continuous processing" in operation.result["preflight"]["not_tried"][0]


def test_pinned_configuration_is_read_from_the_checkpoint(ground: Ground) -> None:
    ground.commit(2)
    spec = ground.revise(conf={"spark.sql.x": "2"})
    Checkpoint.objects.update(location=f"file://{ground.root}")
    operation = ground.advance(ground.begin())
    ground.launcher.answer(PASSED.dumps())
    operation = ground.advance(operation)
    assert operation.arguments["spec"] == spec
    judged = operation.result["preflight"]
    assert judged["pinned"] == [{"what": "spark.sql.x", "old": "1", "new": "2"}]
    assert judged["verdict"] == "differs"
    assert operation.outcome == OperationOutcome.DONE


@pytest.fixture
def sparks(settings: Any, tmp_path: Path) -> None:
    """Let the other versions be installed on this host."""
    settings.SPARKS_DIR = tmp_path / "sparks"
    for version in ("4.1", "4.2"):
        (settings.SPARKS_DIR / version / "pyspark").mkdir(parents=True)


@pytest.mark.usefixtures("sparks")
def test_another_spark_is_tried_on_the_copy_and_its_effects_are_reported(ground: Ground) -> None:
    ground.commit(2)
    ground.written_by("4.3", "stateStoreSave")
    ground.ran()
    operation = ground.advance(ground.upgrade("4.2"))
    assert next(iter(ground.launcher.probes.values())).spec.spark.endswith("/4.2")
    ground.launcher.answer(PASSED.dumps())
    told = ground.advance(operation).result["preflight"]["spark"]
    assert (told["from"], told["to"], told["refused"]) == ("4.3", "4.2", "")
    assert [value for _, value in told["lost"]] == ["true", "true"]
    operation = ground.advance(ground.begin())
    ground.launcher.answer(PASSED.dumps())
    assert "spark" not in ground.advance(operation).result["preflight"]  # the same one as before


def test_a_checkpoint_that_an_older_spark_may_have_written_is_named_so(ground: Ground) -> None:
    ground.commit(2)
    ground.written_by("3.5", "stateStoreSave", without=PRUNED)
    operation = ground.advance(ground.begin())
    ground.launcher.answer(PASSED.dumps())
    told = ground.advance(operation).result["preflight"]["spark"]
    assert (told["from"], told["back"], told["to"]) == ("3.5 or earlier", "3.5", "4.3")


@pytest.mark.guarantee("G-SPARK-1")
def test_a_spark_that_cannot_continue_the_checkpoint_is_not_even_started(ground: Ground) -> None:
    ground.commit(2)
    ground.written_by("4.3", "stateStoreSave", {CHECKSUM: "true"})
    operation = ground.advance(ground.upgrade("4.1"))
    assert operation.outcome == OperationOutcome.FAILED
    assert "Spark 4.1 cannot continue this checkpoint" in operation.detail.text
    assert operation.detail.params["error"] == "no-way-back"
    assert not ground.launcher.probes


@pytest.mark.guarantee("G-SPARK-1")
@pytest.mark.usefixtures("sparks")
def test_an_application_is_not_saved_with_a_spark_that_would_strand_a_query(
    ground: Ground,
) -> None:
    ground.commit(2)
    ground.written_by("4.3", "stateStoreSave", {CHECKSUM: "true"})
    application = ground.query.application
    spec = application.revisions.get().spec
    with pytest.raises(Invalid) as raised:
        plan_application(application=application, spec={**spec, "spark": "4.1"})
    (problem,) = raised.value.problems
    assert (problem.field, problem.value) == ("spark", "4.1")
    assert f"would strand query {ground.query.name}: Spark 4.1 cannot" in problem.message
    assert "rewind the query to a snapshot" in problem.way_out
    plan_application(application=application, spec={**spec, "spark": "4.2"})
    # A script's queries are asked about too, although it starts them itself.
    script = {**spec, "kind": "script", "script": {"module": "flights"}}
    application.revisions.update(spec=script)

    def stranded(spark: str) -> list[Problem]:
        try:
            plan_application(
                application=application, spec={**script, "spark": spark}, rights=AuthorRights.ALL
            )
        except Invalid as refused:
            return [one for one in refused.problems if one.field == "spark"]
        return []

    assert stranded("4.1") == [problem]
    assert stranded("4.2") == []


def test_old_code_that_is_gone_leaves_the_plans_uncompared(ground: Ground) -> None:
    ground.commit(2)
    run = ground.ran(code_sha256="0" * 64)
    spec = dict(run.revision.spec)
    run.revision.spec = {"kind": "python", "function": "m:f"}
    run.revision.save()
    ground.query.revisions.create(
        number=2, kind="sql", spec=spec, author="aude", created_at=timezone.now()
    )
    ground.launcher.frozen_code = lambda count, sha256: None  # type: ignore[method-assign]
    operation = ground.advance(ground.begin())
    assert ground.task().old_spec is None
    ground.launcher.answer(PASSED.dumps())
    operation = ground.advance(operation)
    assert operation.result["preflight"]["not_tried"] == [
        "the comparison with revision 1: its code is gone"
    ]


def test_a_definition_that_could_not_be_saved_is_refused_at_once(ground: Ground) -> None:
    with pytest.raises(Invalid):
        ground.begin({"kind": "sql", "sources": [], "sql": ""})
    assert not Operation.objects.exists()


# --- required by the application ------------------------------------------------------


def _require(ground: Ground) -> None:
    revision = ground.query.application.revisions.get()
    revision.spec = {**revision.spec, "require_preflight": True}
    revision.save()


def _start(ground: Ground) -> Operation:
    return operations.request_start(query=ground.query, actor="otto", now=timezone.now())


@pytest.mark.usefixtures("sparks")
def test_a_required_preflight_is_one_with_the_spark_that_would_run(ground: Ground) -> None:
    _require(ground)
    ground.commit(2)
    ground.ran()
    application = ground.query.application
    operation = ground.advance(ground.begin())  # with the Spark of the last run
    ground.launcher.answer(PASSED.dumps())
    ground.advance(operation)
    first = application.revisions.get()
    application.revisions.create(
        number=2, spec={**first.spec, "spark": "4.2"}, author="aude", created_at=timezone.now()
    )
    with pytest.raises(NotAllowed, match="has not passed a preflight"):
        _start(ground)
    operation = ground.advance(ground.begin())
    ground.launcher.answer(PASSED.dumps())
    assert ground.advance(operation).result["spark"] == "4.2"
    _start(ground)


def test_where_it_is_required_nothing_starts_that_has_not_passed(ground: Ground) -> None:
    _require(ground)
    ground.commit(2)
    with pytest.raises(NotAllowed, match="not passed a preflight") as refused:
        _start(ground)
    assert "/api/v1/queries/delays/preflight/" in refused.value.way_out
    operation = ground.advance(ground.begin())
    ground.launcher.answer(PASSED.dumps())
    ground.advance(operation)
    assert _start(ground).outcome == ""


def test_a_later_revision_and_another_checkpoint_must_pass_again(ground: Ground) -> None:
    _require(ground)
    operation = ground.advance(ground.begin())
    ground.launcher.answer(PASSED.dumps())
    ground.advance(operation)
    spec = ground.revise(conf={"spark.sql.x": "2"})
    with pytest.raises(NotAllowed, match="Revision 2"):
        _start(ground)
    ground.revise(**{**spec, "conf": {}})  # what has passed before, in other words
    _start(ground)
    Checkpoint.objects.update(retired_at=timezone.now())
    Checkpoint.objects.create(
        query=ground.query, location="file:///elsewhere", created_at=timezone.now()
    )
    with pytest.raises(NotAllowed, match="not passed a preflight"):
        operations.request_restart(query=ground.query, actor="otto", now=timezone.now())


@pytest.mark.parametrize("where", ["object store", "continuous"])
@pytest.mark.usefixtures("no_java")
def test_a_preflight_that_could_not_try_the_checkpoint_has_not_passed(
    ground: Ground, where: str
) -> None:
    _require(ground)
    ground.commit(2, continuous=where == "continuous")
    if where == "object store":
        Checkpoint.objects.update(location="s3a://flights/delays")
    operation = ground.advance(ground.begin())
    ground.launcher.answer(PASSED.dumps())
    operation = ground.advance(operation)
    assert operation.outcome == OperationOutcome.DONE
    assert operation.result["preflight"]["verdict"] == "incomplete"
    with pytest.raises(NotAllowed, match="could not try the checkpoint") as refused:
        _start(ground)
    assert "Require a preflight" in refused.value.way_out
    assert ".." not in str(refused.value)


def test_what_ran_last_on_the_checkpoint_may_start_again(ground: Ground) -> None:
    _require(ground)
    ground.ran()
    assert _start(ground).outcome == ""


# --- state inspection ------------------------------------------------------------------


def test_an_x_ray_reads_a_copy_and_keeps_numbers_only(ground: Ground) -> None:
    ground.commit(2, state=True)
    operation = begin_xray(
        query=ground.query, actor="aude", now=timezone.now(), contains="WN", rows=5
    )
    operation = ground.advance(operation)
    task = ground.task()
    assert isinstance(task, XrayTask)
    assert (task.contains, task.rows) == ("WN", 5)
    state = {
        "operators": [],
        "operator": 0,
        "partitions": [{"partition": 0, "rows": 2, "bytes": 9}],
        "rows": 2,
        "bytes": 9,
        "sample": [{"key": "secret person"}],
    }
    ground.launcher.answer(ProbeResult("x", done=True, state=state).dumps())
    operation = ground.advance(operation)
    assert operation.outcome == OperationOutcome.DONE
    assert operation.result["rows"] == 2
    assert "secret person" not in json.dumps(operation.result)
    seen = rows_of(operation, launcher=ground.launcher, now=timezone.now())
    assert seen == state
    assert ground.left() == []


def test_a_query_without_state_and_wrong_wishes_are_refused(ground: Ground) -> None:
    ground.commit(2)
    operation = ground.advance(begin_xray(query=ground.query, actor="a", now=timezone.now()))
    assert operation.outcome == OperationOutcome.FAILED
    assert "has no state" in operation.detail.text
    with pytest.raises(Invalid, match=r"rows.*operator.*side"):
        begin_xray(
            query=ground.query, actor="a", now=timezone.now(), rows=0, operator=-1, side="up"
        )
    with pytest.raises(Missing, match="has no snapshot"):
        begin_xray(query=ground.query, actor="a", now=timezone.now(), snapshot=5)


def test_an_x_ray_that_spark_cannot_answer_fails_and_forgets(ground: Ground) -> None:
    ground.commit(2, state=True)
    operation = begin_xray(query=ground.query, actor="a", now=timezone.now(), operator=3)
    operation = ground.advance(operation)
    error = {"root_cause": "The checkpoint has no state operator 3."}
    ground.launcher.answer(ProbeResult("x", done=True, error=error).dumps())
    operation = ground.advance(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert "no state operator 3" in operation.detail.text
    assert rows_of(operation, launcher=ground.launcher, now=timezone.now()) is None


def test_a_restart_with_another_spark_waits_for_the_preflight_that_is_required(
    stage: Stage, settings: Any, tmp_path: Path
) -> None:
    settings.SPARKS_DIR = tmp_path / "sparks"
    (tmp_path / "sparks" / "4.2" / "pyspark").mkdir(parents=True)
    stage.application("copies")
    stage.query("copy", "copies")
    stage.up("copy", "copies")
    stage.commit("copy")
    application = Application.objects.get(name="copies")
    spec = {**application.revisions.get().spec, "require_preflight": True, "spark": "4.2"}
    author: dict[str, Any] = {"actor": "ada", "now": stage.now}
    revise_application(application=application, spec=spec, expected_revision=None, **author)
    with pytest.raises(Unproven, match="has not passed a preflight"):
        request_application_restart(application=application, **author)
