"""Write the decisions of reconcile: drivers, runs, phases, restart blocks.

Every function runs inside the transaction of a step that has claimed its application.
"""

import logging
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F

from controlplane.nudge import changed, reconcile_soon
from listeners.loops.backlogs import loop_errors
from queries.domain.definitions.spec import DriverPlace
from queries.domain.protocol import ExecutorSeen, RunStatus, Want
from queries.domain.reasons import NOTHING, Because, Detail
from queries.domain.states import (
    DISPATCHED_KINDS,
    STOPPED_PHASES,
    Desired,
    DriverKind,
    DriverState,
    OperationOutcome,
    Reason,
    RestartBlock,
    RunOutcome,
    Verb,
)
from queries.domain.supervision.decision import DriverDecision, QueryDecision, ScriptDecision
from queries.domain.supervision.observation import Sighting, StartMark
from queries.domain.supervision.standbys import TAKES_OVER
from queries.domain.validation.params import effective
from queries.launchers.base import Launcher
from queries.models.applications import Application, ApplicationRevision, Script
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Installation, Run
from queries.models.history import Operation
from queries.selectors.hosts import release
from queries.selectors.supervision.applications import pool_form
from queries.selectors.supervision.observation import time_of
from queries.selectors.triggers.replays import replayed_by, tracking_of
from queries.services.changes import record, update_changed
from queries.services.spark_ui import free_port
from queries.services.supervision.records import note_look, note_start

logger = logging.getLogger(__name__)
_loop = loop_errors("reconcile", logger)

#: How long to wait for the telemetry of a run's first batch.
MEASURED_WITHIN = timedelta(minutes=10)


def create_driver(
    application: Application,
    revision: ApplicationRevision,
    *,
    launcher: Launcher,
    now: datetime,
    code_sha256: str = "",
    kind: DriverKind = DriverKind.SERVICE,
    probe_for: Operation | None = None,
) -> Driver:
    """Insert the next driver of an application, an operation's probe, or a storage JVM.

    The epoch is higher than any that this host knows, so a restored database continues above those.
    """
    Installation.raise_epoch(launcher.highest_epoch(application.name))
    epoch, probe = Installation.draw_epoch(), kind not in DISPATCHED_KINDS
    reason = Reason.PROBED if probe else Reason.LAUNCHED
    if kind is DriverKind.STANDBY:
        reason = Reason.STANDS_BY
    driver = Driver.objects.create(
        kind=kind,
        application=application,
        application_revision=revision,
        operation=probe_for,
        pools=[] if probe else [pool_form(pool) for pool in application.pools.all()],
        code_sha256=code_sha256,
        release=release(),
        epoch=epoch,
        generation=0 if probe else application.generation,
        host=settings.HEADGATE_HOST,
        directory=launcher.files_location(application.name, epoch, probe=probe),
        ui_port=None if probe or revision.spec.get("driver") == DriverPlace.POD else free_port(),
        created_at=now,
        state=DriverState.STARTING,
        state_reason=reason,
        state_since=now,
    )
    if not probe:
        _driver_transition(driver, "", DriverState.STARTING, reason, now)
    return driver


def take_over(standby: Driver, application: Application, *, now: datetime) -> bool:
    """Make a standby the application's driver; False if it has just ended, or is about to."""
    fields: dict[str, Any] = {
        "kind": DriverKind.SERVICE,
        "generation": application.generation,
        "took_over_at": now,
        "state": DriverState.STARTING,  # until it has read that it is the driver
        "state_reason": Reason.TOOK_OVER,
        "state_since": now,
    }
    rows = Driver.objects.filter(
        pk=standby.pk, kind=DriverKind.STANDBY, state__in=sorted(TAKES_OVER), end_wanted=""
    )
    if not rows.update(**fields):
        return False
    before = standby.state
    for name, value in fields.items():
        setattr(standby, name, value)
    _driver_transition(standby, before, DriverState.STARTING, Reason.TOOK_OVER, now)
    return True


def update_driver(
    driver: Driver, sighting: Sighting | None, choice: DriverDecision, *, now: datetime
) -> None:
    """Write the observations of a driver, and its change of state."""
    fields: dict[str, Any] = {}
    if sighting is not None:
        fields |= sighting.process
    if sighting is not None and sighting.status is not None:
        status = sighting.status
        fields["jvm_pid"] = status.jvm_pid or fields.get("jvm_pid") or driver.jvm_pid
        fields |= {
            "applied_generation": status.applied_generation,
            "spark_version": status.spark_version,
            "java_version": status.java_version[:80],
            "spark_application_id": status.application_id,
            "executors": [asdict(executor) for executor in status.executors],
            "executors_wanted": asdict(status.wanted) if status.wanted else None,
        }
        _note_executors(driver, status.executors, now)
    if choice.progress is not None:
        fields |= progress_fields(choice.progress)
    if choice.end_wanted and not driver.end_wanted:
        fields |= {"end_wanted": choice.end_wanted, "end_wanted_at": now}
    if choice.exit is not None:
        fields |= {
            "ended_at": now,
            "exit_python": choice.exit.python[:12],
            "exit_jvm": choice.exit.jvm[:12],
            "exit_killed": choice.exit.killed,
            "last_seq": choice.exit.last_seq,
        }
    if choice.state is not None and choice.state != driver.state:
        reason = choice.reason
        fields |= {"state": choice.state, "state_reason": reason, "state_since": now}
        title = choice.fault and {"title": choice.fault.classified.title}
        about = Because(Detail.DRIVER_FAILURE, title) if title else NOTHING
        _driver_transition(driver, driver.state, choice.state, reason, now, about)
        changed(f"application:{driver.application_id}", f"driver:{driver.pk}")
    update_changed(driver, fields)


