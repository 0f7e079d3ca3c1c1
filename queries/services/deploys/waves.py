"""Roll a wave out, from preflights to its evaluation, and back to its former definitions.

Offsets continue, and no checkpoint is replaced. If a former definition cannot continue from the
state that the new one has written, the former one becomes the newest again without a restart, so
that the query runs on it after the rewind to the snapshot that the report offers.
"""

from collections.abc import Sequence
from typing import Any

from queries.domain.deploys.course import FORMER, OK, TODO, ChangeOutcome, ChangeResult, bad
from queries.domain.deploys.request import ChangeKind, ChangeState, DeployStage
from queries.domain.errors import NotAllowed
from queries.domain.reasons import Because, Detail
from queries.domain.sparks import cannot_go_back, spark_of
from queries.domain.states import OperationOutcome
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Query
from queries.models.deploys import DeployChange
from queries.models.history import Operation
from queries.selectors.definitions.sparks import written_of
from queries.selectors.deploys.evidence import has_started, lag_before, query_of
from queries.services.checkpoints.snapshot import request_snapshot
from queries.services.definitions.rights import parsed
from queries.services.deploys import rollback, steps
from queries.services.deploys.restarts import (
    judged,
    judged_back,
    ran_before,
    restart_on_former_definition,
    restart_on_new_definition,
    restart_unit,
    unit_of,
)
from queries.services.deploys.steps import (
    DeployStep,
    followed,
    note,
    operations_with,
    refused,
    settled,
)
from queries.services.probes.preflight import begin_trial
from queries.services.supervision.start_checks import could_not_try, gap_problems

#: Parallel preflights per deploy: each takes a start slot and a JVM's memory.
PREFLIGHTS_AT_ONCE = 2


# --- preflight ----------------------------------------------------------------------------


