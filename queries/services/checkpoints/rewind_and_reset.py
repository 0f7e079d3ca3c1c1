"""Return a query to an earlier batch of its checkpoint, or start its sources elsewhere without
state.

The old directory is never edited. The new one is built next to it while the query may still run, so
an unreachable batch does not stop the query. A file sink's log is rolled back only after the
switch, step by step: until then, nothing changes.

The old directory stays unchanged. If its host is gone, another host takes over the query without
using the old checkpoint. A stateless query continues with its next batch number, and a file sink
keeps its files. A stateful query starts at batch 0, and a file sink would skip every batch number
in its log, so the sink's log and all its files are moved aside.
"""

from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings

from queries.checkpoints.new_checkpoint import fresh, fresh_without_logs
from queries.checkpoints.snapshot import remove
from queries.domain.checkpoints.ownership import local_path
from queries.domain.errors import NotAllowed
from queries.domain.reasons import Because, Detail
from queries.domain.states import OPEN_DRIVER_STATES, Reason, Verb
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation
from queries.selectors.definitions.definitions import held_checkpoints, retired_locations
from queries.selectors.hosts import away, hosts_with_heartbeat
from queries.services.checkpoints.file_sinks import (
    check_sink,
    check_step,
    move_aside,
    remote_sink,
    roll_back,
)
from queries.services.checkpoints.remote import (
    copy_beside,
    delete_copy,
    fresh_logs,
    readable_logs,
    upload,
)
from queries.services.checkpoints.source_starts import WantedStart, starts
from queries.services.checkpoints.storage_jvms import work_folder
from queries.services.checkpoints.switching import (
    beside,
    current,
    refuse_skipped_state,
    switch,
)
from queries.services.local_roots import default_checkpoint
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
    return begin(REWIND, query=query, arguments=arguments, actor=actor, now=now)


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
    refuse_skipped_state(query, batch, now=now)


def origin_of(query: Query, batch: int) -> str:
    """Return the location to copy from: the newest snapshot of `batch`, else the checkpoint.

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
    """Stop the query; then recheck the sink's log: it may have been compacted in the meantime."""
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