def progress_fields(progress: StartMark) -> dict[str, Any]:
    """Return how far a driver's start has come, by column of its row."""
    return {
        "advanced_at": progress.at,
        "advanced_cpu_s": progress.cpu_s,
        "advanced_step": progress.step,
    }


def _note_executors(driver: Driver, executors: tuple[ExecutorSeen, ...], now: datetime) -> None:
    """Record which executors were added and which were lost since the last pass."""
    before = {executor["id"]: executor["active"] for executor in driver.executors}
    for executor in executors:
        was_active = before.get(executor.id)
        if was_active == executor.active or (
            was_active is None and not executor.active and not driver.executors
        ):
            continue
        after, reason = ("LOST", Reason.EXECUTOR_LOST)
        if executor.active:
            after, reason = ("ACTIVE", Reason.EXECUTOR_CAME)
        came = "" if was_active is None else "ACTIVE"
        about = {
            "application_id": driver.application_id,
            "driver": driver,
            "detail": _about(executor),
        }
        record("executor", came, after, reason, now=now, **about)
        changed(f"application:{driver.application_id}", f"driver:{driver.pk}")


def _about(executor: ExecutorSeen) -> Because:
    params = {"executor": executor.id, "address": executor.address}
    if not executor.reason:
        return Because(Detail.EXECUTOR, params)
    return Because(Detail.EXECUTOR_REMOVED, {**params, "why": executor.reason})


def create_run(
    query: Query, driver: Driver, checkpoint: Checkpoint, cause: Reason, *, now: datetime
) -> Run:
    """Insert the next run of a query, on the revision that its start pinned."""
    revision = query.target_revision or query.revisions.order_by("-number").first()
    assert revision is not None, "a query has a revision from its first transaction on"
    operation = None
    if cause in {Reason.ASKED_START, Reason.ASKED_RESTART}:
        wanted = Operation.objects.filter(query=query, generation=query.generation)
        operation = wanted.order_by("-pk").first()
    if operation is not None and operation.verb == Verb.RESTART:
        cause = Reason.ASKED_RESTART  # a later wait does not show who requested it
    return Run.objects.create(
        query=query,
        driver=driver,
        epoch=Installation.draw_epoch(),
        checkpoint=checkpoint,
        revision=revision,
        code_sha256=driver.code_sha256,
        generation=query.generation,
        cause=cause,
        actor=operation.actor if operation else "",
        params=effective(revision.spec.get("params", {}), query.params),
        accepts_loss=_accepts_loss(query),
        created_at=now,
    )


def _accepts_loss(query: Query) -> bool:
    """Return whether an open `go_on_after_loss` operation is at the step that skips the gap."""
    operations = Operation.objects.filter(
        query=query, verb=Verb.GO_ON, outcome=OperationOutcome.OPEN
    )
    return any(operation.result.get("accepting") for operation in operations)


def update_run(run: Run, status: RunStatus | None, choice: QueryDecision, *, now: datetime) -> None:
    """Write the driver's report on an open run, and the run's end."""
    fields: dict[str, Any] = {}
    if status is not None:
        committed, idle = time_of(status.first_commit_at), time_of(status.first_idle_at)
        fields = {
            "spark_run_id": status.spark_run_id or run.spark_run_id,
            "started_at": time_of(status.started_at) or run.started_at,
            "first_commit_at": committed or run.first_commit_at,
            "proven_at": run.proven_at or committed or idle,
            "last_batch": run.last_batch if status.last_batch is None else status.last_batch,
            "last_commit_at": time_of(status.last_commit_at) or run.last_commit_at,
            "warnings": list(status.warnings),
        }
        if fields["started_at"] and status.topic_ids:
            (note_start if run.started_at is None else note_look)(run, status.topic_ids)
        if fields["started_at"] and run.started_at is None:  # one confirmation, one takeover
            checkpoint_rows = Checkpoint.objects.filter(pk=run.checkpoint_id)
            checkpoint_rows.exclude(takeover_at=None).update(takeover_at=None)
    if run.replayed is None and tracking_of(run.revision, run) is not None:
        fields["replayed"] = _replayed(run, ended=choice.ended is not None, now=now)
    if choice.ended is not None:
        fields |= {
            "outcome": choice.ended.outcome,
            "ended_at": now,
            "at_death": choice.ended.candidacy,
            "batch_at_death": choice.ended.batch,
        }
    elif choice.want is not Want.RUN and run.stop_asked_at is None:
        fields["stop_asked_at"] = now
    if update_changed(run, fields):
        changed(f"query:{run.query_id}")


