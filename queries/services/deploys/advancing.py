"""Advance deploys: look at the state, decide on an action, and carry it out, one at a time.

1. Each change of the current stage is examined (`ChangeResult`).
2. If the stage has not requested anything yet, its action makes the request, in one transaction.
3. Otherwise `domain.deploys.course.move` decides on the next stage, and one transaction writes it.

Any worker can take the next step. The transaction that does the work also records it (`steps`), so
a worker that dies between two steps does not leave anything half done.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane import fail_points
from controlplane.nudge import changed
from listeners.loops.backlogs import loop_errors
from queries.domain.access import Act
from queries.domain.deploys import course
from queries.domain.deploys.course import ChangeOutcome, ChangeResult, NextStep, Position, Stages
from queries.domain.deploys.request import (
    FREEING,
    ROLLBACK_STAGES,
    ChangeState,
    DeployStage,
    DeployState,
    OnFailure,
)
from queries.domain.errors import Conflict, HeadgateError, NotAllowed, Unavailable
from queries.domain.reasons import NOTHING, Because, Detail
from queries.models.checkpoints import Snapshot
from queries.models.deploys import Deploy, DeployChange
from queries.services.access.audit import asked_by, record_act
from queries.services.deploys import steps, waves
from queries.services.deploys.steps import DeployStep, Overtaken, asker_of, note, refused

logger = logging.getLogger(__name__)
_loop = loop_errors("deploys", logger)

#: Steps that a worker takes of one deploy before it turns to the others.
STEPS_AT_ONCE = 500

Action = Callable[[DeployStep, Sequence[DeployChange]], bool]


@dataclass(frozen=True, slots=True)
class _Work:
    """The functions that do the work of one stage."""

    look: Callable[[DeployStep, DeployChange], ChangeResult]
    act: Action | None = None  # returns whether it did anything; None if there is nothing to do
    prepare: Callable[[DeployStep], Any] | None = None  # slow work, done before the transaction


_WORK: dict[DeployStage, _Work] = {
    DeployStage.PREFLIGHT: _Work(waves.look_at_preflight, waves.begin_preflights),
    DeployStage.SNAPSHOT: _Work(waves.look_at_snapshot, waves.take_snapshot),
    DeployStage.WRITE: _Work(waves.look_at_write, waves.write, steps.prepare_wave),
    DeployStage.RESTART: _Work(waves.look_at_restart, waves.restart),
    DeployStage.JUDGE: _Work(waves.look_at_judgement),
    DeployStage.TRY_BACK: _Work(waves.look_at_trial, waves.try_former),
    DeployStage.WRITE_BACK: _Work(waves.look_at_write_back, waves.write_former),
    DeployStage.RESTART_BACK: _Work(waves.look_at_restart_back, waves.restart_former),
    DeployStage.JUDGE_BACK: _Work(waves.look_at_judgement_back),
}


def due_deploys() -> list[int]:
    """Return the deploys that have not ended, oldest first."""
    rows = Deploy.objects.filter(ended_at__isnull=True).order_by("created_at")
    return list(rows.values_list("pk", flat=True))


def advance_all(*, now: datetime) -> None:
    """Take all steps that are possible now, for each deploy independently."""
    for deploy_id in due_deploys():
        with _loop.isolate_errors(f"deploy number {deploy_id}"):
            advance(deploy_id, now=now)


def advance(deploy_id: int, *, now: datetime) -> None:
    """Take as many steps of one deploy as are possible now."""
    for _ in range(STEPS_AT_ONCE):
        deploy = Deploy.objects.get(pk=deploy_id)
        if deploy.ended_at is not None:
            return
        try:
            with asked_by(asker_of(deploy)):
                if not _step(deploy, now):
                    return
        except Overtaken:
            continue


def _step(deploy: Deploy, now: datetime) -> bool:
    """Take one step; return whether another may be possible now."""
    if deploy.state == DeployState.PENDING:
        step = DeployStep(deploy, [], now)
        return _go(step, NextStep(course.first_position(_course(deploy))), [])
    position = Position(DeployStage(deploy.stage), deploy.wave)
    if position.stage is DeployStage.SETTLE:
        return _settle(DeployStep(deploy, [], now), position)
    step, work = DeployStep(deploy, _concerned(deploy, position), now), _WORK[position.stage]
    results = [work.look(step, change) for change in step.changes]
    stops = position.stage not in ROLLBACK_STAGES and (
        deploy.cancelled_by or any(result.outcome is ChangeOutcome.BAD for result in results)
    )
    todo = [
        change
        for change, result in zip(step.changes, results, strict=True)
        if result.outcome is ChangeOutcome.TODO
    ]
    if todo and not stops:
        return _act(step, work, position, todo)
    return _go(step, _move_of(deploy, position, results), results)


def _settle(step: DeployStep, position: Position) -> bool:
    """Write the rest of the set and finish with success, in one transaction; else roll back."""
    result, rest = course.OK, None
    if not step.deploy.cancelled_by:
        try:
            step.prepared = steps.prepare_rest(step)
            rest = steps.write_rest
        except HeadgateError as error:
            result = course.bad(refused(error))
    try:
        return _go(step, _move_of(step.deploy, position, [result]), [], rest)
    except (Conflict, Unavailable) as error:
        if not step.is_late:
            return False
        return _go(step, _move_of(step.deploy, position, [course.bad(refused(error))]), [])


def _move_of(deploy: Deploy, position: Position, results: Sequence[ChangeResult]) -> NextStep:
    return course.move(
        _course(deploy),
        position,
        results,
        is_written=deploy.changes.filter(to_revision__isnull=False, is_written=True).exists(),
        cancelled=_cancelled(deploy),
    )


def _course(deploy: Deploy) -> Stages:
    return Stages(deploy.waves, deploy.preflight, deploy.on_failure == OnFailure.ROLLBACK)


def _cancelled(deploy: Deploy) -> Because:
    by = deploy.cancelled_by
    return Because(Detail.CANCELLED_BY, {"actor": by}) if by else NOTHING


def _concerned(deploy: Deploy, position: Position) -> list[DeployChange]:
    """Return a stage's changes: those of its wave, all changes, or all that were written."""
    rows = deploy.changes.select_related("query", "application")
    if position.stage in ROLLBACK_STAGES:
        rows = rows.filter(to_revision__isnull=False)
    elif position.wave:
        rows = rows.filter(wave=position.wave)
    return list(rows)