REWIND = Procedure(
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


def request_reset(*, query: Query, wish: WantedStart, actor: str, now: datetime) -> Operation:
    """Request that the query's sources start elsewhere.

    Raises as `starts` does. The exact positions are determined once the query has stopped: "latest"
    is the end at that moment, so nothing is read twice.
    """
    checkpoint = current(query)
    left = left_on(query)
    new_starts = starts(query, None if left else readable_logs(checkpoint.location), wish)
    if new_starts.stateful:
        remote_sink(query)  # it would skip every batch number in a log that cannot be found
        if not left:  # otherwise the checkpoint is gone, and the query gets a new ID
            refuse_skipped_state(query, -1, now=now)
    arguments = {
        "checkpoint": checkpoint.pk,
        "to": wish.to,
        "at": wish.at.isoformat() if wish.at else None,
        "offsets": {topic: dict(parts) for topic, parts in wish.offsets.items()},
        "stateful": new_starts.stateful,
        "left_on": left,
        "location": beside(checkpoint.location, "reset", now),
    }
    host = _taker() if left else ""
    return begin(RESET, query=query, arguments=arguments, actor=actor, now=now, host=host)


def left_on(query: Query) -> str:
    """Return the silent host on which a reset would leave the query's local checkpoint.

    Returns "" if the checkpoint can be reached. Raises `NotAllowed` if something may still write
    there, or if the application has another query whose checkpoint is on that host.
    """
    application = query.application
    silent, location = away(application), current(query).location
    if silent is None or silent.name == settings.HEADGATE_HOST or local_path(location) is None:
        return ""
    if application.drivers.filter(state__in=sorted(OPEN_DRIVER_STATES)).exists():
        raise NotAllowed(
            f"{query.name} may still run on host {silent.name}, which is not responding.",
            way_out=silent.way_out,
        )
    others = Checkpoint.objects.filter(query__application=application, retired_at=None)
    local_checkpoints = others.exclude(query=query).filter(location__startswith="file:")
    if names := ", ".join(
        local_checkpoints.order_by("query__name").values_list("query__name", flat=True)[:5]
    ):
        raise NotAllowed(
            f"Application {application.name} cannot be moved off host {silent.name} just for "
            f"{query.name}, because the checkpoints of {names} are on that host too.",
            way_out="Delete those queries first, or define this one in a separate application.",
        )
    return silent.name


def _taker() -> str:
    """Return the live host that takes over the query: this one, if it has a heartbeat."""
    living = hosts_with_heartbeat()
    if not living:
        raise NotAllowed(
            "No host is sending heartbeats.", way_out="Start a worker, then reset the query."
        )
    this_host = settings.HEADGATE_HOST
    return this_host if this_host in living else min(living)


def _choose_location(context: StepContext, old: Checkpoint) -> None:
    """Choose the new location on this host, which took over the query: its home may differ."""
    if not old.by_default or local_path(old.location) is None:
        return
    shared = "" if context.query.application.own else context.query.application.name
    used_locations = retired_locations() | set(held_checkpoints())
    location = default_checkpoint(context.query.name, shared, avoid=used_locations)
    arguments = {**context.arguments, "location": location, "placed": True}
    context.operation.arguments = arguments
    Operation.objects.filter(pk=context.operation.pk).update(arguments=arguments)


# --- the steps ----------------------------------------------------------------------------


def _stop_for_reset(context: StepContext) -> StepResult:
    """Stop the query, if its sink can be reached, whose log must be moved later."""
    if context.arguments["stateful"] and "ran" not in context.result:
        result = check_step(context, None)
        if not result.done:
            return result
    return stop_and_start.stop(context)


def _build_new_start(context: StepContext) -> StepResult:
    old = context.query.checkpoints.get(pk=context.arguments["checkpoint"])
    left = context.arguments["left_on"]
    if left and "placed" not in context.arguments:
        _choose_location(context, old)
    location = context.arguments["location"]
    path = local_path(location)
    new = Path(path) if path is not None else work_folder()
    if "built" not in context.result:
        logs = None if left else fresh_logs(context, old.location)
        if isinstance(logs, StepResult):
            return logs
        remove(new)  # left by a worker that died here
        at = context.arguments["at"] and datetime.fromisoformat(context.arguments["at"])
        wish = WantedStart(context.arguments["to"], at, context.arguments["offsets"])
        now_ms = int(context.now.timestamp() * 1000)
        new_starts = starts(context.query, logs, wish).starts
        if logs is None:
            fresh_without_logs(new, new_starts)
        else:
            context.result["batch"] = fresh(logs, new, new_starts, now_ms=now_ms).batch
        if path is None:
            result = upload(context, new, location)
            remove(new)
            if not result.done:
                return result
        context.result["built"] = True
    return DONE


def _switch_to_new_start(context: StepContext) -> StepResult:
    detail = Because(Detail.TO_START, {"start": context.arguments["at"] or context.arguments["to"]})
    host = settings.HEADGATE_HOST if context.arguments.get("left_on") else ""
    return switch(context, Reason.RESET, detail, host=host)


def _move_sink_aside(context: StepContext) -> StepResult:
    return move_aside(context) if context.arguments["stateful"] else DONE


RESET = Procedure(
    Verb.RESET,
    (
        ProcedureStep("Stop the query", _stop_for_reset),
        ProcedureStep("Build a checkpoint for the new start", _build_new_start),
        ProcedureStep("Switch the query to it", _switch_to_new_start, commits=True),
        ProcedureStep("Move a stateful query's file output", _move_sink_aside),
        ProcedureStep("Start the query again", stop_and_start.start_again),
    ),
    limit=timedelta(minutes=15),
    undo=undo,
)
