"""Skip lost data: accept lost source data in one operation, keeping the state.

The checkpoint does not change. The query runs once with the gap accepted (`failOnDataLoss=false`
for that run only, set in its assignment) until its commits are past the gap. Then it runs as
defined, and fails on the next gap as before. The loss is recorded in the ledger when the first run
is requested, with the name of the user who accepted it.
"""

from datetime import datetime, timedelta

from django.db import transaction

from queries.domain.checkpoints.ownership import local_path
from queries.domain.errors import Conflict, NotAllowed, Unavailable
from queries.domain.failures.categories import Category, FailureSubject, Remedy, fitted
from queries.domain.failures.diagnosis import classify
from queries.domain.kafka.losses import OffsetGap, gaps_of
from queries.domain.kafka.topic_ids import names
from queries.domain.readings import counted
from queries.domain.reasons import why
from queries.domain.states import (
    BLOCKED_PHASES,
    GOOD_OPERATIONS,
    STOPPED_PHASES,
    Desired,
    LossKind,
    Phase,
    RunOutcome,
    Verb,
)
from queries.models.checkpoints import TABLE, SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.models.history import Failure, Operation
from queries.selectors.checkpoint_logs import logs_unknown
from queries.selectors.hosts import elsewhere, way_to
from queries.selectors.kafka.lag import look_of, replaced_topics
from queries.selectors.kafka.sources import readings
from queries.services.kafka.lag import look_at_sources
from queries.services.kafka.loss_ledger import write_gaps
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
    waiting,
)
from queries.services.procedures.stop_and_start import remember, waiting_for
from queries.services.supervision import operations

#: A query whose definition specifies a Kafka source is a SQL query.
TO_EARLIEST = fitted("{to_earliest}", FailureSubject.SQL)
#: Time limit for all steps together, most of it for starting a driver and reading a backlog.
LIMIT = timedelta(hours=1)


def go_on(*, query: Query, offsets: int, actor: str, now: datetime) -> Operation:
    """Continue from the oldest remaining records; `offsets` is the number accepted as lost.

    The broker is queried first. Raises `Unavailable` if it is not responding, `NotAllowed` if no
    offsets are missing or a run may have read them, and `Conflict` if the count differs or an
    operation with steps is in progress.
    """
    gaps = _look(query, now)
    count = sum(gap.offsets for gap in gaps)
    if replaced := replaced_topics(query):
        raise NotAllowed(
            f"{names(replaced)} deleted and recreated: {query.name} cannot continue from its "
            "offsets, which belong to the old topic.",
            way_out=TO_EARLIEST,
        )
    if not gaps:
        raise NotAllowed(
            f"{query.name} has lost no offsets: all offsets that it has not read yet are "
            "still in its topics.",
            way_out=_way_out(query),
        )
    if offsets != count:
        lost = counted(count, "offset is,offsets are")
        raise Conflict(
            f"{lost} lost, not {offsets:,}. Check the list again.",
            way_out=f"Type {count} to accept the loss.",
        )
    if Run.objects.filter(query=query, outcome=RunOutcome.OPEN, accepts_loss=False).exists():
        raise NotAllowed(
            f"{query.name} has an open run, which may have fetched the deleted offsets.",
            way_out=(
                "Wait: if they are lost, the run fails, and the query can then continue without "
                "them. Or stop the query first."
            ),
        )
    arguments = {"offsets": count, "gaps": [_as_row(gap) for gap in gaps]}
    return begin(GO_ON, query=query, arguments=arguments, actor=actor, now=now)


# --- the steps ----------------------------------------------------------------------------


def _accept(context: StepContext) -> StepResult:
    """In one transaction, write the loss to the ledger and request a run that skips the gap."""
    query, operation = context.query, context.operation
    gaps = [OffsetGap(*row) for row in context.arguments["gaps"]]
    with transaction.atomic():
        context.insist()
        if not context.result.get("asked"):
            write_gaps(
                query=query,
                gaps=gaps,
                kind=LossKind.RETENTION,
                now=context.now,
                accepted_by=operation.actor,
                operation=operation,
            )
            remember(context, asked=True, accepting=True)
            _run_anew(context)
    recorded = counted(context.arguments["offsets"], "offset is,offsets are")
    return StepResult(True, f"{recorded} recorded in the loss ledger.")


