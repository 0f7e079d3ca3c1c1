"""Decide what a deploy does next, from what is known of each change in its stage.

Forward: preflights (where they are asked for), then each wave: snapshots, definitions, restarts,
judgement; at last the rest of the set. The first bad result ends the way forward. The way back
tries each former definition on the state that is there, writes those that can go on from it,
restarts, and waits until they run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from queries.domain.deploys.judging import Outcome, Result
from queries.domain.deploys.states import BACK, OF_A_WAVE, DeployState, Stage
from queries.domain.reasons import NOTHING, Because


@dataclass(frozen=True, slots=True)
class Course:
    """How a deploy is to go."""

    waves: int
    preflight: bool
    rolls_back: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a deploy is."""

    stage: Stage
    wave: int = 0  # from 1; 0 outside of a wave


@dataclass(frozen=True, slots=True)
class Move:
    """Where a deploy goes: another place, or its end; neither where it stays."""

    place: Place | None = None
    state: DeployState | None = None
    reason: Because = NOTHING  # why it goes back, or ended so


STAY = Move()


def first_place(course: Course) -> Place:
    """Return where a deploy begins."""
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
    """Return where a deploy goes from a place; `is_written` says whether any definition is.

    `cancelled` says who cancelled it. A result that is bad on the way back ends in FAILED, after
    the others have gone back.
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
    """Return where a deploy goes that does not go on."""
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
