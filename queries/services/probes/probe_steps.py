"""Steps shared by all procedures with a probe driver: take a slot, launch it, and end it.

A probe driver has a Driver row of kind PROBE from before its launch until its end is proven, so it
takes a start slot and memory like any driver. It does not run a query, and reconcile ignores it.
Any worker can take the next step, because the row is found through its operation.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from controlplane.nudge import changed
from queries.checkpoints.snapshot import remove
from queries.domain.checkpoints.ownership import FOLDER, local_path
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import NotAllowed, Problem
from queries.domain.failures.diagnosis import classify_exit
from queries.domain.failures.error_text import first_sentence
from queries.domain.probes.questions import PreflightTask, ProbeResult, RecordsTask, XrayTask
from queries.domain.protocol import DriverSpec, ExitReport
from queries.domain.reasons import Because, Detail, phrase
from queries.domain.states import OPEN_DRIVER_STATES, DriverKind, DriverState, Reason
from queries.domain.supervision.observation import PASSED, Liveness, Sighting
from queries.domain.supervision.progress import advanced
from queries.launchers.base import Launcher, LaunchRefused
from queries.models.applications import ApplicationRevision
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Installation
from queries.models.history import Operation
from queries.selectors.supervision.observation import busy_beside_a_start, observed_driver, slots
from queries.services.changes import record, update_changed
from queries.services.code.preparing import Frozen, begin, freeze
from queries.services.failures import probe_answer, read_log
from queries.services.procedures.engine import DONE, StepContext, StepResult, waiting
from queries.services.secrets import query_refusal
from queries.services.supervision import decision_rows
from queries.services.supervision.assignments import driver_spec

logger = logging.getLogger(__name__)

#: A probe's cores, whatever the application's master: two, as on a laptop.
MASTER = "local[2]"
#: Cluster and executor settings, which do not apply to a probe driver.
_DROPPED = ("spark.executor.", "spark.dynamicAllocation.", "spark.cores.", "spark.kubernetes.")
STOP_TIMEOUT_S = 10.0
SHOWN_FOR = timedelta(hours=1)  # rows may be personal data
LEAVES_S = 5.0  # for a probe to exit once it has answered
#: Time limit of an operation with a probe, including the wait for a slot on the host.
LIMIT = timedelta(minutes=10)
ROWS, MOST_ROWS = 50, 500  # to look at: by default, and at most


class NoProbeAnswer(NotAllowed):
    """The probe driver ended without an answer."""

    code = "no-answer"


def no_answer(report: ExitReport | None, tail: str) -> NoProbeAnswer:
    """Return the error for a probe driver that ended without an answer.

    `report` is None if it is unknown how it ended.
    """
    if report is None:
        report = ExitReport("UNKNOWN", "UNKNOWN", core=False, oom=False, at="")
    ended = classify_exit(
        python=report.python, jvm=report.jvm, oom=report.oom, killed=report.killed
    )
    way_out = "Give the application more memory, then try again." if report.oom else "Try again."
    text = f"The probe driver ended without a result. {ended.title}. {ended.meaning} {tail}"
    return NoProbeAnswer(text.strip(), way_out=way_out)


def folder(context: StepContext, checkpoint: Checkpoint) -> Path:
    """Return the operation's own folder for temporary files.

    If the checkpoint is local, the folder is next to it, because hard links do not work across file
    systems; otherwise it is below the drivers' folder.
    """
    path = local_path(checkpoint.location)
    if path is None:
        base = Path(settings.DRIVERS_DIR) / "probes"
    else:
        base = Path(path.parent) / FOLDER / "probes"
    return base / str(context.operation.uuid)


def rows_problems(rows: int) -> list[Problem]:
    """Return the problems with the requested number of rows."""
    if 0 < rows <= MOST_ROWS:
        return []
    return [Problem("rows", str(rows), f"is not between 1 and {MOST_ROWS}.")]


def checkpoint_of(context: StepContext) -> Checkpoint:
    """Return the operation's original checkpoint, which a rewind may have replaced since."""
    checkpoint_id = context.result.get("checkpoint")
    checkpoints = context.query.checkpoints
    return (
        checkpoints.get(retired_at=None)
        if checkpoint_id is None
        else checkpoints.get(pk=checkpoint_id)
    )


