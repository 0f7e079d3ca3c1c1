"""Restart a unit, forward and back: one query, or an application with its driver.

Everything that belongs to the application (its script, the script's queries, unchanged queries)
restarts with its driver, through the application's own operation. A restart is requested separately
for a query whose definition changes, or that is held and that nothing else would start.
"""

from collections.abc import Callable, Sequence

from queries.domain.deploys.states import ChangeKind, DeployStage
from queries.domain.states import FAILED_PHASES, Desired, Phase, StopMode
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.deploys.receipts import DeployChange
from queries.models.history import Operation
from queries.models.installation import Installation
from queries.selectors.deploys.evidence import query_of
from queries.services.deploys.rollback import run_newest
from queries.services.deploys.steps import DeployStep, note, operations_with
from queries.services.supervision import operations
from queries.services.supervision.application_operations import (
    request_application_restart,
    request_script_stop,
)

RestartRequest = Callable[[DeployStep, DeployChange], Operation | None]


def unit_of(changes: Sequence[DeployChange], first: DeployChange) -> list[DeployChange]:
    """Return the changes that restart together with a change, the application's own one last."""
    if not first.with_driver:
        return [first]
    unit = [
        change
        for change in changes
        if change.with_driver and change.application_id == first.application_id
    ]
    return sorted(unit, key=lambda change: change.kind == ChangeKind.APPLICATION)


def restart_unit(
    step: DeployStep, unit: Sequence[DeployChange], stage: DeployStage, request: RestartRequest
) -> list[DeployChange]:
    """Request a unit's restart and record it on each change; return changes that are not restarted.

    A change without an operation of its own restarts with its application's driver.
    """
    requested = {change.pk: request(step, change) for change in unit}
    epoch = Installation.get().last_epoch  # all locks are held: later epochs are higher
    own = next((member for member in unit if member.kind == ChangeKind.APPLICATION), None)
    driver = requested[own.pk] if own is not None else None
    left = []
    for change in unit:
        operation = requested[change.pk] or (driver if _goes_along(change) else None)
        if operation is None:
            left.append(change)
            continue
        stage_operations = operations_with(change, stage, operation)
        note(change, operations=stage_operations, restarted_at=step.now, restart_epoch=epoch)
    return left


def _goes_along(change: DeployChange) -> bool:
    if change.kind != ChangeKind.QUERY or not change.with_driver or change.is_written:
        return False
    query = query_of(change)
    return query.archived_at is None and (query.desired == Desired.RUNNING or query.discovered)


def restart_on_new_definition(step: DeployStep, change: DeployChange) -> Operation | None:
    """Request that a change run on the definition that the deploy has written."""
    if not change.runs:
        return None
    if change.kind == ChangeKind.APPLICATION:
        assert change.application is not None, "it was written"
        return request_application_restart(
            application=change.application, **step.by, of_deploy=True
        )
    query = query_of(change)
    return _run_written(step, query) if change.is_written else _again(step, query)


def restart_on_former_definition(step: DeployStep, change: DeployChange) -> Operation | None:
    """Request that a change run as before the deploy; queries that a user stopped stay stopped."""
    if change.restarted_at is None:  # it never ran on the new definition
        return None
    if change.kind == ChangeKind.APPLICATION:
        assert change.application is not None, "it was restarted"
        return _application_back(step, change, change.application)
    query = query_of(change)
    if query.desired != Desired.RUNNING or query.archived_at is not None:
        return None
    if not change.was_to_run:
        return operations.request_stop(query=query, mode=StopMode.GRACEFUL, **step.by)
    return _run_written(step, query) if change.is_written else _again(step, query)


def _application_back(
    step: DeployStep, change: DeployChange, application: Application
) -> Operation | None:
    script = Script.objects.filter(application=application).first()
    if script is not None and not change.was_to_run:
        mode = StopMode.GRACEFUL
        return request_script_stop(application=application, mode=mode, **step.by)
    completed = script is not None and script.phase == Phase.COMPLETED
    if script is not None and script.desired != Desired.RUNNING and not completed:
        return None
    return request_application_restart(application=application, **step.by, of_deploy=True)


def _run_written(step: DeployStep, query: Query) -> Operation:
    """Run the written revision; the request was rejected if a state change was not accepted."""
    return run_newest(query, **step.by, accept_state_change=True)


def _again(step: DeployStep, query: Query) -> Operation | None:
    """Retry a query that is held or waiting after a failure, without changing its definition."""
    if query.discovered or query.phase not in FAILED_PHASES:
        return None
    return operations.request_again(query=query, **step.by)
