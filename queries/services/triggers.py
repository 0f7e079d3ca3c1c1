"""Switch async progress tracking off safely, even after a failure, and request thread dumps.

Without async tracking, Spark needs the offsets of the batch before the newest one. A log with gaps
may lack them, and Spark then fails with "batch N doesn't exist". The operation leaves async
tracking on with interval 0, so that every batch's offsets are logged, lets two batches commit,
stops, checks the log on disk, and only then switches off. The operation also recovers a query that
has failed in this way.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction

from queries.domain.access import Act
from queries.domain.checkpoints.logs import missing_batch
from queries.domain.definitions.parsing import parse_query
from queries.domain.errors import Conflict, HeadgateError, NotAllowed
from queries.domain.reasons import why
from queries.domain.states import (
    BLOCKED_PHASES,
    DOWN_PHASES,
    Desired,
    OperationOutcome,
    Phase,
    RunOutcome,
    StopMode,
    Verb,
)
from queries.domain.triggers.async_progress import INTERVAL, switched, tracking
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.roles import AuthorRights
from queries.selectors.hosts import release
from queries.selectors.triggers.replays import gap_of, tracking_of
from queries.services.access.audit import record_act
from queries.services.checkpoints.remote import fresh_logs, readable_logs
from queries.services.definitions import catalog
from queries.services.definitions.rights import insist_query, parsed
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
    waiting,
)
from queries.services.procedures.stop_and_start import waiting_for
from queries.services.supervision import operations
from queries.services.supervision.operation_rows import schedule_reconcile


def newest_of(query: Query) -> QueryRevision:
    """Return a query's newest revision."""
    return query.revisions.order_by("-number")[0]


def base_of(context: StepContext) -> QueryRevision:
    """Return the revision that the operation began with."""
    return context.query.revisions.get(number=context.arguments["revision"])


def location_of(query: Query) -> str:
    """Return the location of a query's checkpoint."""
    return Checkpoint.objects.get(query=query, retired_at=None).location