def _act(step: DeployStep, work: _Work, position: Position, todo: Sequence[DeployChange]) -> bool:
    """Request whatever the stage still needs; return whether the action is complete."""
    assert work.act is not None, "only what a stage acts on is to do"
    fail_points.reach(f"deploy.{position.stage}.before")
    try:
        step.prepared = work.prepare(step) if work.prepare else None
        with transaction.atomic():
            step.claim()
            done = work.act(step, todo)
            changed("deploys", f"deploy:{step.deploy.pk}")
    except HeadgateError as error:
        return _refused(step, position, todo[0], error)
    except Overtaken:
        raise
    except Exception as error:  # an unavailable database is retried, up to the wave's deadline
        if not step.is_late:
            raise
        logger.exception("stage %s of deploy %s", position.stage, step.deploy.uuid)
        way_out = "See the worker's log."
        failure = NotAllowed(f"{type(error).__name__}: {error}", way_out=way_out)
        return _refused(step, position, todo[0], failure)
    fail_points.reach(f"deploy.{position.stage}.after")
    return done


def _refused(
    step: DeployStep, position: Position, change: DeployChange, error: HeadgateError
) -> bool:
    """Record why an action was rejected; retry while the cause is temporary and time is left.

    Another worker may already have taken the action, which may be the cause. In that case, the
    claim fails.
    """
    passes = isinstance(error, Conflict | Unavailable) and not step.is_late
    with transaction.atomic():
        step.claim()
        fresh = DeployChange.objects.get(pk=change.pk)
        if passes:
            note(fresh, reason=refused(error))
        else:
            state = ChangeState.KEPT if position.stage in ROLLBACK_STAGES else ChangeState.BAD
            note(fresh, state=state, reason=refused(error))
    return not passes