def look_at_preflight(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether a query's new definition has passed a preflight.

    One that could not try the checkpoint is not enough if the application requires a preflight: the
    restart would be refused after everything has been written.
    """
    if result := settled(change):
        return result
    if change.kind != ChangeKind.QUERY or not change.spec or change.from_revision is None:
        return OK
    if DeployStage.PREFLIGHT not in change.operations:
        return TODO
    result = followed(change, DeployStage.PREFLIGHT)
    if result is not OK or not _requires_preflight(step, change):
        return result
    assert change.query is not None, "what has a revision is there"
    to_be = _application_to_be(step.changes, change)
    untried = could_not_try(change.query, change.spec, spark_of(to_be) if to_be else None)
    return result if untried is None else bad(refused(untried))


def _requires_preflight(step: DeployStep, change: DeployChange) -> bool:
    """Return whether a query's application will require a preflight once the deploy is written."""
    spec = _application_to_be(step.changes, change)
    if spec is None and change.query is not None:
        spec = change.query.application.revisions.order_by("-number")[0].spec
    return bool(spec and spec.get("require_preflight"))


def begin_preflights(step: DeployStep, todo: Sequence[DeployChange]) -> bool:
    """Begin one query's preflight with its application's new definition, if a slot is available."""
    begun = [change for change in step.changes if DeployStage.PREFLIGHT in change.operations]
    open_ones = Operation.objects.filter(
        uuid__in=[change.operations[DeployStage.PREFLIGHT] for change in begun],
        outcome=OperationOutcome.OPEN,
    ).count()
    if open_ones >= PREFLIGHTS_AT_ONCE:
        return False
    change = todo[0]
    assert change.query is not None, "what has a revision is there"
    trial = begin_trial(
        query=change.query,
        spec=change.spec,
        application_spec=_application_to_be(step.changes, change),
        **step.by,
    )
    note(
        change,
        operations=operations_with(change, DeployStage.PREFLIGHT, trial),
        state=ChangeState.TRIED,
    )
    return True


def _application_to_be(
    changes: Sequence[DeployChange], change: DeployChange
) -> dict[str, Any] | None:
    """Return the new definition of a query's application; None if the deploy does not change it."""
    for other in changes:
        if other.kind == ChangeKind.APPLICATION and other.application_id == change.application_id:
            return {name: setting for name, setting in other.spec.items() if name != "pools"}
    return None


# --- snapshots ----------------------------------------------------------------------------


def look_at_snapshot(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether a snapshot of the checkpoint from before the wave exists."""
    if result := settled(change):
        return result
    if change.query_id is None or not change.runs or "no_snapshot" in change.evidence:
        return OK
    if DeployStage.SNAPSHOT not in change.operations:
        return TODO
    return followed(change, DeployStage.SNAPSHOT)


def take_snapshot(step: DeployStep, todo: Sequence[DeployChange]) -> bool:
    """Request a snapshot of one query, pinned for the duration of the deploy."""
    change = todo[0]
    assert change.query is not None, "what is not there has no checkpoint"
    why = f"before deploy {str(step.deploy.uuid)[:8]}"
    try:
        operation = request_snapshot(query=change.query, reason=why, pinned=True, **step.by)
    except NotAllowed as error:  # not on a local disk, or nothing committed
        evidence = {**change.evidence, "no_snapshot": str(error)}
        note(change, evidence=evidence, state=ChangeState.SAVED)
        return True
    note(
        change,
        operations=operations_with(change, DeployStage.SNAPSHOT, operation),
        state=ChangeState.SAVED,
    )
    return True


def keep_snapshot(change: DeployChange) -> None:
    """Record the snapshot that a change's operation has taken."""
    if DeployStage.SNAPSHOT in change.operations and change.snapshot_id is None:
        rows = Snapshot.objects.filter(operation__uuid=change.operations[DeployStage.SNAPSHOT])
        note(change, snapshot=rows.first())


# --- definitions --------------------------------------------------------------------------


def look_at_write(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether the new definition has been written."""
    return settled(change) or (OK if change.to_revision is not None else TODO)


def write(step: DeployStep, todo: Sequence[DeployChange]) -> bool:
    """Write the definitions of the wave, either all of them or none."""
    for change in step.changes:
        keep_snapshot(change)
        note(change, ran=ran_before(change))
        if change.query is not None:
            lag = lag_before(change.query.pk, now=step.now)
            note(change, evidence={**change.evidence, "lag_before": lag})
    steps.write(step, todo)
    for change in todo:
        note(change, state=ChangeState.WRITTEN)
    return True


# --- restarts -----------------------------------------------------------------------------


def look_at_restart(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether the restart on the new definition was requested."""
    if result := settled(change):
        return result
    if not change.runs or change.restarted_at is not None:
        return OK
    return TODO


def restart(step: DeployStep, todo: Sequence[DeployChange]) -> bool:
    """Restart one query, or an application with all of its queries."""
    unit = [change for change in unit_of(step.changes, todo[0]) if change.runs]
    for change in restart_unit(step, unit, DeployStage.RESTART, restart_on_new_definition):
        note(change, restarted_at=step.now)  # a user stopped it, as its evaluation says
    for change in unit:
        note(change, state=ChangeState.RESTARTED)
    return True


# --- judgement ----------------------------------------------------------------------------


def look_at_judgement(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether a change works well on the written definition, if it runs."""
    if result := settled(change):
        return result
    return judged(step, change) if change.runs else OK


def _result_without_rollback(change: DeployChange) -> ChangeResult | None:
    """Return the result of a change that cannot be rolled back; None for others."""
    return bad(change.reason) if change.state == ChangeState.KEPT else None


# --- can it be rolled back? ---------------------------------------------------------------


def look_at_trial(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether the former definition can continue from the new one's state and offsets."""
    if result := _result_without_rollback(change):
        return result
    if change.state != ChangeState.GOING_BACK:
        return TODO
    if DeployStage.TRY_BACK not in change.operations:
        return OK
    result = followed(change, DeployStage.TRY_BACK)
    if result.outcome is not ChangeOutcome.BAD:
        return result
    return bad(_not_back(change, Because.of(result.reason.params["about"])))


def try_former(step: DeployStep, todo: Sequence[DeployChange]) -> bool:
    """Try one former definition if the new one may have written anything."""
    change = todo[0]
    if rollback.is_changed(change):
        reason = Because(Detail.CHANGED_MEANWHILE, {"query": change.name})
        note(change, state=ChangeState.KEPT, reason=reason)
        return True
    note(change, state=ChangeState.GOING_BACK)
    if change.kind != ChangeKind.QUERY or change.from_revision is None or not has_started(change):
        return True
    query = query_of(change)
    number = rollback.application_revision(step.changes, change)
    if refused := _no_way_back(query, number):
        about = Because(Detail.STEP, {"note": refused})
        note(change, state=ChangeState.KEPT, reason=_not_back(change, about))
        return True
    if query.discovered:  # its script starts it; no preflight is possible
        return True
    revision = query.revisions.get(number=change.from_revision)
    newest = query.revisions.order_by("-number")[0]
    if problems := gap_problems(query, newest, parsed(revision.spec)):
        about = Because(Detail.STEP, {"note": problems[0].sentence()})
        note(change, state=ChangeState.KEPT, reason=_not_back(change, about))
        return True
    trial = begin_trial(
        query=query,
        spec=revision.spec,
        application_revision=number,
        **step.by,
    )
    note(change, operations=operations_with(change, DeployStage.TRY_BACK, trial))
    return True


def _no_way_back(query: Query, number: int | None) -> str:
    """Return why an application revision's Spark cannot continue a query's checkpoint.

    "" if it may, or if the checkpoint is unknown from here; the preflight then reads it.
    """
    last_written = written_of(query)
    if number is None or last_written is None:
        return ""
    former = query.application.revisions.get(number=number).spec
    return cannot_go_back(last_written, spark_of(former))


def _not_back(change: DeployChange, about: Because) -> Because:
    params = {"query": change.name, "revision": change.from_revision, "about": about.as_json()}
    return Because(Detail.NOT_TRIED_BACK, params)


# --- definitions --------------------------------------------------------------------------


def look_at_write_back(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether the former definition is the newest again."""
    is_left = not change.is_written or change.from_revision is None or rollback.is_changed(change)
    if change.back_revision is None and not is_left:
        return TODO
    return _result_without_rollback(change) or OK


def write_former(step: DeployStep, todo: Sequence[DeployChange]) -> bool:
    """Make all former definitions the newest again; mark neighbours of a kept change as kept."""
    for change in step.changes:
        unit = unit_of(step.changes, change)
        unrollable = next((member for member in unit if member.state == ChangeState.KEPT), None)
        if unrollable is not None and change.state != ChangeState.KEPT:
            note(change, state=ChangeState.KEPT, reason=unrollable.reason)
    for change in todo:
        rollback.restore(change, **step.by)
    return True


# --- restarts -----------------------------------------------------------------------------


def look_at_restart_back(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether the restart on the former definition was requested."""
    if result := _result_without_rollback(change):
        return result
    requested = (
        DeployStage.RESTART_BACK in change.operations or change.state == ChangeState.ROLLED_BACK
    )
    return OK if requested else TODO


def restart_former(step: DeployStep, todo: Sequence[DeployChange]) -> bool:
    """Restart one query, or an application with all its queries; stop those that did not run."""
    unit = unit_of(step.changes, todo[0])
    for change in restart_unit(step, unit, DeployStage.RESTART_BACK, restart_on_former_definition):
        note(change, state=ChangeState.ROLLED_BACK)
    return True


# --- judgement ----------------------------------------------------------------------------


def look_at_judgement_back(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether everything that ran before runs again on its former definition."""
    if result := _result_without_rollback(change):
        return result
    if change.state == ChangeState.ROLLED_BACK or not change.ran:
        return OK
    good = FORMER.model_copy(update={"deadline_minutes": step.good.deadline_minutes})
    return judged_back(step, change, good)
