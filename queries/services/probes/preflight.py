"""Preflight: try a definition, or another Spark, on copies of checkpoints before it runs.

In a probe driver, the new definition executes the copy's newest batch again, with the real sources
and without a sink, and then processes some new data. The old and new plans are compared, because
Spark silently accepts changes that make results wrong. Nothing is written to real places: the copy
and all output are deleted, whatever the outcome.
"""

import os
from dataclasses import asdict
from datetime import datetime
from typing import Any

from headgate_ground.masking import unmask
from queries.checkpoints.batches import batch_to_replay, is_continuous, pinned_configuration
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import remove, twin
from queries.checkpoints.state import written
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import NotAllowed
from queries.domain.probes.plan_comparison import pinned, shapes_of
from queries.domain.probes.preflight import (
    PreflightRequest,
    PreflightVerdict,
    SparkChange,
    digest,
    judge,
    sentence,
)
from queries.domain.probes.questions import PreflightTask
from queries.domain.readings import counted
from queries.domain.sparks import Spark, Written, refuse_no_way_back, spark_of
from queries.domain.states import Verb
from queries.domain.triggers.cores import cores_of
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation
from queries.roles import AuthorRights
from queries.selectors.code import count_of_roots
from queries.selectors.probes import last_good_run
from queries.services.checkpoints.remote import StorageRefused, copy_to_this_host, fresh_logs
from queries.services.definitions import catalog
from queries.services.definitions.catalog import plan_application
from queries.services.probes import probe_steps
from queries.services.probes.probe_steps import LIMIT
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
)

PROBE_LIMIT_S = 150.0
ATTEMPT_LIMIT_S = 45.0


class DidNotPass(NotAllowed):
    """Spark refuses the definition on this checkpoint."""

    code = "did-not-pass"


def begin_preflight(
    *,
    query: Query,
    spec: dict[str, Any] | None,
    actor: str,
    now: datetime,
    rights: AuthorRights = AuthorRights.SQL,
    spark: Spark | None = None,
) -> Operation:
    """Test a definition (None: the newest revision) against the query's checkpoint.

    `spark` is the version to try it with; None for the application's. Raises `Invalid` if the
    definition could not be saved, and `Forbidden` if it adds code and `rights` do not allow the
    actor to write it. Anyone who can start the query can try its newest revision. The operation
    ends as DONE if the definition passes, and as FAILED if it does not.
    `result.preflight.verdict` is passed, or differs if Spark silently accepts something that
    changes results.
    """
    wanted = query.revisions.order_by("-number")[0].spec
    if spec is not None:
        wanted = unmask(spec, before=wanted)
        catalog.plan_query(query=query, spec=wanted, rights=rights)
    if spark is None:
        return begin_trial(query=query, spec=wanted, actor=actor, now=now)
    application = with_spark(query.application, spark)
    catalog.plan_application(application=query.application, spec=application, rights=rights)
    return begin_trial(query=query, spec=wanted, application_spec=application, actor=actor, now=now)


def with_spark(application: Application, spark: Spark) -> dict[str, Any]:
    """Return an application's newest definition with another Spark."""
    return {**application.revisions.order_by("-number")[0].spec, "spark": spark}


def begin_trial(
    *,
    query: Query,
    spec: dict[str, Any],
    actor: str,
    now: datetime,
    application_revision: int | None = None,
    application_spec: dict[str, Any] | None = None,
) -> Operation:
    """Begin the preflight of a definition that has already been validated.

    The definition is tested with its application's newest revision, unless `application_revision`
    selects another revision or `application_spec` contains a definition that is not written yet.
    """
    name = digest(spec)
    newest = query.revisions.order_by("-number")[0]
    revision = newest.number if name == digest(newest.spec) else None
    arguments: dict[str, Any] = {"spec": spec, "digest": name, "revision": revision}
    if application_revision is not None:
        arguments["application_revision"] = application_revision
    if application_spec is not None:
        arguments["application_spec"] = application_spec
    return begin(PROCEDURE, query=query, arguments=arguments, actor=actor, now=now)