def _replayed(run: Run, *, ended: bool, now: datetime) -> dict[str, Any] | None:
    """Return the run's replay; None until its first batch has been reported."""
    if run.first_commit_at is None:
        return None
    replay = None
    with _loop.isolate_errors(f"run {run.pk}: what it replayed"), transaction.atomic():
        replay = replayed_by(run)
    if replay is None and (ended or now - run.first_commit_at > MEASURED_WITHIN):
        return {}
    return replay


def update_query(query: Query, run: Run | None, choice: QueryDecision, *, now: datetime) -> None:
    """Write a query's phase and restart counters; a completed query is set to stopped.

    `run` is the run that the change concerns: the open run, or else the one that has just ended.
    """
    if choice.completed:
        done = Query.objects.filter(pk=query.pk, generation=query.generation)
        if done.update(desired=Desired.STOPPED):
            reason = Reason.COMPLETED
            _query_transition(
                query, run, "desired", Desired.RUNNING, Desired.STOPPED, reason, NOTHING, now
            )
    fields: dict[str, Any] = {
        "failures": choice.failures,
        "next_attempt_at": choice.next_attempt_at,
        "restart_block": choice.restart_block,
        "seen_generation": choice.seen_generation,
        "reached_generation": choice.reached_generation,
        "phase": choice.phase,
        "phase_reason": choice.reason,
        "phase_detail": choice.detail,
    }
    if query.discovered:  # its script decides: desired follows what runs or should run
        at_rest = choice.phase in STOPPED_PHASES
        fields["desired"] = Desired.STOPPED if at_rest else Desired.RUNNING
    if choice.phase != query.phase:
        fields["phase_since"] = now
        _query_transition(
            query, run, "phase", query.phase, choice.phase, choice.reason, choice.detail, now
        )
    if update_changed(query, fields):
        changed(f"query:{query.pk}")


def update_script(script: Script, choice: ScriptDecision, *, now: datetime) -> None:
    """Write the phase of an application's script; a finished script is set to stopped."""
    application = script.application
    about = {"application": application}
    fields: dict[str, Any] = {
        "phase": choice.phase,
        "phase_reason": choice.reason,
        "phase_detail": choice.detail,
    }
    if choice.completed:
        fields["desired"] = Desired.STOPPED
        after = Desired.STOPPED
        record("desired", script.desired, after, choice.reason, now=now, **about)
    if choice.phase != script.phase:
        fields["phase_since"] = now
        record(
            "phase",
            script.phase,
            choice.phase,
            choice.reason,
            now=now,
            detail=choice.detail,
            **about,
        )
    if update_changed(script, fields):
        changed(f"application:{application.pk}")


def refuse_launch(application: Application, driver: Driver, refusal: str, *, now: datetime) -> None:
    """End a driver that was never spawned; block its application's restart, giving the refusal."""
    with transaction.atomic():
        if not block_application(application, refusal, now=now):
            return
        Run.objects.filter(driver=driver, outcome=RunOutcome.OPEN).update(
            outcome=RunOutcome.DRIVER_ENDED, ended_at=now
        )
        Driver.objects.filter(pk=driver.pk).update(
            state=DriverState.ENDED,
            state_reason=Reason.NOT_LAUNCHED,
            state_since=now,
            ended_at=now,
            exit_python="UNKNOWN",
            exit_jvm="UNKNOWN",
        )
        detail = Because(Detail.NOT_LAUNCHED, {"refusal": refusal})
        _driver_transition(
            driver, driver.state, DriverState.ENDED, Reason.NOT_LAUNCHED, now, detail
        )


def block_application(application: Application, refusal: str, *, now: datetime) -> bool:
    """Block the restart of an application that cannot be launched, giving the launcher's refusal.

    Returns False if the application has been changed in the meantime.
    """
    with transaction.atomic():
        won = Application.objects.filter(pk=application.pk, version=application.version).update(
            version=F("version") + 1,
            restart_block=RestartBlock.FAILED,
            restart_block_reason=Because(Detail.NOT_LAUNCHED, {"refusal": refusal}),
            seen_generation=application.generation,
            reconcile_after=now,
        )
        if won:
            # Their generations count as seen, otherwise they would clear the block at once.
            Query.objects.filter(application=application, archived_at=None).update(
                seen_generation=F("generation")
            )
            reconcile_soon(application.pk)
    return bool(won)


def _driver_transition(
    driver: Driver, before: str, after: str, reason: str, now: datetime, detail: Because = NOTHING
) -> None:
    about = {"application": driver.application, "driver": driver, "detail": detail}
    record("driver", before, after, reason, now=now, **about)


def _query_transition(
    query: Query,
    run: Run | None,
    subject: str,
    before: str,
    after: str,
    reason: str,
    detail: Because,
    now: datetime,
) -> None:
    record(
        subject,
        before,
        after,
        reason,
        now=now,
        application_id=query.application_id,
        query=query,
        run=run,
        driver=run.driver if run else None,
        detail=detail,
    )