def _go(
    step: DeployStep,
    move: NextStep,
    results: Sequence[ChangeResult],
    also: Callable[[DeployStep], None] | None = None,
) -> bool:
    """Write the results and the deploy's next stage; return whether the deploy moved.

    `also` is called in the same transaction.
    """
    stage = step.deploy.stage or "begin"
    moves = move.position is not None or move.state is not None
    if not moves and not any(map(_is_news, step.changes, results)):
        return False
    fail_points.reach(f"deploy.{stage}.leave.before")
    with transaction.atomic():
        step.claim()
        for change, result in zip(step.changes, results, strict=True):
            _note_result(change, result, DeployStage(stage))
        if also is not None:
            also(step)
        _move(step, move)
        changed("deploys", f"deploy:{step.deploy.pk}")
    fail_points.reach(f"deploy.{stage}.leave.after")
    return moves


def _is_news(change: DeployChange, result: ChangeResult) -> bool:
    stored_change = DeployChange.objects.only("reason", "evidence", "first_batch").get(pk=change.pk)
    return (stored_change.reason, stored_change.evidence, stored_change.first_batch) != (
        result.reason,
        change.evidence,
        change.first_batch,
    )


#: A change's state once its stage has a good result.
_GOOD = {DeployStage.JUDGE: ChangeState.GOOD, DeployStage.JUDGE_BACK: ChangeState.ROLLED_BACK}


def _note_result(change: DeployChange, result: ChangeResult, stage: DeployStage) -> None:
    if result.outcome is ChangeOutcome.BAD:
        change.state = ChangeState.KEPT if stage in ROLLBACK_STAGES else ChangeState.BAD
    elif result.outcome is ChangeOutcome.OK and stage in _GOOD:
        change.state = _GOOD[stage]
    change.reason = result.reason
    change.save(update_fields=["state", "reason", "evidence", "first_batch"])


def _move(step: DeployStep, move: NextStep) -> None:
    deploy = step.deploy
    if move.state is None and move.position is None:
        return
    _note_span(deploy, move.position.wave if move.position else 0, step.now)
    if move.state is not None:
        _end(deploy, move.state, move.reason, now=step.now)
        return
    assert move.position is not None
    if move.reason:
        deploy.reason = move.reason
    deploy.state, deploy.stage_since = DeployState.RUNNING, step.now
    deploy.stage, deploy.wave = move.position.stage, move.position.wave
    deploy.save(update_fields=["state", "reason", "stage", "wave", "stage_since", "spans"])


def _end(deploy: Deploy, state: DeployState, reason: Because, *, now: datetime) -> None:
    """Close a deploy in the transaction of its last step: its report, and what it held."""
    if reason and deploy.reason and reason != deploy.reason:  # the rollback failed too
        params = {"why": deploy.reason.as_json(), "about": reason.as_json()}
        reason = Because(Detail.NOT_BACK, params)
    deploy.reason = reason or deploy.reason
    deploy.state, deploy.stage, deploy.ended_at = state, DeployStage.OVER, now
    deploy.save(update_fields=["state", "reason", "stage", "ended_at", "spans"])
    untouched = deploy.changes.filter(to_revision=None)
    untouched.exclude(state=ChangeState.BAD).update(state=ChangeState.LEFT)
    deploy.changes.update(over=True)
    if state in FREEING:
        snapshots = deploy.changes.filter(snapshot__isnull=False).values("snapshot")
        Snapshot.objects.filter(pk__in=snapshots).update(pinned=False)
    subject, about = deploy.owner or str(deploy.uuid)[:8], str(deploy.reason)
    details = {"deploy": deploy.uuid, "state": state, "reason": about}
    record_act(Act.DEPLOY, actor=deploy.actor, now=now, subject=subject, **details)


def _note_span(deploy: Deploy, wave: int, now: datetime) -> None:
    """Record that the previous wave has ended and another begins; 0 means no wave."""
    if wave == deploy.wave:
        return
    if deploy.wave and deploy.spans:
        deploy.spans[-1][1] = now.isoformat()
    if wave:
        deploy.spans.append([now.isoformat(), None])