# --- the steps ------------------------------------------------------------------------


def _copy(context: StepContext) -> StepResult:
    """Copy the checkpoint twice: for a run without a sink, and for one with a temporary sink."""
    checkpoint = probe_steps.checkpoint_of(context)
    context.result |= {"checkpoint": checkpoint.pk, "batch": None, "copy_missing": "", "new": False}
    folder = probe_steps.folder(context, checkpoint)
    remove(folder)  # left by a worker that died here
    try:
        logs = fresh_logs(context, checkpoint.location)
    except StorageRefused as error:
        context.result["copy_missing"] = f"the checkpoint: {error}"
        return DONE
    if isinstance(logs, StepResult):
        return logs
    batch = batch_to_replay(logs)
    if batch is None:
        context.result |= {
            "copy_missing": "the checkpoint: no batch has committed yet",
            "new": True,
        }
        return StepResult(True, "No batch has committed yet; there is nothing to copy.")
    context.result["pinned"] = pinned_configuration(logs, batch)
    context.result["written"] = _insist_on_a_way(context, logs)
    if is_continuous(logs, batch):
        context.result["copy_missing"] = (
            "the checkpoint: it was written by continuous processing, and micro-batches cannot "
            "continue from it"
        )
        return StepResult(True, "Written by continuous processing; it cannot be tested.")
    copied = copy_to_this_host(
        context, checkpoint.location, folder / "copy", batch, keep_commit=False
    )
    if isinstance(copied, StepResult):
        return copied
    twin(folder / "copy", folder / "sink")
    context.result["batch"] = copied.batch
    return StepResult(True, f"Batch {copied.batch}, {counted(copied.files, 'file')}")


def _insist_on_a_way(context: StepContext, logs: CheckpointLogs) -> dict[str, Any] | None:
    """Return what wrote the checkpoint; raise `NoWayBack` if the tested Spark cannot continue it.

    An automatic rollback tests the former definition first, so this applies to it too.
    """
    last_written = written(logs)
    if last_written is None:
        return None
    refuse_no_way_back(
        last_written, probe_steps.application_spec(context).spark, context.query.name
    )
    return asdict(last_written)


def _launch(context: StepContext) -> StepResult:
    def task(code_sha256: str) -> PreflightTask:
        checkpoint = probe_steps.checkpoint_of(context)
        folder, batch = probe_steps.folder(context, checkpoint), context.result.get("batch")
        old, missing, roots, same = _old(context, checkpoint, code_sha256)
        context.result["old_missing"] = missing
        return PreflightTask(
            name=context.query.name,
            spec=context.arguments["spec"],
            scratch=str(folder / "scratch"),
            limit_s=PROBE_LIMIT_S,
            attempt_limit_s=ATTEMPT_LIMIT_S,
            batch=batch,
            copy=(folder / "copy").as_uri() if batch is not None else "",
            sink_copy=(folder / "sink").as_uri() if batch is not None else "",
            old_spec=old,
            old_code_roots=roots,
            same_code=same,
        )

    return probe_steps.launch(context, task)


def _old(
    context: StepContext, checkpoint: Checkpoint, code_sha256: str
) -> tuple[dict[str, Any] | None, str, tuple[str, ...], bool]:
    """Return the last definition, why it cannot be compared, its code, and if that is the same."""
    run = last_good_run(checkpoint)
    if run is None:
        missing = "the previous definition: no run is known" if context.result.get("batch") else ""
        return None, missing, (), True
    context.result["compared_with"] = run.revision.number
    spec: dict[str, Any] = run.revision.spec
    if spec.get("kind") != "python" or run.code_sha256 == code_sha256:
        return spec, "", (), True
    before = ApplicationSpec.model_validate(run.driver.application_revision.spec)
    roots = context.launcher.frozen_code(count_of_roots(before), run.code_sha256)
    if roots is None:
        return None, f"revision {run.revision.number}: its code is gone", (), False
    return spec, "", roots, False


