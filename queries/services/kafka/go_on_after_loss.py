"""Continue without the lost data: one operation that accepts lost source data and keeps the state.

The checkpoint stays as it is. It is run once with the gap accepted (`failOnDataLoss=false` for
that run alone, carried by its assignment), until its commits are past the gap; then it runs
as defined, and fails on the next gap as before. The loss is in the ledger from the moment that
the first run is requested, with the name of the user who accepted it.
"""

from datetime import datetime, timedelta

from django.db import transaction

from queries.domain.errors import Conflict, NotAllowed, Unavailable
from queries.domain.failures.categories import TO_EARLIEST, Category, Remedy
from queries.domain.failures.diagnosis import classify
from queries.domain.kafka.losses import Gap, gaps_of
from queries.domain.kafka.topic_ids import names
from queries.domain.reasons import why
from queries.domain.states import (
    GOOD_OPERATIONS,
    HELD_PHASES,
    STOPPED_PHASES,
    Desired,
    LossKind,
    Phase,
    RunOutcome,
    Verb,
)
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.failures import Failure
from queries.models.history import Operation
from queries.selectors.hosts import elsewhere
from queries.selectors.kafka.lag import look_of
from queries.selectors.kafka.sources import readings
from queries.selectors.kafka.topic_ids import replaced_topics
from queries.services.kafka.lag import look_at_sources
from queries.services.kafka.loss_ledger import write_gaps
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    Step,
    StepContext,
    StepResult,
    begin,
    waiting,
)
from queries.services.procedures.stop_and_start import remember, waiting_for
from queries.services.supervision import operations

#: For all steps together; most of it is for a driver that starts and a backlog that is read.
LIMIT = timedelta(hours=1)


def go_on(*, query: Query, offsets: int, actor: str, now: datetime) -> Operation:
    """Begin to continue from what is left; `offsets` is the number that is accepted as lost.

    The broker is asked first. Raises `Unavailable` where it does not answer, `NotAllowed` where
    nothing is gone, `Conflict` where another count is, or an operation with steps is under way.
    """
    gaps = _look(query, now)
    count = sum(gap.offsets for gap in gaps)
    if replaced := replaced_topics(query):
        raise NotAllowed(
            f"{names(replaced)} deleted and created again: {query.name} cannot continue from its "
            "offsets, which are the old one's.",
            way_out=TO_EARLIEST,
        )
    if not gaps:
        raise NotAllowed(
            f"{query.name} has lost no offsets: everything that it has yet to read is still in "
            "its topics.",
            way_out=_way_out(query),
        )
    if offsets != count:
        raise Conflict(
            f"{count:,} offsets are lost, not {offsets:,}: check the list again.",
            way_out=f"Type {count} to accept the loss.",
        )
    arguments = {"offsets": count, "gaps": [_as_row(gap) for gap in gaps]}
    return begin(GO_ON, query=query, arguments=arguments, actor=actor, now=now)


# --- the steps ----------------------------------------------------------------------------


def _accept(turn: StepContext) -> StepResult:
    """Write the loss into the ledger and request a run that skips the gap, both or neither."""
    query, operation = turn.query, turn.operation
    gaps = [Gap(*row) for row in turn.arguments["gaps"]]
    with transaction.atomic():
        turn.insist()
        if not turn.result.get("asked"):
            write_gaps(
                query=query,
                gaps=gaps,
                kind=LossKind.RETENTION,
                now=turn.now,
                accepted_by=operation.actor,
                operation=operation,
            )
            remember(turn, asked=True, accepting=True)
            _run_anew(turn)
    return StepResult(
        True, f"{turn.arguments['offsets']:,} offsets are recorded in the loss ledger."
    )


def _go_beyond(turn: StepContext) -> StepResult:
    """Wait until every partition has committed beyond its gap."""
    _refuse_dead(turn)
    found = readings([turn.query.pk])
    committed = found[0].committed if found else {}
    for topic, partition, _, until in turn.arguments["gaps"]:
        at = committed.get(topic, {}).get(partition, 0)
        if at < until:
            phase = Phase(turn.query.phase).label
            return waiting(f"{phase}: {topic}-{partition} has committed {at:,} of {until:,}.")
    return StepResult(True, "Its commits are past the gap.")


