"""Run operations with several steps, so that no operation is lost if its worker dies.

A step is recorded before and after it is taken. The worker that takes it holds and renews the
operation's lease. If that worker dies, the lease expires and another worker takes the same step
again, so every step must be repeatable. Until its point of no return, a procedure can be cancelled,
and everything that it has built is cleaned up; after that, it can only be finished.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane import fail_points
from controlplane.nudge import advance_soon, changed
from listeners.loops.backlogs import loop_errors
from listeners.loops.slices import Lease, Leases
from queries import host_pressure
from queries.domain import access
from queries.domain.errors import Conflict, HeadgateError, NotAllowed
from queries.domain.reasons import NOTHING, Because, Detail, noted
from queries.domain.states import (
    MANY_VERBS,
    PLAIN_VERBS,
    READING_VERBS,
    SCRIPT_VERBS,
    DriverState,
    OperationOutcome,
    StepState,
    Verb,
)
from queries.launchers.base import Launcher
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.selectors.hosts import AwayHost, away, is_silent, on_this_host
from queries.services.access.audit import record_act
from queries.services.access.tokens import record_operation
from queries.services.scripts import refuse_discovered
from queries.services.supervision.operations import locked

logger = logging.getLogger(__name__)
_loop = loop_errors("operations", logger)

#: How long a worker's claim on a step lasts; renewed after a third of it. A dead worker delays a
#: step by at most this long.
LEASE = timedelta(seconds=15)
_leases = Leases(LEASE)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step: finished, or the condition that it is waiting for."""

    done: bool
    detail: str = ""


DONE = StepResult(True)


def waiting(detail: str) -> StepResult:
    """Return the result of a step that must be repeated, with the condition that it waits for."""
    return StepResult(False, detail)


@dataclass(slots=True)
class StepContext:
    """The input of a step: the current rows, and results that outlive the worker."""

    operation: Operation
    query: Query
    launcher: Launcher
    now: datetime
    result: dict[str, Any] = field(default_factory=dict)  # stored with the operation

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the request."""
        arguments: dict[str, Any] = self.operation.arguments
        return arguments

    def insist(self) -> None:
        """Raise `Conflict` if the operation has since been cancelled or superseded.

        Call it inside the transaction that makes the irreversible change: it locks the row.
        """
        row = Operation.objects.select_for_update().get(pk=self.operation.pk)
        if row.outcome != OperationOutcome.OPEN:
            raise Conflict(f"The {row.verb} has ended in the meantime: {row.detail}.")


StepFunction = Callable[[StepContext], StepResult]


@dataclass(frozen=True, slots=True)
class ProcedureStep:
    """One step. If it `commits`, the operation cannot be cancelled once this step is taken."""

    name: str  # shown on pages: "Stop the query"
    act: StepFunction
    commits: bool = False


class Work(Protocol):
    """The work of a verb, which a worker does under the operation's lease."""

    def take(self, operation: Operation, launcher: Launcher) -> bool:
        """Do the next part of the work; return whether more may be possible now."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """A verb's steps, and the cleanup for a procedure that did not finish."""

    verb: Verb
    steps: tuple[ProcedureStep, ...]
    limit: timedelta  # for all steps together; then TIMED_OUT, unless past no return
    undo: Callable[[StepContext], StepResult | None] | None = None

    def take(self, operation: Operation, launcher: Launcher) -> bool:
        """Take the next step, or clean up; return whether more may be possible now."""
        if operation.query is None:
            return False
        context = StepContext(
            operation, operation.query, launcher, timezone.now(), operation.result
        )
        if operation.outcome != OperationOutcome.OPEN:
            _tidy(self, context)
            return False
        return _take(self, context)


def begin(
    procedure: Procedure,
    *,
    query: Query,
    arguments: dict[str, Any],
    actor: str,
    now: datetime,
    host: str = "",
) -> Operation:
    """Insert the operation and schedule its first step.

    `host` is the host that takes its steps; "" means the application's host, which has the files.

    Raises `Conflict` while another operation with steps changes the same query, and `TooMany` if
    the user makes requests too often.
    """
    with transaction.atomic():
        row = locked(query)
        if row.archived_at is not None:
            raise NotAllowed(f"{row.name} has been deleted.")
        if row.discovered and procedure.verb not in SCRIPT_VERBS:
            refuse_discovered(row)
        _refuse_beside_another(row, procedure.verb)
        silent = None if host else away(row.application)
        operation = Operation.objects.create(
            verb=procedure.verb,
            host=host,
            detail=_waits_for(silent) if silent else NOTHING,
            application=row.application,
            query=row,
            generation=row.generation,
            actor=actor,
            created_at=now,
            deadline=now + procedure.limit,
            steps=[
                {"name": step.name, "state": StepState.TODO, "at": None, "detail": ""}
                for step in procedure.steps
            ],
            arguments=arguments,
        )
        record_operation(operation, now=now)
        advance_soon(operation.pk)
        changed(f"query:{row.pk}")
        return operation


