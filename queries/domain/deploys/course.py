"""Decide what a deploy does next, from the result of each change in its stage.

Forward: preflights (if requested), then for each wave: snapshots, definitions, restarts,
evaluation; finally the rest of the set. The first bad result starts the rollback. The rollback
tries each former definition on the current state, writes those that can continue from that state,
restarts their queries and applications, and waits until these run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from queries.domain.deploys.judging import Outcome, Result
from queries.domain.deploys.states import BACK, OF_A_WAVE, DeployState, Stage
from queries.domain.reasons import NOTHING, Because


@dataclass(frozen=True, slots=True)
class Course:
    """The options of a deploy."""

    waves: int
    preflight: bool
    rolls_back: bool


@dataclass(frozen=True, slots=True)
class Place:
    """How far a deploy has progressed."""

    stage: Stage
    wave: int = 0  # from 1; 0 outside of a wave


@dataclass(frozen=True, slots=True)
class Move:
    """The next step of a deploy, or how the deploy ends; neither if its step does not change."""

    place: Place | None = None
    state: DeployState | None = None
    reason: Because = NOTHING  # why it rolls back, or ended this way


STAY = Move()


def first_place(course: Course) -> Place:
    """Return the first step of a deploy."""
    if course.preflight and course.waves:
        return Place(Stage.PREFLIGHT)
    return _wave(course, 1)


def move(
    course: Course,
    place: Place,
    results: Sequence[Result],
    *,
    is_written: bool,
    cancelled: Because = NOTHING,
) -> Move:
    """Return a deploy's next step; `is_written` says whether any definition has been written.

    `cancelled` says who cancelled it. A bad result during the rollback ends the deploy in FAILED,
    after the other changes have been rolled back.
    """
    if place.stage in BACK:
        return _back(place, results, cancelled)
    failed = next((one.reason for one in results if one.outcome is Outcome.BAD), NOTHING)
    if cancelled or failed:
        return _turn(course, failed or cancelled, is_written=is_written, cancelled=cancelled)
    if any(one.outcome is not Outcome.OK for one in results):
        return STAY
    if place.stage is Stage.SETTLE:
        return Move(state=DeployState.SUCCEEDED)
    if place.stage is Stage.PREFLIGHT:
        return Move(_wave(course, 1))
    at = OF_A_WAVE.index(place.stage)
    if at + 1 < len(OF_A_WAVE):
        return Move(Place(OF_A_WAVE[at + 1], place.wave))
    return Move(_wave(course, place.wave + 1))


def _wave(course: Course, number: int) -> Place:
    return Place(OF_A_WAVE[0], number) if number <= course.waves else Place(Stage.SETTLE)


def _turn(course: Course, reason: Because, *, is_written: bool, cancelled: Because) -> Move:
    """Return the next step of a deploy that cannot continue forward."""
    if is_written and course.rolls_back:
        return Move(Place(BACK[0]), reason=reason)
    return Move(state=DeployState.CANCELLED if cancelled else DeployState.FAILED, reason=reason)


def _back(place: Place, results: Sequence[Result], cancelled: Because) -> Move:
    if any(one.outcome in (Outcome.TODO, Outcome.WAITS) for one in results):
        return STAY
    at = BACK.index(place.stage)
    if at + 1 < len(BACK):
        return Move(Place(BACK[at + 1]))
    failed = next((one.reason for one in results if one.outcome is Outcome.BAD), NOTHING)
    if failed:
        return Move(state=DeployState.FAILED, reason=failed)
    return Move(state=DeployState.CANCELLED if cancelled else DeployState.ROLLED_BACK)
