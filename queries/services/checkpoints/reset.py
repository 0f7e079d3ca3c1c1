"""Reset a query: start its sources elsewhere, with a new checkpoint and without its state.

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
from queries.domain.checkpoints.lock_files import local_path
from queries.domain.errors import NotAllowed
from queries.domain.reasons import Because, Detail
from queries.domain.states import OPEN_DRIVER_STATES, Reason, Verb
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Operation
from queries.selectors.definitions.locations import held_checkpoints, retired_locations
from queries.selectors.hosts import away, heard_of
from queries.services.checkpoints.file_sinks import check_step, move_aside, remote_sink
from queries.services.checkpoints.remote import fresh_logs, readable_logs, upload
from queries.services.checkpoints.rewind import undo
from queries.services.checkpoints.source_starts import WantedStart, starts
from queries.services.checkpoints.storage_jvms import work_folder
from queries.services.checkpoints.switching import beside, current, switch
from queries.services.local_roots import default_checkpoint
from queries.services.procedures import stop_and_start
from queries.services.procedures.engine import DONE, Procedure, Step, StepContext, StepResult, begin


def request_reset(*, query: Query, wish: WantedStart, actor: str, now: datetime) -> Operation:
    """Request that the query's sources start elsewhere.

    Raises as `starts` does. The exact positions are determined once the query has stopped: "latest"
    is the end at that moment, so nothing is read twice.
    """
    checkpoint = current(query)
    left = left_on(query)
    found = starts(query, None if left else readable_logs(checkpoint.location), wish)
    if found.stateful:
        remote_sink(query)  # it would skip every batch number in a log that cannot be found
    arguments = {
        "checkpoint": checkpoint.pk,
        "to": wish.to,
        "at": wish.at.isoformat() if wish.at else None,
        "offsets": {topic: dict(parts) for topic, parts in wish.offsets.items()},
        "stateful": found.stateful,
        "left_on": left,
        "location": beside(checkpoint.location, "reset", now),
    }
    host = _taker() if left else ""
    return begin(PROCEDURE, query=query, arguments=arguments, actor=actor, now=now, host=host)


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
    held = others.exclude(query=query).filter(location__startswith="file:")
    if names := ", ".join(held.order_by("query__name").values_list("query__name", flat=True)[:5]):
        raise NotAllowed(
            f"Application {application.name} cannot be moved off host {silent.name} just for "
            f"{query.name}, because the checkpoints of {names} are on that host too.",
            way_out="Delete those queries first, or define this one in a separate application.",
        )
    return silent.name


def _taker() -> str:
    """Return the live host that takes over the query: this one, if it has a heartbeat."""
    living = heard_of()
    if not living:
        raise NotAllowed(
            "No host is sending heartbeats.", way_out="Start a worker, then reset the query."
        )
    here = settings.HEADGATE_HOST
    return here if here in living else min(living)


def _place_here(turn: StepContext, old: Checkpoint) -> None:
    """Choose the new location on this host, which took over the query: its home may differ."""
    if not old.by_default:
        return
    shared = "" if turn.query.application.own else turn.query.application.name
    taken = retired_locations() | set(held_checkpoints())
    place = default_checkpoint(turn.query.name, shared, avoid=taken)
    arguments = {**turn.arguments, "location": place, "placed": True}
    turn.operation.arguments = arguments
    Operation.objects.filter(pk=turn.operation.pk).update(arguments=arguments)


# --- the steps ----------------------------------------------------------------------------


def _stop(turn: StepContext) -> StepResult:
    """Stop the query, if its sink can be reached, whose log must be moved later."""
    if turn.arguments["stateful"] and "ran" not in turn.result:
        told = check_step(turn, None)
        if not told.done:
            return told
    return stop_and_start.stop(turn)


def _build(turn: StepContext) -> StepResult:
    old = turn.query.checkpoints.get(pk=turn.arguments["checkpoint"])
    left = turn.arguments["left_on"]
    if left and "placed" not in turn.arguments:
        _place_here(turn, old)
    location = turn.arguments["location"]
    path = local_path(location)
    new = Path(path) if path is not None else work_folder()
    if "built" not in turn.result:
        logs = None if left else fresh_logs(turn, old.location)
        if isinstance(logs, StepResult):
            return logs
        remove(new)  # left by a worker that died here
        at = turn.arguments["at"] and datetime.fromisoformat(turn.arguments["at"])
        wish = WantedStart(turn.arguments["to"], at, turn.arguments["offsets"])
        now_ms = int(turn.now.timestamp() * 1000)
        found = starts(turn.query, logs, wish).starts
        if logs is None:
            fresh_without_logs(new, found)
        else:
            turn.result["batch"] = fresh(logs, new, found, now_ms=now_ms).batch
        if path is None:
            told = upload(turn, new, location)
            remove(new)
            if not told.done:
                return told
        turn.result["built"] = True
    return DONE


def _switch(turn: StepContext) -> StepResult:
    detail = Because(Detail.TO_START, {"start": turn.arguments["at"] or turn.arguments["to"]})
    host = settings.HEADGATE_HOST if turn.arguments.get("left_on") else ""
    return switch(turn, Reason.RESET, detail, host=host)


def _move_sink_aside(turn: StepContext) -> StepResult:
    return move_aside(turn) if turn.arguments["stateful"] else DONE


PROCEDURE = Procedure(
    Verb.RESET,
    (
        Step("Stop the query", _stop),
        Step("Build a checkpoint for the new start", _build),
        Step("Switch the query to it", _switch, commits=True),
        Step("Move a stateful query's file output", _move_sink_aside),
        Step("Start the query again", stop_and_start.start_again),
    ),
    limit=timedelta(minutes=15),
    undo=undo,
)