def cancel(operation: Operation, *, actor: str, now: datetime) -> Operation:
    """Cancel an operation before its point of no return; raise `NotAllowed` after it."""
    with transaction.atomic():
        row = Operation.objects.select_for_update().get(pk=operation.pk)
        if row.verb in PLAIN_VERBS:
            raise NotAllowed(
                f"Operation {row.verb} is a single step and cannot be cancelled.",
                way_out="Request the opposite instead.",
            )
        if row.outcome:
            raise NotAllowed(f"The {row.verb} has ended: {row.outcome}.")
        if row.committed:
            raise NotAllowed(
                f"The {row.verb} is past its point of no return.", way_out="It ends within seconds."
            )
        row.outcome, row.ended_at = OperationOutcome.CANCELLED, now
        row.detail = Because(Detail.CANCELLED_BY, {"actor": actor})
        row.save(update_fields=["outcome", "ended_at", "detail"])
        subject = row.subject
        about = {"verb": row.verb, "operation": row.uuid}
        record_act(access.Act.CANCELLED, actor=actor, now=now, subject=subject, **about)
        advance_soon(row.pk)
        changed(*([f"query:{row.query_id}"] if row.query_id else []), f"operation:{row.uuid}")
        return row


def due_operations(*, now: datetime) -> list[int]:
    """Return the unclaimed operations that have work to do or undo.

    Only this host's operations, and those that any host can take, are included.
    """
    operations = (
        _unfinished().filter(_leases.free(now), _of_this_host()).exclude(verb__in=PLAIN_VERBS)
    )
    return list(operations.order_by("pk").values_list("pk", flat=True)[:200])


def advance(
    operation_id: int, *, procedures: Mapping[Verb, Work], launcher: Launcher, now: datetime
) -> bool:
    """Do all work that is possible now; False if another worker or host has the operation."""
    lease = _lease(operation_id, now)
    if lease is None:
        return False
    with lease.renewed():
        more = True
        while more:
            operation = Operation.objects.select_related("query__application").get(pk=operation_id)
            work = procedures.get(Verb(operation.verb))
            more = work is not None and work.take(operation, launcher)
    return True


def _take(procedure: Procedure, context: StepContext) -> bool:
    """Take the first step that is not finished; return whether more may be possible now."""
    operation = context.operation
    index = next(
        (i for i, step in enumerate(operation.steps) if step["state"] != StepState.DONE), None
    )
    if index is None:
        return _end(context, OperationOutcome.DONE, NOTHING)
    if _is_late(operation, context.now) and not operation.committed:
        waited_for = operation.steps[index]["detail"] or operation.steps[index]["name"]
        return _end(context, OperationOutcome.TIMED_OUT, noted(waited_for))
    step = procedure.steps[index]
    if not _mark(context, index, StepState.DOING, "", committed=step.commits, to_undo=True):
        return True
    point = f"{procedure.verb}.{index + 1}"
    fail_points.reach(f"{point}.before")
    try:
        result = step.act(context)
    except HeadgateError as error:
        if operation.committed and not step.commits:
            return _postpone_step(context, index, str(error))
        _mark(context, index, StepState.FAILED, str(error))
        refused = Because(Detail.REFUSED, {"error": error.code, "message": str(error)})
        return _end(context, OperationOutcome.FAILED, refused)
    except Exception as error:  # loop boundary: a disk or a network may recover
        logger.exception("step %r of operation %s", step.name, operation.pk)
        return _postpone_step(context, index, f"{type(error).__name__}: {error}")
    if result.done:
        fail_points.reach(f"{point}.after")
    state = StepState.DONE if result.done else StepState.DOING
    _mark(context, index, state, result.detail)
    return result.done


def _is_late(operation: Operation, now: datetime) -> bool:
    """Return whether an operation has used up its time.

    It has not while its probe's start advances, or while this host is busy: then it has as much
    time again as a start may take at most.
    """
    if operation.deadline > now:
        return False
    if operation.deadline + timedelta(seconds=settings.START_MAX_S) <= now:
        return True
    since = now - timedelta(seconds=settings.START_DEADLINE_S)
    starting = Driver.objects.filter(
        operation=operation, state=DriverState.STARTING, advanced_at__gt=since
    )
    return not host_pressure.read_pressure().is_high and not starting.exists()


def _postpone_step(context: StepContext, index: int, detail: str) -> bool:
    """Leave the step for another attempt, and record why it was not completed."""
    _mark(context, index, StepState.DOING, detail)
    return False


