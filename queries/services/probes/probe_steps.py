"""Steps that every procedure with a probe driver shares: its slot on the host, launch, and end.

A probe driver is a Driver row of kind PROBE from before its launch until its end is proven, so it
takes a start slot and memory like any driver; it runs no query, and reconcile ignores it. Its
row is found by its operation, whichever worker takes the next step.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from controlplane.nudge import changed
from queries.checkpoints.snapshot import remove
from queries.domain.checkpoints.lock_files import FOLDER, local_path
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import NotAllowed, Problem
from queries.domain.failures.error_text import first_sentence
from queries.domain.probes.questions import PreflightTask, ProbeResult, RecordsTask, XrayTask
from queries.domain.protocol import DriverSpec
from queries.domain.reasons import Because, Detail, phrase
from queries.domain.states import OPEN_DRIVER_STATES, DriverState, Reason
from queries.domain.supervision.observation import PASSED, Liveness
from queries.launchers.base import Launcher, LaunchRefused
from queries.models.applications import ApplicationRevision
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.models.installation import Installation
from queries.selectors.supervision.observation import slots
from queries.services.changes import record, update_changed
from queries.services.code.frozen import Frozen, freeze
from queries.services.code.preparing import begin
from queries.services.failures.driver_logs import probe_answer, read_log
from queries.services.procedures.engine import DONE, StepContext, StepResult, waiting
from queries.services.secrets.refusals import query_refusal
from queries.services.supervision import records
from queries.services.supervision.assignments import driver_spec

logger = logging.getLogger(__name__)

#: A probe's cores, whatever the application's master: two, as for a laptop.
MASTER = "local[2]"
#: Settings for a cluster or its executors, which mean nothing to a probe driver.
_DROPPED = ("spark.executor.", "spark.dynamicAllocation.", "spark.cores.", "spark.kubernetes.")
STOP_TIMEOUT_S = 10.0
SHOWN_FOR = timedelta(hours=1)  # rows may be personal data
LEAVES_S = 5.0  # for a probe that has answered to end by itself
#: Of an operation with a probe, including the wait for a slot on the host.
LIMIT = timedelta(minutes=10)
ROWS, MOST_ROWS = 50, 500  # that somebody looks at: unless told, and at most


class NoAnswer(NotAllowed):
    """The probe driver ended without an answer."""

    code = "no-answer"


def folder(turn: StepContext, checkpoint: Checkpoint) -> Path:
    """Return the operation's own folder for temporary files.

    Next to a local checkpoint, because hard links do not work across file systems; else under
    the drivers' folder.
    """
    path = local_path(checkpoint.location)
    if path is None:
        base = Path(settings.DRIVERS_DIR) / "probes"
    else:
        base = Path(path.parent) / FOLDER / "probes"
    return base / str(turn.operation.uuid)


def rows_problems(rows: int) -> list[Problem]:
    """Return what is wrong with the number of rows that somebody wants to look at."""
    if 0 < rows <= MOST_ROWS:
        return []
    return [Problem("rows", str(rows), f"is not between 1 and {MOST_ROWS}.")]


def require_local(checkpoint: Checkpoint, *, way_out: str) -> None:
    """Raise `NotAllowed` where a checkpoint's files cannot be read here."""
    if local_path(checkpoint.location) is None:
        raise NotAllowed(
            f"{checkpoint.location} is not on this host's file system.", way_out=way_out
        )


def checkpoint_of(turn: StepContext) -> Checkpoint:
    """Return the checkpoint that the operation began with: a rewind may exchange it meanwhile."""
    known = turn.result.get("checkpoint")
    checkpoints = turn.query.checkpoints
    return checkpoints.get(retired_at=None) if known is None else checkpoints.get(pk=known)


def take_place(turn: StepContext) -> StepResult:
    """Insert the probe's row once the host has a slot for it; when repeated, find it."""
    if probe_of(turn.operation) is not None:
        return DONE
    application, revision = turn.query.application, application_revision(turn)
    spec = application_spec(turn)
    with transaction.atomic():
        Installation.get()
        Installation.objects.select_for_update().filter(pk=1).first()
        if waits := slots(spec).free:
            return waiting(f"{phrase(waits)} on the host")
        driver = records.create_driver(
            application, revision, launcher=turn.launcher, now=turn.now, probe_for=turn.operation
        )
        _record(driver, "", DriverState.STARTING, turn)
    return DONE


