"""Where a deploy goes: forward wave by wave, back at the first bad result, and to which end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.deploys.course import (
    OK,
    STAY,
    TODO,
    ChangeResult,
    NextStep,
    Position,
    Stages,
    bad,
    first_position,
    move,
    waits,
)
from queries.domain.deploys.request import ROLLBACK_STAGES, DeployStage, DeployState
from queries.domain.reasons import NOTHING, Because, Detail

TWO = Stages(waves=2, preflight=True, rolls_back=True)
WHY = Because(Detail.STEP, {"note": "it failed"})
OLGA = Because(Detail.CANCELLED_BY, {"actor": "olga"})


def goes(
    place: Position, *results: ChangeResult, written: bool = True, course: Stages = TWO
) -> NextStep:
    return move(course, place, results, is_written=written)


def test_the_whole_way_forward() -> None:
    seen, place = [], first_position(TWO)
    while True:
        seen.append((place.stage.value, place.wave))
        went = goes(place, OK)
        if went.position is None:
            break
        place = went.position
    wave = ["snapshot", "write", "restart", "judge"]
    waves = [(stage, number) for number in (1, 2) for stage in wave]
    assert seen == [("preflight", 0), *waves, ("settle", 0)]
    assert went == NextStep(state=DeployState.SUCCEEDED)


@pytest.mark.parametrize(
    ("course", "place"),
    [
        (Stages(2, preflight=False, rolls_back=True), Position(DeployStage.SNAPSHOT, 1)),
        (Stages(0, preflight=True, rolls_back=True), Position(DeployStage.SETTLE)),
    ],
)
def test_where_it_begins(course: Stages, place: Position) -> None:
    assert first_position(course) == place


@pytest.mark.parametrize("result", [waits(), TODO])
@pytest.mark.parametrize("stage", [DeployStage.JUDGE, DeployStage.TRY_BACK, DeployStage.JUDGE_BACK])
def test_it_stays_while_one_is_not_done(stage: DeployStage, result: ChangeResult) -> None:
    assert goes(Position(stage, 1), OK, result) == STAY


def test_the_first_bad_result_turns_it_back_whatever_the_others_wait_for() -> None:
    went = goes(Position(DeployStage.JUDGE, 2), waits(), bad(WHY), OK)
    assert went == NextStep(Position(DeployStage.TRY_BACK), reason=WHY)


def test_nothing_written_is_nothing_to_roll_back() -> None:
    went = goes(Position(DeployStage.PREFLIGHT), bad(WHY), written=False)
    assert went == NextStep(state=DeployState.FAILED, reason=WHY)


def test_where_it_is_to_stop_nothing_goes_back() -> None:
    stop = Stages(2, preflight=False, rolls_back=False)
    went = goes(Position(DeployStage.JUDGE, 1), bad(WHY), course=stop)
    assert went == NextStep(state=DeployState.FAILED, reason=WHY)


@pytest.mark.parametrize(
    ("written", "rolls_back", "went"),
    [
        (False, True, NextStep(state=DeployState.CANCELLED, reason=OLGA)),
        (True, False, NextStep(state=DeployState.CANCELLED, reason=OLGA)),
        (True, True, NextStep(Position(DeployStage.TRY_BACK), reason=OLGA)),
    ],
)
def test_cancelled(written: bool, rolls_back: bool, went: NextStep) -> None:
    course = Stages(2, preflight=False, rolls_back=rolls_back)
    place = Position(DeployStage.SNAPSHOT, 1)
    assert move(course, place, [TODO], is_written=written, cancelled=OLGA) == went


def test_the_whole_way_back() -> None:
    seen, place = [], Position(ROLLBACK_STAGES[0])
    while True:
        seen.append(place.stage)
        went = goes(place, OK, OK)
        if went.position is None:
            break
        place = went.position
    assert tuple(seen) == ROLLBACK_STAGES
    assert went == NextStep(state=DeployState.ROLLED_BACK)


def test_one_that_cannot_go_back_lets_the_others_and_fails_at_the_end() -> None:
    assert goes(Position(DeployStage.TRY_BACK), bad(WHY), OK).position == Position(
        DeployStage.WRITE_BACK
    )
    went = goes(Position(DeployStage.JUDGE_BACK), bad(WHY), OK)
    assert went == NextStep(state=DeployState.FAILED, reason=WHY)


def test_a_cancelled_one_that_is_back_is_cancelled() -> None:
    went = move(TWO, Position(DeployStage.JUDGE_BACK), [OK], is_written=True, cancelled=OLGA)
    assert went == NextStep(state=DeployState.CANCELLED)


@given(
    st.builds(Stages, st.integers(0, 3), st.booleans(), st.booleans()),
    st.lists(st.sampled_from([OK, bad(WHY)]), min_size=20, max_size=40),
    st.booleans(),
)
def test_every_deploy_ends_once_its_results_are_out(
    course: Stages, results: list[ChangeResult], cancelled: bool
) -> None:
    place, by = first_position(course), OLGA if cancelled else NOTHING
    for result in results:
        written = place.wave > 1 or place.stage in (
            DeployStage.RESTART,
            DeployStage.JUDGE,
            DeployStage.SETTLE,
        )
        went = move(course, place, [result], is_written=written, cancelled=by)
        if went.state is not None:
            return
        assert went.position is not None
        place = went.position
    raise AssertionError("it goes on for ever")
