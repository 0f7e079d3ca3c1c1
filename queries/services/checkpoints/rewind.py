"""Rewind a query: return to its checkpoint as of an earlier batch, in a new directory.

The old directory is never edited. The new one is built next to it while the query may still run, so
an unreachable batch does not stop the query. A file sink's log is rolled back only after the
switch, step by step: until then, nothing changes.
"""

from datetime import datetime, timedelta

from queries.domain.errors import NotAllowed
from queries.domain.reasons import Because, Detail
from queries.domain.states import Reason, Verb
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services.checkpoints.file_sinks import check_sink, check_step, roll_back
from queries.services.checkpoints.remote import copy_beside, delete_copy, readable_logs
from queries.services.checkpoints.switching import beside, current, switch
from queries.services.procedures import stop_and_start
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
)


def request_rewind(*, query: Query, batch: int, actor: str, now: datetime) -> Operation:
    """Request that the query continue after `batch`, committed in its checkpoint or a snapshot.

    Raises `NotAllowed` if that batch does not exist, or the sink's log does not reach it.
    """
    checkpoint = current(query)
    check(query, batch, now=now)
    arguments = {
        "checkpoint": checkpoint.pk,
        "batch": batch,
        "origin": origin_of(query, batch),
        "location": beside(checkpoint.location, f"r{batch}", now),
    }
    return begin(PROCEDURE, query=query, arguments=arguments, actor=actor, now=now)


def check(query: Query, batch: int, *, now: datetime) -> None:
    """Raise if a rewind to `batch` is certain to fail, before anything is changed."""
    logs = readable_logs(origin_of(query, batch))
    committed = logs.committed()
    if batch not in committed:
        reach = f"batches {committed[0]} to {committed[-1]}" if committed else "no batch"
        raise NotAllowed(
            f"Batch {batch} is not in the checkpoint of {query.name}.",
            way_out=f"It contains {reach}.",
        )
    check_sink(query, batch, now=now)


def origin_of(query: Query, batch: int) -> str:
    """Return the location to copy from: the newest snapshot as of `batch`, else the checkpoint.

    Later purges do not affect a snapshot, and it contains the operators' schemas as of that time; a
    later revision may have written different ones to the checkpoint.
    """
    checkpoint = current(query)
    snapshot = (
        checkpoint.snapshots.filter(batch=batch, removed_at=None).order_by("-taken_at").first()
    )
    return snapshot.location if snapshot is not None else checkpoint.location


# --- the steps ----------------------------------------------------------------------------


def _build(context: StepContext) -> StepResult:
    if "built" not in context.result:
        result = check_step(context, context.arguments["batch"])
        if not result.done:
            return result
        built = copy_beside(
            context,
            context.arguments["origin"],
            context.arguments["location"],
            context.arguments["batch"],
        )
        if isinstance(built, StepResult):
            return built
        context.result["built"] = True
    return DONE


def _stop(context: StepContext) -> StepResult:
    """Stop the query; then check the sink's log again, which may have been compacted meanwhile."""
    result = stop_and_start.stop(context)
    return check_step(context, context.arguments["batch"]) if result.done else result


def _switch(context: StepContext) -> StepResult:
    detail = Because(Detail.TO_BATCH, {"batch": context.arguments["batch"]})
    return switch(context, Reason.REWOUND, detail, batch=context.arguments["batch"])


def _put_sink_back(context: StepContext) -> StepResult:
    return roll_back(context, context.arguments["batch"])


def undo(context: StepContext) -> StepResult | None:
    """Remove the new directory, unless the query has used it; restart a query that was stopped."""
    location = context.arguments["location"]
    if not context.query.checkpoints.filter(location=location).exists():
        application = context.query.application
        result = delete_copy(location, application, launcher=context.launcher, now=context.now)
        if not result.done:
            return result
    stop_and_start.start_after_undo(context)
    return None


PROCEDURE = Procedure(
    Verb.REWIND,
    (
        ProcedureStep("Build the checkpoint of that batch", _build),
        ProcedureStep("Stop the query", _stop),
        ProcedureStep("Switch the query to it", _switch, commits=True),
        ProcedureStep("Roll the sink's log back", _put_sink_back),
        ProcedureStep("Start the query again", stop_and_start.start_again),
    ),
    limit=timedelta(minutes=15),
    undo=undo,
)
