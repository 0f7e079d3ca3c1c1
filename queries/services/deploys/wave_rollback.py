"""Roll a wave back: try former definitions on the current state, then write and restart them.

Offsets continue, and no checkpoint is replaced. If a former definition cannot continue from the
state that the new one has written, the former one becomes the newest again without a restart, so
that the query runs on it after the rewind to the snapshot that the receipt offers.
"""

from collections.abc import Sequence

from queries.domain.deploys.judging import FORMER, OK, TODO, ChangeOutcome, ChangeResult, bad
from queries.domain.deploys.states import ChangeKind, ChangeState, DeployStage
from queries.domain.reasons import Because, Detail
from queries.domain.sparks import spark_of
from queries.domain.sparks.upgrade import cannot_go_back
from queries.models.definitions import Query
from queries.models.deploys.receipts import DeployChange
from queries.selectors.definitions.written_by import written_of
from queries.selectors.deploys.evidence import has_started, query_of
from queries.services.definitions.code_rights import parsed
from queries.services.deploys import former_definitions
from queries.services.deploys.judgement import judged_back
from queries.services.deploys.restarts import restart_on_former_definition, restart_unit, unit_of
from queries.services.deploys.steps import DeployStep, followed, note, operations_with
from queries.services.probes.preflight import begin_trial
from queries.services.supervision.offset_gaps import gap_problems


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
    if former_definitions.is_changed(change):
        reason = Because(Detail.CHANGED_MEANWHILE, {"query": change.name})
        note(change, state=ChangeState.KEPT, reason=reason)
        return True
    note(change, state=ChangeState.GOING_BACK)
    if change.kind != ChangeKind.QUERY or change.from_revision is None or not has_started(change):
        return True
    query = query_of(change)
    number = former_definitions.application_revision(step.changes, change)
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
    """Return why the Spark of an application's revision cannot continue a query's checkpoint.

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


def look_at_write(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether the former definition is the newest again."""
    is_left = (
        not change.is_written
        or change.from_revision is None
        or former_definitions.is_changed(change)
    )
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
        former_definitions.restore(change, **step.by)
    return True


# --- restarts -----------------------------------------------------------------------------


def look_at_restart(step: DeployStep, change: DeployChange) -> ChangeResult:
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


def look_at_judgement(step: DeployStep, change: DeployChange) -> ChangeResult:
    """Return whether everything that ran before runs again on its former definition."""
    if result := _result_without_rollback(change):
        return result
    if change.state == ChangeState.ROLLED_BACK or not change.ran:
        return OK
    good = FORMER.model_copy(update={"deadline_minutes": step.good.deadline_minutes})
    return judged_back(step, change, good)