def _fail_on_loss_again(turn: StepContext) -> StepResult:
    """Let the query run as defined; one with an ending trigger may have ended already."""
    run = Run.objects.filter(query=turn.query, outcome=RunOutcome.OPEN).first()
    if turn.result.get("accepting"):
        with transaction.atomic():
            turn.insist()
            remember(turn, accepting=False)
            if run is not None and run.accepts_loss and turn.query.phase not in STOPPED_PHASES:
                _run_anew(turn)
        return waiting("It restarts and fails on data loss again.")
    if run is not None and run.accepts_loss:
        return waiting("The run that skipped the gap is ending.")
    if turn.query.phase in (Phase.RUNNING, *STOPPED_PHASES):
        return DONE
    _refuse_dead(turn)
    return waiting_for(turn.query)


GO_ON = Procedure(
    Verb.GO_ON,
    (
        Step("Record the loss and start past the gap", _accept),
        Step("Commit past the gap", _go_beyond),
        Step("Fail on lost data again", _fail_on_loss_again),
    ),
    limit=LIMIT,
)


# --- what the steps read --------------------------------------------------------------------


def _way_out(query: Query) -> str:
    """Return what to do where no offsets are lost; not what the newest failure proves useless."""
    failure = Failure.objects.filter(run__query=query).order_by("-pk").first()
    if query.phase not in HELD_PHASES or failure is None:
        return "Start it, or check its latest failure."
    advice = classify(
        error_class=failure.error_class,
        type_name=failure.error_type,
        root_cause=failure.root_cause,
        message=failure.message,
    )
    if advice.remedy is Remedy.TO_EARLIEST:
        return TO_EARLIEST
    if advice.category is Category.SOURCE_LOST:
        return f"Start it. If it fails on lost data again: {TO_EARLIEST}"
    return "Start it, or check its latest failure."


def _look(query: Query, now: datetime) -> list[Gap]:
    """Ask the broker what is gone now.

    Raises `NotAllowed` where the checkpoint, which says what is committed, is on another host.
    """
    if host := elsewhere(query.application):
        raise NotAllowed(
            f"The checkpoint of {query.name} is on host {host}.",
            way_out=f"Open Headgate on host {host}.",
        )
    if not look_at_sources(now=now, query_ids=[query.pk]):
        raise NotAllowed(
            f"{query.name} names no Kafka source in its definition.",
            way_out="What its code reads is unknown; reset it to an offset instead.",
        )
    rows = list(SourceLag.objects.filter(query=query))
    errors = [row.error for row in rows if row.error]
    if errors:
        raise Unavailable(
            f"The lost offsets cannot be determined now: {errors[0]}", way_out="Try again."
        )
    return gaps_of(look_of(row) for row in rows)


def _run_anew(turn: StepContext) -> None:
    """Start the query, or restart it where a run is open."""
    open_run = Run.objects.filter(query=turn.query, outcome=RunOutcome.OPEN).exists()
    ask = operations.request_start
    if open_run and turn.query.desired == Desired.RUNNING:
        ask = operations.request_restart
    ask(query=turn.query, actor=turn.operation.actor, now=turn.now, within=turn.operation)


def _refuse_dead(turn: StepContext) -> None:
    """Raise `Conflict` where the requested run has failed as well."""
    query = turn.query
    asked = Operation.objects.filter(parent=turn.operation).order_by("-pk").first()
    if asked is None or asked.outcome in GOOD_OPERATIONS:
        return
    if query.phase in HELD_PHASES:
        raise Conflict(
            f"{query.name} has failed again: {why(query.phase_reason, query.phase_detail)}"
        )


def _as_row(gap: Gap) -> list[str | int]:
    return [gap.topic, gap.partition, gap.first, gap.until]
