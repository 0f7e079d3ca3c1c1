"""Decide what a deploy does next, from the result of each change in its stage.

Forward: preflights (if requested), then for each wave: snapshots, definitions, restarts,
evaluation; finally the rest of the set. The first bad result starts the rollback. The rollback
tries each former definition on the current state, writes those that can continue from that state,
restarts their queries and applications, and waits until these run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from queries.domain.deploys.judging import ChangeOutcome, ChangeResult
from queries.domain.deploys.states import OF_A_WAVE, ROLLBACK_STAGES, DeployStage, DeployState
from queries.domain.reasons import NOTHING, Because


@dataclass(frozen=True, slots=True)
class Stages:
    """The options of a deploy."""

    waves: int
    preflight: bool
    rolls_back: bool


@dataclass(frozen=True, slots=True)
class Position:
    """How far a deploy has progressed."""

    stage: DeployStage
    wave: int = 0  # from 1; 0 outside of a wave


@dataclass(frozen=True, slots=True)
class NextStep:
    """The next step of a deploy, or how the deploy ends; neither if its step does not change."""

    position: Position | None = None
    state: DeployState | None = None
    reason: Because = NOTHING  # why it rolls back, or ended this way


STAY = NextStep()


def first_position(stages: Stages) -> Position:
    """Return the first step of a deploy."""
    if stages.preflight and stages.waves:
        return Position(DeployStage.PREFLIGHT)
    return _wave(stages, 1)


def move(
    stages: Stages,
    position: Position,
    results: Sequence[ChangeResult],
    *,
    is_written: bool,
    cancelled: Because = NOTHING,
) -> NextStep:
    """Return a deploy's next step; `is_written` says whether any definition has been written.

    `cancelled` says who cancelled it. A bad result during the rollback ends the deploy in FAILED,
    after the other changes have been rolled back.
    """
    if position.stage in ROLLBACK_STAGES:
        return _back(position, results, cancelled)
    failed = next(
        (result.reason for result in results if result.outcome is ChangeOutcome.BAD), NOTHING
    )
    if cancelled or failed:
        return _end_or_roll_back(
            stages, failed or cancelled, is_written=is_written, cancelled=cancelled
        )
    if any(result.outcome is not ChangeOutcome.OK for result in results):
        return STAY
    if position.stage is DeployStage.SETTLE:
        return NextStep(state=DeployState.SUCCEEDED)
    if position.stage is DeployStage.PREFLIGHT:
        return NextStep(_wave(stages, 1))
    at = OF_A_WAVE.index(position.stage)
    if at + 1 < len(OF_A_WAVE):
        return NextStep(Position(OF_A_WAVE[at + 1], position.wave))
    return NextStep(_wave(stages, position.wave + 1))


def _wave(stages: Stages, number: int) -> Position:
    return (
        Position(OF_A_WAVE[0], number) if number <= stages.waves else Position(DeployStage.SETTLE)
    )


def _end_or_roll_back(
    stages: Stages, reason: Because, *, is_written: bool, cancelled: Because
) -> NextStep:
    """Return the next step of a deploy that cannot continue forward."""
    if is_written and stages.rolls_back:
        return NextStep(Position(ROLLBACK_STAGES[0]), reason=reason)
    return NextStep(state=DeployState.CANCELLED if cancelled else DeployState.FAILED, reason=reason)


def _back(position: Position, results: Sequence[ChangeResult], cancelled: Because) -> NextStep:
    if any(result.outcome in (ChangeOutcome.TODO, ChangeOutcome.WAITS) for result in results):
        return STAY
    at = ROLLBACK_STAGES.index(position.stage)
    if at + 1 < len(ROLLBACK_STAGES):
        return NextStep(Position(ROLLBACK_STAGES[at + 1]))
    failed = next(
        (result.reason for result in results if result.outcome is ChangeOutcome.BAD), NOTHING
    )
    if failed:
        return NextStep(state=DeployState.FAILED, reason=failed)
    return NextStep(state=DeployState.CANCELLED if cancelled else DeployState.ROLLED_BACK)