def _judge(context: StepContext) -> StepResult:
    """Evaluate the findings; raise `DidNotPass` if Spark refused the definition."""
    answer = probe_steps.await_answer(context)
    if isinstance(answer, StepResult):
        return answer
    spec = context.arguments["spec"]
    pinned_settings = context.result.pop("pinned", None) or {}
    application = probe_steps.application_spec(context)
    conf = {name: str(value) for name, value in spec.get("conf", {}).items()}
    old = context.query.revisions.filter(number=context.result.get("compared_with", 0)).first()
    before = context.result.pop("written", None)
    preflight_input = PreflightRequest(
        spec=spec,
        spark=_change_of_spark(context, Written(**before), application.spark) if before else None,
        old_spec=old.spec if old is not None and answer.old_plan is not None else None,
        old_missing=context.result.pop("old_missing", ""),
        copy_missing=context.result.pop("copy_missing", ""),
        is_new=context.result.pop("new", False),
        pinned=pinned({**application.conf, **conf}, pinned_settings),
        attempt_limit_s=ATTEMPT_LIMIT_S,
        cores=cores_of(application, host_cores=os.cpu_count()),
    )
    judged = judge(preflight_input, answer)
    context.result |= {"preflight": judged, "spark": application.spark}
    if judged["verdict"] == PreflightVerdict.FAILED:
        raise DidNotPass(sentence(judged))
    return DONE


def _change_of_spark(context: StepContext, before: Written, spark: Spark) -> SparkChange | None:
    """Return the version change that was tested; None if the last good run had the same Spark.

    Without such a run, the checkpoint's own marks count.
    """
    checkpoint = probe_steps.checkpoint_of(context)
    run = last_good_run(checkpoint)
    back = spark_of(run.driver.application_revision.spec) if run is not None else None
    if (back or before.back) == spark:
        return None
    copy = CheckpointLogs(probe_steps.folder(context, checkpoint) / "copy")
    unchanged = run is not None and digest(run.revision.spec) == context.arguments["digest"]
    comparable = run is not None and run.revision.state_by.startswith(f"{back}.")
    old = shapes_of(run.revision.state) if run is not None and unchanged and comparable else None
    return SparkChange(back, spark, before, written(copy) or before, old)


PROCEDURE = Procedure(
    Verb.PREFLIGHT,
    (
        ProcedureStep("Copy the checkpoint", _copy),
        ProcedureStep("Wait for a slot on the host", probe_steps.take_slot),
        ProcedureStep("Launch a probe driver", _launch),
        ProcedureStep("Test the definition", _judge),
        ProcedureStep("Delete the copy", probe_steps.forget),
    ),
    limit=LIMIT,
    undo=probe_steps.forget,
)


def begin_spark_trials(
    *, application: Application, spark: Spark, actor: str, now: datetime, rights: AuthorRights
) -> list[Operation]:
    """Begin a preflight of each query's newest revision with another Spark.

    Raises `Invalid` if the application could not be saved with it, and `NotAllowed` if the
    application has no query that a preflight can try: a script starts its own.
    """
    spec = with_spark(application, spark)
    plan_application(application=application, spec=spec, rights=rights)
    living = application.queries.filter(archived_at=None).order_by("name")
    operations = [
        begin_trial(
            query=query,
            spec=query.revisions.order_by("-number")[0].spec,
            application_spec=spec,
            actor=actor,
            now=now,
        )
        for query in living
        if not query.discovered
    ]
    if not operations:
        raise NotAllowed(
            f"{application.name} has no query that a preflight can try: queries that a script "
            "starts cannot be tried.",
            way_out="Change its Spark without preflights; take snapshots first.",
        )
    return operations
