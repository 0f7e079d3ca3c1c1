"""Reset: start a query's sources elsewhere, with a new checkpoint and without its state.

The old directory stays as it is. A stateless query continues with the number of its next batch,
and a file sink keeps its files. A stateful one starts at batch 0, where a file sink would
skip every number that its log holds; so the sink's log and files are moved aside whole.
"""

from datetime import datetime, timedelta

from queries.checkpoints.new_checkpoint import fresh
from queries.domain.reasons import Because, Detail
from queries.domain.states import Reason, Verb
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services.checkpoints.file_sinks import file_sink
from queries.services.checkpoints.rewind import undo
from queries.services.checkpoints.snapshot import local_logs
from queries.services.checkpoints.source_starts import WantedStart, starts
from queries.services.checkpoints.switching import beside, current, place_of, switch
from queries.services.procedures import stop_and_start
from queries.services.procedures.engine import DONE, Procedure, Step, StepContext, StepResult, begin


def request_reset(*, query: Query, wish: WantedStart, actor: str, now: datetime) -> Operation:
    """Request that the query's sources start elsewhere.

    Raises as `starts` does. Where exactly is decided once the query is stopped: "latest" is the
    end at that moment, so that nothing is read twice.
    """
    checkpoint = current(query)
    found = starts(query, local_logs(checkpoint.location), wish)
    arguments = {
        "checkpoint": checkpoint.pk,
        "to": wish.to,
        "at": wish.at.isoformat() if wish.at else None,
        "offsets": {topic: dict(parts) for topic, parts in wish.offsets.items()},
        "stateful": found.stateful,
        "location": beside(checkpoint.location, "reset", now),
    }
    return begin(PROCEDURE, query=query, arguments=arguments, actor=actor, now=now)


# --- the steps ----------------------------------------------------------------------------


def _build(turn: StepContext) -> StepResult:
    old = turn.query.checkpoints.get(pk=turn.arguments["checkpoint"])
    new = place_of(turn.arguments["location"])
    if not new.exists():
        logs = local_logs(old.location)
        at = turn.arguments["at"] and datetime.fromisoformat(turn.arguments["at"])
        wish = WantedStart(turn.arguments["to"], at, turn.arguments["offsets"])
        now_ms = int(turn.now.timestamp() * 1000)
        built = fresh(logs, new, starts(turn.query, logs, wish).starts, now_ms=now_ms)
        turn.result["batch"] = built.batch
    return DONE


def _switch(turn: StepContext) -> StepResult:
    detail = Because(Detail.TO_START, {"start": turn.arguments["at"] or turn.arguments["to"]})
    return switch(turn, Reason.RESET, detail)


def _move_sink_aside(turn: StepContext) -> StepResult:
    sink = file_sink(turn.query)
    if sink is not None and turn.arguments["stateful"]:
        uuid = str(turn.operation.uuid)
        sink.move_aside(uuid)
        turn.result["sink"] = {"aside": str(sink.root / "_headgate" / uuid)}
    return DONE


PROCEDURE = Procedure(
    Verb.RESET,
    (
        Step("Stop the query", stop_and_start.stop),
        Step("Build a checkpoint that starts there", _build),
        Step("Switch the query to it", _switch, commits=True),
        Step("Move a stateful query's file output aside", _move_sink_aside),
        Step("Start the query again", stop_and_start.start_again),
    ),
    limit=timedelta(minutes=15),
    undo=undo,
)
