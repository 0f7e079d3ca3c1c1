"""An operation's progress from requested to done, in steps."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from queries.domain.reasons import NOTHING, Because
from queries.domain.states import (
    FAILED_OPERATIONS,
    PLAIN_VERBS,
    OperationOutcome,
    Phase,
    Reason,
    StepState,
    Verb,
)
from queries.models.history import Operation
from queries.selectors.query_lines import QueryLine
from queries.selectors.supervision.runs import first_attempt

#: How long an ended operation is shown.
SHOWN_AFTER_END = timedelta(minutes=2)

_STEPS: dict[str, tuple[str, ...]] = {
    Verb.START: ("Requested", "Waiting", "Launching", "Running"),
    Verb.STOP: ("Requested", "Finishing the batch", "Stopped"),
    Verb.RESTART: ("Requested", "Stopping", "Launching", "Running"),
}
_AT: dict[str, dict[Phase, int]] = {
    Verb.START: {
        Phase.PENDING: 1,
        Phase.BACKOFF: 1,
        Phase.STARTING: 2,
        Phase.RUNNING: 3,
        Phase.COMPLETED: 3,
    },
    Verb.STOP: {Phase.STOPPING: 1, Phase.STOPPED: 2, Phase.COMPLETED: 2},
    Verb.RESTART: {Phase.STOPPING: 1, Phase.PENDING: 2, Phase.STARTING: 2},
}


@dataclass(frozen=True, slots=True)
class StepProgress:
    """One step: done, now, todo or failed."""

    label: str
    state: str


@dataclass(frozen=True, slots=True)
class OperationProgress:
    """An operation with its steps."""

    operation: Operation
    steps: list[StepProgress]
    detail: Because  # what it is waiting for, or why it failed


def way(operation: Operation | None, line: QueryLine, now: datetime) -> OperationProgress | None:
    """Return the newest operation's steps while it is open, and for a while after it has ended."""
    if operation is None or operation.outcome == OperationOutcome.SUPERSEDED:
        return None
    ended = operation.ended_at
    if operation.outcome and (ended is None or now - ended > SHOWN_AFTER_END):
        return None
    if operation.outcome in FAILED_OPERATIONS and _is_past(operation, line):
        return None
    if operation.steps:
        return OperationProgress(
            operation, [_step(step) for step in operation.steps], operation.detail
        )
    if operation.verb not in _STEPS:
        return None
    labels = _STEPS[operation.verb]
    if operation.outcome == OperationOutcome.DONE:
        return OperationProgress(
            operation, [StepProgress(label, "done") for label in labels], NOTHING
        )
    if operation.outcome in FAILED_OPERATIONS:
        return OperationProgress(operation, failed_steps(operation), operation.detail)
    at = _AT[operation.verb].get(line.phase, 0)
    return OperationProgress(
        operation, _steps(labels, at, "now"), operation.detail or line.query.phase_detail
    )


def _is_past(operation: Operation, line: QueryLine) -> bool:
    """Return whether a plain verb's failure is unrelated to the current attempt."""
    if operation.verb not in PLAIN_VERBS or line.run is None or operation.ended_at is None:
        return False
    retried = line.run.cause in {Reason.RETRY_DUE, Reason.PROBE, Reason.DRIVER_DIED}
    later = line.run.created_at > operation.ended_at and not retried
    return later or line.phase is Phase.RUNNING


def failed_steps(operation: Operation) -> list[StepProgress]:
    """Return the steps of a failed plain verb, with the failed one marked."""
    labels = _STEPS[operation.verb]
    if operation.verb == Verb.STOP:
        return _steps(labels, 1, "failed")
    run = first_attempt(operation)
    at = 1 if run is None else 2 if run.started_at is None else 3
    return _steps(labels, at, "failed")


def _steps(labels: tuple[str, ...], at: int, state: str) -> list[StepProgress]:
    return [
        StepProgress(label, "done" if index < at else "todo" if index > at else state)
        for index, label in enumerate(labels)
    ]


def _step(step: dict[str, str]) -> StepProgress:
    """Return a step in a multi-step operation, as written by its procedure."""
    return StepProgress(step["name"], STEP_STATES[StepState(step["state"])])


STEP_STATES = {
    StepState.TODO: "todo",
    StepState.DOING: "now",
    StepState.DONE: "done",
    StepState.FAILED: "failed",
}