def take_slot(context: StepContext) -> StepResult:
    """Insert the probe's row once the host has a free slot; when repeated, find that row."""
    if probe_of(context.operation) is not None:
        return DONE
    application, revision = context.query.application, application_revision(context)
    spec = application_spec(context)
    with transaction.atomic():
        Installation.get()
        Installation.objects.select_for_update().filter(pk=1).first()
        if waits := slots(spec, now=context.now).free:
            return waiting(f"{phrase(waits)} on the host")
        if busy := busy_beside_a_start(now=context.now):
            return waiting(f"Waiting because {busy}")
        driver = decision_rows.create_driver(
            application,
            revision,
            launcher=context.launcher,
            now=context.now,
            kind=DriverKind.PROBE,
            probe_for=context.operation,
        )
        _record(driver, "", DriverState.STARTING, context)
    return DONE


def application_revision(context: StepContext) -> ApplicationRevision:
    """Return the application revision for the launch: the newest, unless the request names another.

    If the definition is not written yet, the revision exists only in memory.
    """
    revisions = context.query.application.revisions
    number = context.arguments.get("application_revision")
    candidates = (
        revisions.order_by("-number") if number is None else revisions.filter(number=number)
    )
    return _as_tried(context, candidates[0])


def application_spec(context: StepContext) -> ApplicationSpec:
    """Return the application's definition that the probe is launched with."""
    return ApplicationSpec.model_validate(application_revision(context).spec)


def _as_tried(context: StepContext, revision: ApplicationRevision) -> ApplicationRevision:
    revision.spec = context.arguments.get("application_spec", revision.spec)
    return revision


def launch(
    context: StepContext, task_for: Callable[[str], PreflightTask | XrayTask | RecordsTask]
) -> StepResult:
    """Launch the probe of the operation's row; when repeated, complete the launch.

    `task_for` is called with the SHA-256 of the code that the probe runs, "" if none.
    """
    driver = _must(context)
    spec = ApplicationSpec.model_validate(_as_tried(context, driver.application_revision).spec)
    try:
        code = freeze(spec, context.launcher)
        driver.code_sha256 = code.sha256
        driver.save(update_fields=["code_sha256"])
        task = task_for(driver.code_sha256)
        _require_allowed(task, driver.application.name)
        context.launcher.launch_probe(_driver_spec(driver, code), task.dumps())
    except LaunchRefused as error:
        if error.passing:
            begin(spec)
            return waiting(str(error))
        raise NoProbeAnswer(str(error)) from error
    context.result["code_sha256"] = driver.code_sha256
    return DONE


def _require_allowed(task: PreflightTask | XrayTask | RecordsTask, application: str) -> None:
    """Raise `LaunchRefused` if the definition names something that no admin has allowed."""
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


def await_answer(context: StepContext) -> ProbeResult | StepResult:
    """Return the probe's result once it is done, else its current activity.

    Raises `NoProbeAnswer` if the probe died (killed, out of memory, or its host restarted), or if
    its output cannot be read.
    """
    driver = _must(context)
    name = driver.application.name
    sighting = context.launcher.sight(name, driver.epoch, probe=True, identity=driver.identity)
    result = read_result(driver, launcher=context.launcher)
    _note(driver, sighting, up=result is not None and result.took_ms != {}, now=context.now)
    if result is not None and result.done:
        return result
    if sighting.liveness in PASSED:
        tail = read_log(driver, *_tried(context.operation), launcher=context.launcher, lines=3)[
            -500:
        ]
        raise no_answer(sighting.exit, tail)
    return waiting(result.at if result is not None else "Launching")


def await_read(context: StepContext, part: str, what: str) -> ProbeResult | StepResult:
    """Return the probe's result once it is done, else its current activity.

    Raises `NoProbeAnswer` as `await_answer` does, or if this part of `ProbeResult` is missing
    because Spark could not read it. `what` describes the missing part in the message.
    """
    answer = await_answer(context)
    if isinstance(answer, StepResult):
        return answer
    if answer.error is not None or getattr(answer, part) is None:
        root_cause = str((answer.error or {}).get("root_cause", "no answer"))
        raise NoProbeAnswer(f"{what} cannot be read: {first_sentence(root_cause) or root_cause}")
    return answer


