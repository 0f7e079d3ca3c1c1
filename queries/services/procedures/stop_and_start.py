"""Steps that several procedures share: stop the query, and start it again afterwards."""

from queries.domain.reasons import waited
from queries.domain.states import STOPPED_PHASES, Desired, RunOutcome, StopMode
from queries.models.applications import Script
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.services.procedures.engine import DONE, StepContext, StepResult, waiting
from queries.services.supervision import application_operations, operations


def remember(turn: StepContext, **found: object) -> None:
    """Store a step's findings immediately, because they cannot be determined again."""
    turn.result.update(found)
    Operation.objects.filter(pk=turn.operation.pk).update(result=turn.result)


def stop(turn: StepContext) -> StepResult:
    """Stop the query after its batch in flight, and wait until nothing runs.

    Stores in `ran` whether to start the query again afterwards.
    """
    query = turn.query
    if query.discovered:
        return _stop_script(turn)
    if "ran" not in turn.result:
        remember(turn, ran=query.desired == Desired.RUNNING)
    if query.desired == Desired.RUNNING:
        operations.request_stop(
            query=query,
            mode=StopMode.GRACEFUL,
            actor=turn.operation.actor,
            now=turn.now,
            within=turn.operation,
        )
        query.refresh_from_db()
    if query.phase in STOPPED_PHASES and not _has_run(query):
        return DONE
    return waiting_for(query)


def waiting_for(query: Query) -> StepResult:
    """Return the result of a step that waits for the same thing as the query's phase."""
    return waiting(waited(query.phase, query.phase_reason, query.phase_detail).text)


def start_again(turn: StepContext) -> StepResult:
    """Start the query on its newest revision if it should have run before the procedure."""
    if turn.result.get("ran") and turn.query.discovered:
        _start_script(turn, turn.operation)
    elif turn.result.get("ran"):
        operations.request_start(
            query=turn.query, actor=turn.operation.actor, now=turn.now, within=turn.operation
        )
    return DONE


def start_after_undo(turn: StepContext) -> None:
    """Start a query that the unfinished procedure stopped, unless a user has decided otherwise."""
    stopped = turn.operation.children.filter(verb="stop").order_by("-generation").first()
    if stopped is None or not turn.result.get("ran"):
        return
    if turn.query.discovered:
        application = turn.query.application
        application.refresh_from_db()
        if application.generation == stopped.generation and application.archived_at is None:
            _start_script(turn, None)
        return
    if turn.query.generation == stopped.generation and turn.query.archived_at is None:
        operations.request_start(
            query=turn.query, actor=turn.operation.actor, now=turn.now, keep_params=True
        )


def _stop_script(turn: StepContext) -> StepResult:
    """Stop the script that starts the query, and wait until nothing of the query runs."""
    query, script = turn.query, Script.objects.get(application=turn.query.application_id)
    running = script.desired == Desired.RUNNING
    if "ran" not in turn.result:
        remember(turn, ran=running)
    if running:
        application_operations.request_script_stop(
            application=query.application,
            mode=StopMode.GRACEFUL,
            actor=turn.operation.actor,
            now=turn.now,
            within=turn.operation,
        )
    elif script.phase in STOPPED_PHASES and query.phase in STOPPED_PHASES and not _has_run(query):
        return DONE
    return waiting_for(query)


def _start_script(turn: StepContext, within: Operation | None) -> None:
    application_operations.request_script_start(
        application=turn.query.application,
        actor=turn.operation.actor,
        now=turn.now,
        within=within,
    )


def _has_run(query: Query) -> bool:
    return Run.objects.filter(query=query, outcome=RunOutcome.OPEN).exists()