def application_revision(turn: StepContext) -> ApplicationRevision:
    """Return what the probe is launched with: the newest, unless the request names another.

    In memory alone, it holds the definition that is still to be written where one is tried.
    """
    revisions = turn.query.application.revisions
    number = turn.arguments.get("application_revision")
    found = revisions.order_by("-number") if number is None else revisions.filter(number=number)
    return _as_tried(turn, found[0])


def application_spec(turn: StepContext) -> ApplicationSpec:
    """Return the application's definition that the probe is launched with."""
    return ApplicationSpec.model_validate(application_revision(turn).spec)


def _as_tried(turn: StepContext, revision: ApplicationRevision) -> ApplicationRevision:
    revision.spec = turn.arguments.get("application_spec", revision.spec)
    return revision


def launch(
    turn: StepContext, task_for: Callable[[str], PreflightTask | XrayTask | RecordsTask]
) -> StepResult:
    """Launch the probe of the operation's row; when repeated, complete what is missing.

    `task_for` is given the SHA-256 of the code that the probe runs, "" for none.
    """
    driver = _must(turn)
    spec = ApplicationSpec.model_validate(_as_tried(turn, driver.application_revision).spec)
    try:
        code = freeze(spec, turn.launcher)
        driver.code_sha256 = code.sha256
        driver.save(update_fields=["code_sha256"])
        task = task_for(driver.code_sha256)
        _require_allowed(task, driver.application.name)
        turn.launcher.launch_probe(_driver_spec(driver, code), task.dumps())
    except LaunchRefused as error:
        if error.passing:
            begin(spec)
            return waiting(str(error))
        raise NoAnswer(str(error)) from error
    turn.result["code_sha256"] = driver.code_sha256
    return DONE


def _require_allowed(task: PreflightTask | XrayTask | RecordsTask, application: str) -> None:
    """Raise `LaunchRefused` where an admin has not allowed what the definition names."""
    if not isinstance(task, XrayTask) and (refused := query_refusal(task.spec, application)):
        raise LaunchRefused(refused)


def _driver_spec(driver: Driver, code: Frozen) -> DriverSpec:
    """Return the spec of a probe driver: the application's, with few cores and without events."""
    spec = driver_spec(driver, code)
    conf = {key: value for key, value in spec.conf.items() if not key.startswith(_DROPPED)}
    return replace(
        spec,
        master=MASTER,
        conf={"spark.sql.shuffle.partitions": "4", **conf},
        scheduler_mode="FIFO",
        listeners=(),
        redis_url="",
        stream="",
        event_settings={},
        stop_timeout_s=STOP_TIMEOUT_S,
        probe=True,
    )


def await_answer(turn: StepContext) -> ProbeResult | StepResult:
    """Return what the probe has found once it is done, else what it is doing.

    Raises `NoAnswer` where it died (killed, out of memory, or its host restarted), and where
    what it wrote cannot be read.
    """
    driver = _must(turn)
    name = driver.application.name
    seen = turn.launcher.sight(name, driver.epoch, probe=True, known=driver.identity)
    result = found_by(driver, launcher=turn.launcher)
    _note(driver, seen.process, up=result is not None and result.took_ms != {}, now=turn.now)
    if result is not None and result.done:
        return result
    if seen.liveness in PASSED:
        tail = read_log(driver, *_tried(turn.operation), launcher=turn.launcher, lines=3)[-500:]
        why = "ran out of memory" if seen.exit and seen.exit.oom else "ended without an answer"
        raise NoAnswer(
            f"The probe driver {why}. {tail}".strip(),
            way_out="Try again; give the application more memory if that was the reason.",
        )
    return waiting(result.at if result is not None else "Launching")


def await_read(turn: StepContext, part: str, what: str) -> ProbeResult | StepResult:
    """Return what the probe has found once it is done, else what it is doing.

    Raises `NoAnswer` as `await_answer` does, and where this part of `ProbeResult` is missing:
    Spark could not read it. `what` says in words what was to be read.
    """
    answer = await_answer(turn)
    if isinstance(answer, StepResult):
        return answer
    if answer.error is not None or getattr(answer, part) is None:
        said = str((answer.error or {}).get("root_cause", "no answer"))
        raise NoAnswer(f"{what} cannot be read: {first_sentence(said) or said}")
    return answer


