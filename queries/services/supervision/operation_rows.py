"""An operation's row: inserted by every verb, ended when supervision completed it or time is up.

Every function runs inside the transaction of a step that has claimed its application.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, QuerySet

from controlplane.nudge import changed, reconcile_soon
from queries.domain.errors import Conflict, NotAllowed
from queries.domain.reasons import NOTHING, Because, Detail, waited, why
from queries.domain.states import (
    BLOCKED_PHASES,
    GOOD_OPERATIONS,
    PLAIN_VERBS,
    OperationOutcome,
    Reason,
    RestartBlock,
    Verb,
)
from queries.domain.supervision.decision import Decision, Fault, QueryDecision, ScriptDecision
from queries.domain.supervision.progress import waits_for_start
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.models.history import Failure, Operation
from queries.selectors.hosts import away
from queries.services.access.tokens import record_operation
from queries.services.changes import record

_REASONS = {
    Verb.START: Reason.ASKED_START,
    Verb.STOP: Reason.ASKED_STOP,
    Verb.RESTART: Reason.ASKED_RESTART,
}


def create_operation(
    verb: Verb,
    application: Application,
    query: Query | None,
    *,
    generation: int,
    before: str,
    after: str,
    actor: str,
    now: datetime,
    parent: Operation | None = None,
) -> Operation:
    """Record a request, and trigger reconcile for its application.

    1. Insert an Operation that ends when `generation` is reached or its deadline has passed;
       `query` is None for the whole application.
    2. Insert a Transition of the desired state, from `before` to `after`.
    3. Wake the application, and update open pages.
    """
    operation = new_operation(verb, application, query, generation, actor, now, parent)
    about = {"application": application, "query": query, "actor": actor, "operation": operation}
    record("desired", before, after, _REASONS[verb], now=now, **about)
    schedule_reconcile(application.pk, now)
    if query is not None:
        changed(f"query:{query.pk}")
    return operation


def new_operation(
    verb: Verb,
    application: Application,
    query: Query | None,
    generation: int,
    actor: str,
    now: datetime,
    parent: Operation | None = None,
) -> Operation:
    """Insert the operation that ends when `generation` is reached or its deadline has passed.

    Raises `TooMany` if the user makes requests too often.
    """
    silent = away(application) if verb in PLAIN_VERBS else None
    detail = NOTHING
    if silent is not None:
        about = {"host": silent.name, "since": f"{silent.seen_at:%H:%M:%S}"}
        code = Detail.WORKER_SLOW if silent.alone else Detail.HOST_AWAY
        detail = Because(code, {"verb": verb, **about})
    operation = Operation.objects.create(
        verb=verb,
        detail=detail,
        application=application,
        query=query,
        generation=generation,
        actor=actor,
        parent=parent,
        created_at=now,
        deadline=now + timedelta(seconds=settings.OPERATION_DEADLINE_S),
    )
    record_operation(operation, now=now)
    return operation


def join_or_create(
    operations: QuerySet[Operation],
    verb: Verb,
    application: Application,
    query: Query | None,
    *,
    actor: str,
    now: datetime,
) -> Operation:
    """Return the newest of these operations that serves the request, else a new operation.

    `query` is None if `verb` applies to the whole application.
    """
    verbs = [Verb.STOP] if verb is Verb.STOP else [Verb.START, Verb.RESTART]
    newest = operations.filter(verb__in=verbs).first()
    if newest is not None and newest.outcome == OperationOutcome.OPEN:
        return newest
    _refuse_while_lost(verb, application, query)
    if newest is not None and newest.outcome in GOOD_OPERATIONS:
        return newest
    about = query or application
    operation = new_operation(verb, application, query, about.generation, actor, now)
    if about.reached_generation >= about.generation:
        operation.outcome, operation.ended_at = OperationOutcome.DONE, now
        operation.save(update_fields=["outcome", "ended_at"])
    return operation


def _refuse_while_lost(verb: Verb, application: Application, query: Query | None) -> None:
    """Raise `NotAllowed` if a repeated request would have to wait for a silent host."""
    waits = query or Script.objects.filter(application=application).first()
    silent = away(application)
    if waits is None or silent is None or waits.phase_reason != Reason.HOST_SILENT:
        return
    name = (query or application).name
    raise NotAllowed(
        f"The {verb} of {name} is already requested and waits for host {silent.name}, which "
        f"has not responded since {silent.seen_at:%H:%M:%S} UTC.",
        way_out=silent.way_out,
    )


def forbid_after_commit_point(
    operations: QuerySet[Operation], of: str, within: Operation | None
) -> None:
    """Raise `Conflict` while one of these operations switches a checkpoint.

    `of` describes their subject; `within` is the operation that makes the request, which is never
    rejected.
    """
    open_ones = operations.filter(outcome=OperationOutcome.OPEN, committed=True)
    other = open_ones.exclude(pk=within.pk if within else 0).first()
    if other is not None:
        raise Conflict(
            f"The {other.verb} of {of} is past its point of no return.",
            way_out=f"Wait for operation {other.uuid} to end; this takes seconds.",
        )


def schedule_reconcile(application_id: int, now: datetime) -> None:
    """Have the application reconciled now: by a nudge or, if that is lost, by the sweep."""
    # The version changes too: a reconcile that started before this request loses its claim, so it
    # cannot overwrite the wake-up with a decision based on older rows.
    Application.objects.filter(pk=application_id).update(
        reconcile_after=now, version=F("version") + 1
    )
    reconcile_soon(application_id)


@dataclass(frozen=True, slots=True)
class FailedRuns:
    """The failures in one step of an application."""

    driver: Failure | None = None  # the driver's own
    #: query -> (its or its driver's failure, the query's generation when the run was created)
    runs: dict[int, tuple[Failure, int]] = field(default_factory=dict)


def close_operations(
    application: Application,
    driver: Driver | None,
    decision: Decision,
    failed: FailedRuns,
    *,
    now: datetime,
) -> None:
    """End operations that are complete, have failed, or whose deadline has passed.

    A start or restart fails with its first attempt, even though the query is retried, so that the
    user learns of the failure immediately. A child of an operation with steps fails only when no
    retries are left, because its parent waits for the query.
    """
    pending = Operation.objects.filter(
        application=application, outcome=OperationOutcome.OPEN, verb__in=PLAIN_VERBS
    )
    by_query = {choice.query: choice for choice in decision.queries}
    left: list[datetime] = []  # deadlines of the remaining open operations
    for operation in pending.order_by():
        if operation.query_id is None:
            choice = None
            reached, end = (
                decision.reached_generation,
                _application_end(operation, driver, decision, failed),
            )
        else:
            choice = by_query.get(operation.query_id)
            reached = choice.reached_generation if choice else 0
            end = _query_end(operation, choice, decision, failed) if choice else None
        if reached >= operation.generation:
            _close(operation, OperationOutcome.DONE, NOTHING, now)
        elif end is not None:
            _close(operation, OperationOutcome.FAILED, end[0], now, failure=end[1])
        elif (until := _until(operation, choice, decision)) <= now:
            waits = waited(choice.phase, choice.reason, choice.detail) if choice else NOTHING
            _close(operation, OperationOutcome.TIMED_OUT, waits, now)
        else:
            left.append(until)
    if left and (decision.wake_at is None or min(left) < decision.wake_at):
        Application.objects.filter(pk=application.pk).update(reconcile_after=min(left))


def _until(operation: Operation, choice: QueryDecision | None, decision: Decision) -> datetime:
    """Return when an operation times out: while it waits for a start, the start itself decides."""
    named: list[QueryDecision | ScriptDecision] = [choice] if choice else [*decision.queries]
    if choice is None and decision.script is not None:
        named.append(decision.script)
    if not any(
        waits_for_start(query_decision.phase, query_decision.reason, busy=decision.busy)
        for query_decision in named
    ):
        return operation.deadline
    return operation.deadline + timedelta(seconds=settings.START_MAX_S)


_End = tuple[Because, Failure | None]  # why an operation failed


def _query_end(
    operation: Operation, choice: QueryDecision, decision: Decision, failed: FailedRuns
) -> _End | None:
    """Return why a query's operation failed, with its failure; None if it did not."""
    failure, generation = failed.runs.get(choice.query, (failed.driver, 0))
    if choice.phase in BLOCKED_PHASES:
        return why(choice.reason, choice.detail), failure
    followed = operation.parent is not None and operation.parent.outcome == OperationOutcome.OPEN
    if operation.verb == Verb.STOP or followed or generation < operation.generation:
        return None
    fault = choice.ended.fault if choice.ended else None
    fault = fault or decision.driver.fault
    assert fault is not None, "a failed run has a fault, or its driver has"
    if fault.error is not None and fault.error.refused == "fenced":
        return None  # our task, not a failed start: the next epoch is drawn above the owner's
    return _tried_again(fault, choice.next_attempt_at or decision.next_attempt_at), failure