def _go_beyond(context: StepContext) -> StepResult:
    """Wait until every partition has committed past its gap."""
    _refuse_dead(context)
    query_readings = readings([context.query.pk])
    committed = query_readings[0].committed if query_readings else {}
    for topic, partition, _, until in context.arguments["gaps"]:
        at = committed.get(topic, {}).get(partition, 0)
        if at < until:
            phase = Phase(context.query.phase).label
            return waiting(f"{phase}: {topic}-{partition} has committed {at:,} of {until:,}.")
    return StepResult(True, "The query has committed past the gap.")


def _fail_on_loss_again(context: StepContext) -> StepResult:
    """Run the query as defined again; if its trigger ends by design, it may have ended already."""
    run = Run.objects.filter(query=context.query, outcome=RunOutcome.OPEN).first()
    if context.result.get("accepting"):
        with transaction.atomic():
            context.insist()
            remember(context, accepting=False)
            if run is not None and run.accepts_loss and context.query.phase not in STOPPED_PHASES:
                _run_anew(context)
        return waiting("The query restarts, and will fail on data loss again.")
    if run is not None and run.accepts_loss:
        return waiting("The run that skipped the gap is ending.")
    if context.query.phase in (Phase.RUNNING, *STOPPED_PHASES):
        return DONE
    _refuse_dead(context)
    return waiting_for(context.query)


GO_ON = Procedure(
    Verb.GO_ON,
    (
        ProcedureStep("Record the loss and start past the gap", _accept),
        ProcedureStep("Commit past the gap", _go_beyond),
        ProcedureStep("Restore failing on lost data", _fail_on_loss_again),
    ),
    limit=LIMIT,
)


# --- what the steps read --------------------------------------------------------------------


def _way_out(query: Query) -> str:
    """Return what to do if no offsets are lost, taking the newest failure into account."""
    failure = Failure.objects.filter(run__query=query).order_by("-pk").first()
    if query.phase not in BLOCKED_PHASES or failure is None:
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


def _look(query: Query, now: datetime) -> list[OffsetGap]:
    """Query the broker, and return the gaps that exist now.

    Raises `NotAllowed` if the checkpoint, which contains the committed offsets, is on another host,
    or is on remote storage and its driver has not reported its logs.
    """
    location = Checkpoint.objects.get(query=query, retired_at=None).location
    if (host := elsewhere(query.application)) and local_path(location) is not None:
        raise NotAllowed(
            f"The checkpoint of {query.name} is on host {host}.",
            way_out=way_to(host),
        )
    if not look_at_sources(now=now, query_ids=[query.pk]):
        raise NotAllowed(
            f"{query.name} has no Kafka source in its definition.",
            way_out=(
                "The sources in its code are unknown; reset the query to specific offsets instead."
            ),
        )
    if unknown := logs_unknown(location):
        raise NotAllowed(
            f"The lost offsets of {query.name} cannot be determined. {unknown}",
            way_out="Start it. If it fails on lost data again, its driver will have reported them.",
        )
    rows = list(SourceLag.objects.filter(query=query).exclude(partition=TABLE))
    errors = [row.error for row in rows if row.error]
    if errors:
        raise Unavailable(
            f"The lost offsets cannot be determined at the moment: {errors[0]}",
            way_out="Try again.",
        )
    return gaps_of(look_of(row) for row in rows)


def _run_anew(context: StepContext) -> None:
    """Start the query, or restart it if a run is open."""
    open_run = Run.objects.filter(query=context.query, outcome=RunOutcome.OPEN).exists()
    restarts = open_run and context.query.desired == Desired.RUNNING
    request = operations.request_restart if restarts else operations.request_start
    request(
        query=context.query,
        actor=context.operation.actor,
        now=context.now,
        within=context.operation,
    )


def _refuse_dead(context: StepContext) -> None:
    """Raise `Conflict` if the requested run has failed as well."""
    query = context.query
    child_operation = Operation.objects.filter(parent=context.operation).order_by("-pk").first()
    if child_operation is None or child_operation.outcome in GOOD_OPERATIONS:
        return
    if query.phase in BLOCKED_PHASES:
        raise Conflict(
            f"{query.name} has failed again: {why(query.phase_reason, query.phase_detail)}"
        )


def _as_row(gap: OffsetGap) -> list[str | int]:
    return [gap.topic, gap.partition, gap.first, gap.until]