def same(spec: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two stored definitions are equal; omitted values are defaults."""
    return parse_query(spec) == parse_query(other)


def put_back(context: StepContext) -> None:
    """Restore the definition and state after an operation that ended before its last step.

    If a user's start or stop has superseded the operation, the definition is restored, but the
    query runs or stops as the user requested. A query that had failed on the gap stays stopped.
    """
    try:
        left = _restore(context)
        if context.operation.outcome != OperationOutcome.SUPERSEDED:
            left += f" {_as_it_ran(context)}"
    except HeadgateError as error:
        left = f"Not everything could be restored: {error}"
    context.result["left"] = left.strip()


def _restore(context: StepContext) -> str:
    base, last = base_of(context), newest_of(context.query)
    ours = (switched(base.spec, 0), switched(base.spec, None))
    if last.number == base.number or same(last.spec, base.spec):
        return f"The definition is revision {last.number}, as before."
    if not any(same(last.spec, spec) for spec in ours):
        return f"The definition is revision {last.number}, saved by {last.author}."
    revision = catalog.revise_query(
        query=context.query,
        spec=base.spec,
        expected_revision=last.number,
        actor=context.operation.actor,
        now=context.now,
        gap_accepted=True,
        rights=AuthorRights.ALL,  # checked when it was requested
    )
    return f"Revision {revision.number} restores revision {base.number}."


def _as_it_ran(context: StepContext) -> str:
    """Return the query to running or stopped, as it was before."""
    children = Operation.objects.filter(parent=context.operation)
    if not children.exists():
        return ""  # its state was never touched
    if children.filter(created_at__gte=context.operation.ended_at).exists():
        return "The query is being returned to its previous state."  # by a worker that has died
    query, actor, within = context.query, context.operation.actor, context.operation
    runs_again = context.arguments["was"] == Desired.RUNNING and (
        tracking(base_of(context).spec) is not None or gap_of(location_of(query)) is None
    )
    if runs_again and query.desired == Desired.RUNNING and query.phase not in DOWN_PHASES:
        operations.request_restart(query=query, actor=actor, now=context.now, within=within)
        return "It restarts on that revision."
    if runs_again:
        operations.request_start(query=query, actor=actor, now=context.now, within=within)
        return "It starts on that revision."
    operations.request_stop(
        query=query, mode=StopMode.GRACEFUL, actor=actor, now=context.now, within=within
    )
    return "It stays stopped."


#: Batches that must commit with all offsets logged; Spark needs the newest and its predecessor.
BATCHES = 2
#: Time limit for all steps together; most of it allows for a source without new records.
LIMIT = timedelta(hours=1)


def request_async_off(
    *, query: Query, actor: str, now: datetime, rights: AuthorRights = AuthorRights.SQL
) -> Operation:
    """Begin the operation that switches async progress tracking off safely.

    Raises `NotAllowed` if there is nothing to switch off or this host cannot do it, `Invalid` if
    the definition could not run with async tracking and interval 0, `Conflict` while another
    operation with steps changes the query, and `Forbidden` for a definition in Python if `rights`
    does not allow the actor to write it.
    """
    newest = newest_of(query)
    insist_query(rights, parsed(newest.spec), query)
    location = location_of(query)
    try:
        missing = missing_batch(readable_logs(location).begun())
    except OSError as error:
        raise NotAllowed(
            f"The checkpoint of {query.name} cannot be read from here: {error}",
            way_out=f'Set {INTERVAL} to "0", restart, let {BATCHES} batches commit, stop, and '
            "remove async progress tracking from the definition.",
        ) from error
    if newest.spec.get("sink") is None:
        raise NotAllowed(
            f"{query.name} has no sink in its definition: its code writes the output.",
            way_out=f'Set {INTERVAL} to "0" in the code, restart, let {BATCHES} batches commit, '
            "stop, and remove async progress tracking from the code.",
        )
    if tracking_of(newest, None) is None and missing is None:
        raise NotAllowed(
            f"Async progress tracking of {query.name} is off, and its offset log has no gap.",
            way_out="No action is needed.",
        )
    if not _rests_without_gap(query, missing):
        catalog.plan_query(query=query, spec=switched(newest.spec, 0), rights=AuthorRights.ALL)
    arguments = {
        "revision": newest.number,
        "was": str(query.desired),
        "missing_batch": missing,
    }
    return begin(ASYNC_OFF, query=query, arguments=arguments, actor=actor, now=now)


# --- the steps ----------------------------------------------------------------------------


def _keep_every_batch(context: StepContext) -> StepResult:
    """Write the revision under which the offsets of every batch are logged."""
    if _unneeded(context):
        return StepResult(True, "Not needed: the query is stopped, and its offset log has no gap.")
    revision = _write(
        context, switched(base_of(context).spec, 0), after=context.arguments["revision"]
    )
    context.result["keeps_every_batch"] = revision.number
    return StepResult(True, f"Revision {revision.number}: async progress tracking with interval 0.")


def _start_on_it(context: StepContext) -> StepResult:
    """Start the query on that revision."""
    if _unneeded(context):
        return StepResult(True, "Not needed.")
    child = _child(context, Verb.START, Verb.RESTART)
    if child is None:
        runs = context.query.desired == Desired.RUNNING and context.query.phase not in DOWN_PHASES
        request = operations.request_restart if runs else operations.request_start
        child = _request(context, request)
    return _followed(context, child, "the start")


def _commit_two_batches(context: StepContext) -> StepResult:
    """Wait until enough consecutive batches have committed since the start."""
    if _unneeded(context):
        return StepResult(True, "Not needed.")
    _refuse_dead(context)
    logs = fresh_logs(context, location_of(context.query))
    if isinstance(logs, StepResult):
        return logs
    begun, committed = logs.begun(), set(logs.committed())
    first = context.result.setdefault("newest_before", begun[-1] if begun else -1)
    new_batches = [batch for batch in begun if batch > first and batch in committed]
    in_a_row = _in_a_row(new_batches)
    if in_a_row < BATCHES:
        return waiting(
            f"{in_a_row} of {BATCHES} batches have committed since batch {first}; waiting for new "
            "records in the sources."
        )
    return StepResult(
        True,
        f"Batches {new_batches[-in_a_row]} to {new_batches[-1]} committed, and the offsets of each "
        "were saved.",
    )


def _stop(context: StepContext) -> StepResult:
    """Stop the query after the batch in flight."""
    if _unneeded(context):
        return StepResult(True, "Not needed.")
    child = _child(context, Verb.STOP)
    if child is None:
        child = _request(context, partial(operations.request_stop, mode=StopMode.GRACEFUL))
    return _followed(context, child, "the stop")


def _look_at_the_log(context: StepContext) -> StepResult:
    """Verify on disk that Spark will find the offsets that it needs."""
    logs = fresh_logs(context, location_of(context.query))
    if isinstance(logs, StepResult):
        return logs
    begun = logs.begun()
    missing = missing_batch(begun)
    if missing is not None:
        raise Conflict(
            f"Batch {missing} is still missing from the offset log, which ends with "
            f"{', '.join(str(batch) for batch in begun[-3:])}.",
            way_out="Try again.",
        )
    if not begun:
        return StepResult(True, "The offset log is empty: no batch has started yet.")
    return StepResult(
        True, f"The offset log ends with batches {', '.join(str(batch) for batch in begun[-3:])}."
    )


def _switch_off(context: StepContext) -> StepResult:
    """Write the revision without async tracking; the log has just been checked."""
    after = context.result.get("keeps_every_batch", context.arguments["revision"])
    revision = _write(context, switched(base_of(context).spec, None), after=after)
    context.result["off"] = revision.number
    return StepResult(True, f"Revision {revision.number}: async progress tracking is off.")


def _start_again(context: StepContext) -> StepResult:
    """Start the query if it should have run before; from this step on, nothing is undone."""
    if context.arguments["was"] != Desired.RUNNING:
        return StepResult(True, "The query was stopped before, so it stays stopped.")
    if "start" not in context.result:
        context.result["start"] = str(_request(context, operations.request_start).uuid)
    return StepResult(True, "The query starts without async progress tracking.")


ASYNC_OFF = Procedure(
    Verb.ASYNC_OFF,
    (
        ProcedureStep("Save the offsets of every batch", _keep_every_batch),
        ProcedureStep("Start the query with it", _start_on_it),
        ProcedureStep("Let two batches commit", _commit_two_batches),
        ProcedureStep("Stop it after the batch in flight", _stop),
        ProcedureStep("Check the offset log on disk", _look_at_the_log),
        ProcedureStep("Switch async progress tracking off", _switch_off),
        ProcedureStep("Start it again", _start_again, commits=True),
    ),
    limit=LIMIT,
    undo=put_back,
)


# --- what the steps read --------------------------------------------------------------------


def _rests_without_gap(query: Query, missing: int | None) -> bool:
    open_run = Run.objects.filter(query=query, outcome=RunOutcome.OPEN).exists()
    return missing is None and query.desired == Desired.STOPPED and not open_run


def _unneeded(context: StepContext) -> bool:
    """Return whether the query was stopped and its log had no gaps when the operation began."""
    whole = context.result.get("whole")
    if whole is None:
        whole = _rests_without_gap(context.query, context.arguments["missing_batch"])
        context.result["whole"] = whole
    return bool(whole)


def _in_a_row(batches: list[int]) -> int:
    """Return the number of consecutive batches at the end of the list."""
    count = 0
    for batch in reversed(batches):
        if count and batch != batches[-1] - count:
            break
        count += 1
    return count


def _write(context: StepContext, spec: dict[str, Any], *, after: int) -> QueryRevision:
    """Make `spec` the newest revision; raise `Conflict` if the query has since been edited."""
    newest = newest_of(context.query)
    if same(newest.spec, spec):
        return newest  # written by a worker that died before recording it
    if newest.number != after:
        raise Conflict(
            f"{newest.author} has saved revision {newest.number} in the meantime.",
            way_out="Review it, then try again.",
        )
    with transaction.atomic():
        context.insist()
        return catalog.revise_query(
            query=context.query,
            spec=spec,
            expected_revision=newest.number,
            actor=context.operation.actor,
            now=context.now,
            rights=AuthorRights.ALL,  # checked when it was requested
        )


def _request(context: StepContext, request: Callable[..., Operation]) -> Operation:
    """Request a start or a stop, unless the operation has ended in the meantime."""
    with transaction.atomic():
        operations.locked(context.query)  # first, in the lock order of a superseding request
        context.insist()
        return request(
            query=context.query,
            actor=context.operation.actor,
            now=context.now,
            within=context.operation,
        )


def _child(context: StepContext, *verbs: Verb) -> Operation | None:
    """Return the operation that this one has already requested; None if there is none."""
    children = Operation.objects.filter(parent=context.operation, verb__in=verbs)
    return children.order_by("pk").first()


def _followed(context: StepContext, child: Operation, what: str) -> StepResult:
    """Wait for an operation that this one requested; raise an error if it failed."""
    child.refresh_from_db()
    if child.outcome == OperationOutcome.DONE:
        return DONE
    slow = child.outcome == OperationOutcome.TIMED_OUT and child.verb != Verb.STOP
    if slow:  # its deadline has passed, ours has not: a source may be down for a while
        _refuse_dead(context)
        if context.query.phase == Phase.RUNNING:
            return DONE
    if slow or child.outcome == OperationOutcome.OPEN:
        return waiting_for(context.query)
    raise Conflict(f"{what.capitalize()} failed: {child.detail or child.outcome}.")


def _refuse_dead(context: StepContext) -> None:
    if context.query.phase in BLOCKED_PHASES:
        raise Conflict(
            f"{context.query.name} has failed in the meantime: "
            f"{why(context.query.phase_reason, context.query.phase_detail)}."
        )


#: A dump stops the whole JVM for some milliseconds.
AGAIN = timedelta(seconds=10)


def request_dump(*, query: Query, actor: str, now: datetime) -> Run:
    """Have the driver take a thread dump and a heap histogram with its next heartbeat.

    Returns the run. Raises `Conflict` if the query has no open run, if its driver runs another
    release, or if a dump was requested less than 10 s ago.
    """
    with transaction.atomic():
        rows = Run.objects.select_for_update(of=("self",), no_key=True)
        run = rows.filter(query=query, outcome=RunOutcome.OPEN).first()
        if run is None:
            raise Conflict(
                f"{query.name} is not running.",
                way_out="Start the query first.",
            )
        if run.driver.release != release():  # it may be unable to read an assignment with a request
            raise Conflict(
                f"The driver of {query.name} runs another release of Headgate.",
                way_out=f"Restart the application {query.application.name} first.",
            )
        if run.dump_asked_at is not None and now - run.dump_asked_at < AGAIN:
            raise Conflict(
                f"A thread dump of {query.name} was requested a moment ago.",
                way_out="Wait 10 seconds before the next one.",
            )
        run.dump_asked_at = now
        run.save(update_fields=["dump_asked_at"])
        record_act(Act.PROBE, actor=actor, now=now, subject=query.name, verb="thread dump")
    schedule_reconcile(query.application_id, now)
    return run