def put_away(context: StepContext) -> StepResult:
    """End the probe driver and its row, whatever it is doing; does nothing when repeated."""
    driver = probe_of(context.operation)
    if driver is None or driver.state not in OPEN_DRIVER_STATES:
        return DONE
    name = driver.application.name
    context.launcher.end_probe(
        name, driver.epoch, grace_s=LEAVES_S if _answered(context, driver) else 0
    )
    sighting = context.launcher.sight(name, driver.epoch, probe=True, identity=driver.identity)
    if sighting.liveness not in PASSED and sighting.liveness is not Liveness.ABSENT:
        return waiting("Waiting for the probe driver's processes to end")
    Driver.objects.filter(pk=driver.pk).update(
        state=DriverState.ENDED,
        state_since=context.now,
        ended_at=context.now,
        exit_python=sighting.exit.python[:12] if sighting.exit else "UNKNOWN",
        exit_jvm=sighting.exit.jvm[:12] if sighting.exit else "UNKNOWN",
        last_seq=0,
    )
    _record(driver, driver.state, DriverState.ENDED, context)
    return DONE


def tidy(context: StepContext) -> StepResult:
    """End the probe, then delete the copy of the checkpoint."""
    result = put_away(context)
    if result.done and context.result.get("checkpoint") is not None:
        remove(folder(context, checkpoint_of(context)))
    return result


def forget(context: StepContext) -> StepResult:
    """End the probe, then delete the copy and the probe's answer."""
    result = tidy(context)
    if result.done and (driver := probe_of(context.operation)) is not None:
        context.launcher.forget_result(driver.application.name, driver.epoch)
    return result


def probe_of(operation: Operation) -> Driver | None:
    """Return the row of an operation's probe; None if it has none."""
    drivers = Driver.objects.select_related("application", "application_revision")
    return drivers.filter(operation=operation).first()


def read_result(driver: Driver, *, launcher: Launcher) -> ProbeResult | None:
    """Return a probe's findings so far; None if there are none yet (or no longer).

    Raises `NoProbeAnswer` if the result is malformed, incomplete or too large.
    """
    tried = _tried(driver.operation) if driver.operation else []
    try:
        return probe_answer(driver, *tried, launcher=launcher)
    except ValueError as error:  # `UnreadableResult`, or bytes that are not text
        raise NoProbeAnswer(f"The probe's result cannot be read: {error}.") from error


def shown(operation: Operation, *, launcher: Launcher, now: datetime) -> ProbeResult | None:
    """Return a probe's findings, including rows with personal data; None once they are removed."""
    if operation.ended_at is None or now - operation.ended_at > SHOWN_FOR:
        return None
    driver = probe_of(operation)
    if driver is None or driver.host != settings.HEADGATE_HOST:
        return None  # its rows are kept on the host that read them
    return read_result(driver, launcher=launcher)


def _answered(context: StepContext, driver: Driver) -> bool:
    try:
        result = read_result(driver, launcher=context.launcher)
    except NoProbeAnswer:
        return False
    return result is not None and result.done


def _tried(operation: Operation) -> list[Any]:
    """Return the definitions whose secrets an operation's probe may have been given."""
    assert operation.query is not None, "a probe is of a query"
    return [operation.arguments, *operation.query.revisions.values_list("spec", flat=True)]


# --- the row --------------------------------------------------------------------------


def _must(context: StepContext) -> Driver:
    driver = probe_of(context.operation)
    if driver is None:
        raise NoProbeAnswer("The probe driver's row is gone.", way_out="Try again.")
    return driver


def _note(driver: Driver, sighting: Sighting, *, up: bool, now: datetime) -> None:
    """Store the identity of the processes and how far the start has come.

    Once Spark is up, free the start slot.
    """
    fields: dict[str, Any] = {**sighting.process}
    starting = driver.state == DriverState.STARTING
    if starting and (about := observed_driver(driver, sighting)) is not None:
        fields |= decision_rows.progress_fields(advanced(about, now))
    if up and starting:
        fields |= {"state": DriverState.LIVE, "state_since": now}
    update_changed(driver, fields)


def _record(driver: Driver, before: str, after: str, context: StepContext) -> None:
    operation, query = context.operation, context.query
    about = {"application": driver.application, "query": query, "driver": driver}
    who = {"actor": operation.actor, "operation": operation}
    detail = Because(Detail.PROBE_FOR, {"verb": operation.verb, "query": query.name})
    record("driver", before, after, Reason.PROBED, now=context.now, detail=detail, **about, **who)
    changed(f"driver:{driver.pk}")
