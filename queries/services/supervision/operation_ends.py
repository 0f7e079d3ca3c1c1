"""End operations that supervision has completed, and those that have failed or timed out.

Every function runs inside the transaction of a step that has claimed its application.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings

from controlplane.nudge import changed
from queries.domain.reasons import NOTHING, Because, Detail, waited, why
from queries.domain.states import (
    HELD_PHASES,
    PLAIN_VERBS,
    Hold,
    OperationOutcome,
    Verb,
)
from queries.domain.supervision.decision import Decision, Fault, QueryDecision, ScriptDecision
from queries.domain.supervision.progress import waits_for_start
from queries.models.applications import Application
from queries.models.drivers import Driver
from queries.models.failures import Failure
from queries.models.history import Operation


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
    if choice.phase in HELD_PHASES:
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
    if decision.hold is Hold.FAILED:
        return decision.hold_reason, failed.driver
    if driver is None or driver.generation < operation.generation:
        return None
    if decision.driver.fault is not None:
        return _tried_again(decision.driver.fault, decision.next_attempt_at), failed.driver
    for choice in decision.queries:
        fault = choice.ended.fault if choice.ended else None
        ours = fault is not None and fault.error and fault.error.refused == "fenced"
        if fault is not None and not ours and choice.query in failed.runs:
            failure = failed.runs[choice.query][0]
            if choice.hold:
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
