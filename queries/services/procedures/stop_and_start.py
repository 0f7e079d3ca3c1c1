"""Steps that several procedures share: stop the query, and start it again afterwards."""

from queries.domain.reasons import waited
from queries.domain.states import STOPPED_PHASES, Desired, RunOutcome, StopMode
from queries.models.applications import Script
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.services.procedures.engine import DONE, StepContext, StepResult, waiting
from queries.services.supervision import application_operations, operations


def remember(context: StepContext, **findings: object) -> None:
    """Store a step's findings immediately, because they cannot be determined again."""
    context.result.update(findings)
    Operation.objects.filter(pk=context.operation.pk).update(result=context.result)


def stop(context: StepContext) -> StepResult:
    """Stop the query after its batch in flight, and wait until nothing runs.

    Stores in `ran` whether to start the query again afterwards.
    """
    query = context.query
    if query.discovered:
        return _stop_script(context)
    if "ran" not in context.result:
        remember(context, ran=query.desired == Desired.RUNNING)
    if query.desired == Desired.RUNNING:
        operations.request_stop(
            query=query,
            mode=StopMode.GRACEFUL,
            actor=context.operation.actor,
            now=context.now,
            within=context.operation,
        )
        query.refresh_from_db()
    if query.phase in STOPPED_PHASES and not _has_run(query):
        return DONE
    return waiting_for(query)


def waiting_for(query: Query) -> StepResult:
    """Return the result of a step that waits for the same thing as the query's phase."""
    return waiting(waited(query.phase, query.phase_reason, query.phase_detail).text)


def start_again(context: StepContext) -> StepResult:
    """Start the query on its newest revision if it should have run before the procedure."""
    if context.result.get("ran") and context.query.discovered:
        _start_script(context, context.operation)
    elif context.result.get("ran"):
        operations.request_start(
            query=context.query,
            actor=context.operation.actor,
            now=context.now,
            within=context.operation,
        )
    return DONE


def start_after_undo(context: StepContext) -> None:
    """Start a query that the unfinished procedure stopped, unless a user has decided otherwise."""
    stopped = context.operation.children.filter(verb="stop").order_by("-generation").first()
    if stopped is None or not context.result.get("ran"):
        return
    if context.query.discovered:
        application = context.query.application
        application.refresh_from_db()
        if application.generation == stopped.generation and application.archived_at is None:
            _start_script(context, None)
        return
    if context.query.generation == stopped.generation and context.query.archived_at is None:
        operations.request_start(
            query=context.query, actor=context.operation.actor, now=context.now, keep_params=True
        )


def _stop_script(context: StepContext) -> StepResult:
    """Stop the script that starts the query, and wait until nothing of the query runs."""
    query, script = context.query, Script.objects.get(application=context.query.application_id)
    running = script.desired == Desired.RUNNING
    if "ran" not in context.result:
        remember(context, ran=running)
    if running:
        application_operations.request_script_stop(
            application=query.application,
            mode=StopMode.GRACEFUL,
            actor=context.operation.actor,
            now=context.now,
            within=context.operation,
        )
    elif script.phase in STOPPED_PHASES and query.phase in STOPPED_PHASES and not _has_run(query):
        return DONE
    return waiting_for(query)


def _start_script(context: StepContext, within: Operation | None) -> None:
    application_operations.request_script_start(
        application=context.query.application,
        actor=context.operation.actor,
        now=context.now,
        within=within,
    )


def _has_run(query: Query) -> bool:
    return Run.objects.filter(query=query, outcome=RunOutcome.OPEN).exists()