def put_away(turn: StepContext) -> StepResult:
    """End the probe driver and its row, whatever it is doing; when repeated, do nothing."""
    driver = probe_of(turn.operation)
    if driver is None or driver.state not in OPEN_DRIVER_STATES:
        return DONE
    name = driver.application.name
    turn.launcher.end_probe(name, driver.epoch, grace_s=LEAVES_S if _answered(turn, driver) else 0)
    seen = turn.launcher.sight(name, driver.epoch, probe=True, known=driver.identity)
    if seen.liveness not in PASSED and seen.liveness is not Liveness.ABSENT:
        return waiting("Waiting for the probe driver's processes to end")
    Driver.objects.filter(pk=driver.pk).update(
        state=DriverState.ENDED,
        state_since=turn.now,
        ended_at=turn.now,
        exit_python=seen.exit.python[:12] if seen.exit else "UNKNOWN",
        exit_jvm=seen.exit.jvm[:12] if seen.exit else "UNKNOWN",
        last_seq=0,
    )
    _record(driver, driver.state, DriverState.ENDED, turn)
    return DONE


def tidy(turn: StepContext) -> StepResult:
    """End the probe, then delete the copy of the checkpoint."""
    told = put_away(turn)
    if told.done and turn.result.get("checkpoint") is not None:
        remove(folder(turn, checkpoint_of(turn)))
    return told


def forget(turn: StepContext) -> StepResult:
    """End the probe, then delete the copy and the probe's answer."""
    told = tidy(turn)
    if told.done and (driver := probe_of(turn.operation)) is not None:
        turn.launcher.forget_result(driver.application.name, driver.epoch)
    return told


def probe_of(operation: Operation) -> Driver | None:
    """Return the row of an operation's probe, None where it has none."""
    found = Driver.objects.select_related("application", "application_revision")
    return found.filter(operation=operation).first()


def found_by(driver: Driver, *, launcher: Launcher) -> ProbeResult | None:
    """Return what a probe has found so far, None for nothing yet (or no more).

    Raises `NoAnswer` where that is malformed, half-written or too large.
    """
    tried = _tried(driver.operation) if driver.operation else []
    try:
        return probe_answer(driver, *tried, launcher=launcher)
    except ValueError as error:  # `Unreadable`, or bytes that are not text
        raise NoAnswer(f"The probe's answer cannot be read: {error}.") from error


def shown(operation: Operation, *, launcher: Launcher, now: datetime) -> ProbeResult | None:
    """Return what a probe has found, rows of people's data included; None once that is removed."""
    if operation.ended_at is None or now - operation.ended_at > SHOWN_FOR:
        return None
    driver = probe_of(operation)
    if driver is None or driver.host != settings.HEADGATE_HOST:
        return None  # its rows are kept on the host that read them
    return found_by(driver, launcher=launcher)


def _answered(turn: StepContext, driver: Driver) -> bool:
    try:
        result = found_by(driver, launcher=turn.launcher)
    except NoAnswer:
        return False
    return result is not None and result.done


def _tried(operation: Operation) -> list[Any]:
    """Return the definitions whose secrets an operation's probe may have been given."""
    assert operation.query is not None, "a probe is of a query"
    return [operation.arguments, *operation.query.revisions.values_list("spec", flat=True)]


# --- the row --------------------------------------------------------------------------


def _must(turn: StepContext) -> Driver:
    driver = probe_of(turn.operation)
    if driver is None:
        raise NoAnswer("The probe driver's row is gone.", way_out="Try again.")
    return driver


def _note(driver: Driver, process: Mapping[str, Any], *, up: bool, now: Any) -> None:
    """Write the identity of the processes, and free the start slot once Spark is up."""
    fields: dict[str, Any] = {**process}
    if up and driver.state == DriverState.STARTING:
        fields |= {"state": DriverState.LIVE, "state_since": now}
    update_changed(driver, fields)


def _record(driver: Driver, before: str, after: str, turn: StepContext) -> None:
    operation, query = turn.operation, turn.query
    about = {"application": driver.application, "query": query, "driver": driver}
    who = {"actor": operation.actor, "operation": operation}
    detail = Because(Detail.PROBE_FOR, {"verb": operation.verb, "query": query.name})
    record("driver", before, after, Reason.PROBED, now=turn.now, detail=detail, **about, **who)
    changed(f"driver:{driver.pk}")