def _application_end(
    operation: Operation, driver: Driver | None, decision: Decision, failed: FailedRuns
) -> _End | None:
    """Return why an application's restart failed, with its failure; None if it did not."""
    if decision.restart_block is RestartBlock.FAILED:
        return decision.restart_block_reason, failed.driver
    if driver is None or driver.generation < operation.generation:
        return None
    if decision.driver.fault is not None:
        return _tried_again(decision.driver.fault, decision.next_attempt_at), failed.driver
    for choice in decision.queries:
        fault = choice.ended.fault if choice.ended else None
        ours = fault is not None and fault.error and fault.error.refused == "fenced"
        if fault is not None and not ours and choice.query in failed.runs:
            failure = failed.runs[choice.query][0]
            if choice.restart_block:
                return why(choice.reason, choice.detail), failure
            return _tried_again(fault, choice.next_attempt_at), failure
    return None


def _tried_again(fault: Fault, at: datetime | None) -> Because:
    failure = {"title": fault.classified.title.rstrip("."), "way_out": fault.classified.way_out}
    about = Because(Detail.FAILURE, failure).as_json()
    if at is None:
        return Because(Detail.TRIED_AGAIN_NOW, {"about": about})
    return Because(Detail.TRIED_AGAIN, {"about": about, "at": f"{at:%H:%M:%S}"})


def _close(
    operation: Operation,
    outcome: OperationOutcome,
    detail: Because,
    now: datetime,
    *,
    failure: Failure | None = None,
) -> None:
    closed = Operation.objects.filter(pk=operation.pk, outcome=OperationOutcome.OPEN).update(
        outcome=outcome, detail=detail, failure=failure, ended_at=now
    )
    if closed:
        query = [f"query:{operation.query_id}"] if operation.query_id else []
        changed(f"operation:{operation.uuid}", *query)