def _mark(
    context: StepContext,
    index: int,
    state: StepState,
    detail: str,
    *,
    committed: bool = False,
    to_undo: bool | None = None,
) -> bool:
    """Write the state of a step; False if the operation has ended in the meantime."""
    operation = context.operation
    step = operation.steps[index]
    news = step["state"] != state or step["detail"] != detail
    if step["state"] != state:
        step["at"] = timezone.now().isoformat()
    step["state"], step["detail"] = state, detail
    operation.committed = operation.committed or committed
    operation.to_undo = operation.to_undo if to_undo is None else to_undo
    written = Operation.objects.filter(pk=operation.pk, outcome=OperationOutcome.OPEN).update(
        steps=operation.steps,
        result=context.result,
        detail=noted(detail),
        committed=operation.committed,
        to_undo=operation.to_undo,
    )
    if not written:  # the cleanup must know what the step has made
        Operation.objects.filter(pk=operation.pk).update(result=context.result)
    if news:
        changed(f"query:{operation.query_id}", f"operation:{operation.uuid}")
    return bool(written)


def _end(context: StepContext, outcome: OperationOutcome, detail: Because) -> bool:
    """Close the operation; return whether anything is left to clean up."""
    done = outcome is OperationOutcome.DONE
    fields: dict[str, Any] = {"outcome": outcome, "detail": detail, "ended_at": context.now}
    if done:
        fields["to_undo"] = False
    Operation.objects.filter(pk=context.operation.pk, outcome=OperationOutcome.OPEN).update(
        **fields
    )
    changed(f"query:{context.operation.query_id}", f"operation:{context.operation.uuid}")
    return not done


def _tidy(procedure: Procedure, context: StepContext) -> None:
    """Clean up after an operation that ended early; wait if necessary."""
    operation = context.operation
    if not operation.to_undo:
        return
    if procedure.undo is not None and not operation.committed:
        result = procedure.undo(context)
        if result is not None and not result.done:  # taken again at the next pass
            return
    Operation.objects.filter(pk=operation.pk).update(to_undo=False, result=context.result)


def _waits_for(silent: AwayHost) -> Because:
    """Return that steps wait for a host's worker."""
    code = Detail.STEPS_SLOW if silent.alone else Detail.STEPS_ON
    return Because(code, {"host": silent.name})


def _refuse_beside_another(row: Query, verb: Verb) -> None:
    if verb in READING_VERBS:
        return
    open_operations = Operation.objects.filter(query=row, outcome=OperationOutcome.OPEN)
    other = open_operations.exclude(verb__in=PLAIN_VERBS | READING_VERBS).first()
    if other is not None:
        raise Conflict(
            f"Another operation ({other.verb}) of {row.name} is in progress.",
            way_out=f"Wait for operation {other.uuid}, or cancel it.",
        )


# --- the lease --------------------------------------------------------------------------


def _lease(operation_id: int, now: datetime) -> Lease | None:
    """Claim the operation; return None if it is claimed already or has no work for this host."""
    unfinished_operations = _unfinished()
    of_any = _leases.take(unfinished_operations.filter(verb__in=MANY_VERBS), operation_id, now=now)
    if (
        of_any is not None
        or not unfinished_operations.filter(_of_this_host(), pk=operation_id).exists()
    ):
        return of_any
    # The first step decides which host takes the others: they need each other's files.
    this_host = settings.HEADGATE_HOST
    return _leases.take(
        unfinished_operations.filter(host__in=("", this_host)),
        operation_id,
        now=now,
        host=this_host,
    )


def _of_this_host() -> Q:
    """Return a filter for operations whose files are, or will be, on this host.

    Operations on many queries have no files.
    """
    placed = Q(on_this_host("application__"), host="") | Q(host=settings.HEADGATE_HOST)
    return placed | Q(verb__in=MANY_VERBS)


def _unfinished() -> QuerySet[Operation]:
    """Return a filter for operations that have work to do or to undo."""
    return Operation.objects.filter(Q(outcome=OperationOutcome.OPEN) | Q(to_undo=True))


def note_silent_hosts() -> None:
    """Record why an operation is waiting if its host has no heartbeat."""
    waits = Operation.objects.filter(outcome=OperationOutcome.OPEN).exclude(verb__in=PLAIN_VERBS)
    for operation in waits.exclude(_of_this_host()).select_related("application"):
        with _loop.isolate_errors(f"operation {operation.uuid}"):
            _note_silent_host(operation)


def _note_silent_host(operation: Operation) -> None:
    host = operation.host or (operation.application.host if operation.application else "")
    detail = Because(Detail.STEPS_ON, {"host": host})
    if not is_silent(host) or operation.detail == detail:
        return
    mine = Operation.objects.filter(pk=operation.pk, outcome=OperationOutcome.OPEN)
    mine.update(detail=detail)
    changed(f"query:{operation.query_id}", f"operation:{operation.uuid}")
