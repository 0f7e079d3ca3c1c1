"""Where a deploy goes: forward wave by wave, back at the first bad result, and to which end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.deploys.course import STAY, Course, Move, Place, first_place, move
from queries.domain.deploys.judging import OK, TODO, Result, bad, waits
from queries.domain.deploys.states import BACK, DeployState, Stage
from queries.domain.reasons import NOTHING, Because, Detail

TWO = Course(waves=2, preflight=True, rolls_back=True)
WHY = Because(Detail.STEP, {"note": "it failed"})
OLGA = Because(Detail.CANCELLED_BY, {"actor": "olga"})


def goes(place: Place, *results: Result, written: bool = True, course: Course = TWO) -> Move:
    return move(course, place, results, is_written=written)


def test_the_whole_way_forward() -> None:
    seen, place = [], first_place(TWO)
    while True:
        seen.append((place.stage.value, place.wave))
        went = goes(place, OK)
        if went.place is None:
            break
        place = went.place
    wave = ["snapshot", "write", "restart", "judge"]
    waves = [(stage, number) for number in (1, 2) for stage in wave]
    assert seen == [("preflight", 0), *waves, ("settle", 0)]
    assert went == Move(state=DeployState.SUCCEEDED)


@pytest.mark.parametrize(
    ("course", "place"),
    [
        (Course(2, preflight=False, rolls_back=True), Place(Stage.SNAPSHOT, 1)),
        (Course(0, preflight=True, rolls_back=True), Place(Stage.SETTLE)),
    ],
)
def test_where_it_begins(course: Course, place: Place) -> None:
    assert first_place(course) == place


@pytest.mark.parametrize("result", [waits(), TODO])
@pytest.mark.parametrize("stage", [Stage.JUDGE, Stage.TRY_BACK, Stage.JUDGE_BACK])
def test_it_stays_while_one_is_not_done(stage: Stage, result: Result) -> None:
    assert goes(Place(stage, 1), OK, result) == STAY


def test_the_first_bad_result_turns_it_back_whatever_the_others_wait_for() -> None:
    went = goes(Place(Stage.JUDGE, 2), waits(), bad(WHY), OK)
    assert went == Move(Place(Stage.TRY_BACK), reason=WHY)


def test_nothing_written_is_nothing_to_roll_back() -> None:
    went = goes(Place(Stage.PREFLIGHT), bad(WHY), written=False)
    assert went == Move(state=DeployState.FAILED, reason=WHY)


def test_where_it_is_to_stop_nothing_goes_back() -> None:
    stop = Course(2, preflight=False, rolls_back=False)
    went = goes(Place(Stage.JUDGE, 1), bad(WHY), course=stop)
    assert went == Move(state=DeployState.FAILED, reason=WHY)


@pytest.mark.parametrize(
    ("written", "rolls_back", "went"),
    [
        (False, True, Move(state=DeployState.CANCELLED, reason=OLGA)),
        (True, False, Move(state=DeployState.CANCELLED, reason=OLGA)),
        (True, True, Move(Place(Stage.TRY_BACK), reason=OLGA)),
    ],
)
def test_cancelled(written: bool, rolls_back: bool, went: Move) -> None:
    course = Course(2, preflight=False, rolls_back=rolls_back)
    place = Place(Stage.SNAPSHOT, 1)
    assert move(course, place, [TODO], is_written=written, cancelled=OLGA) == went


def test_the_whole_way_back() -> None:
    seen, place = [], Place(BACK[0])
    while True:
        seen.append(place.stage)
        went = goes(place, OK, OK)
        if went.place is None:
            break
        place = went.place
    assert tuple(seen) == BACK
    assert went == Move(state=DeployState.ROLLED_BACK)


def test_one_that_cannot_go_back_lets_the_others_and_fails_at_the_end() -> None:
    assert goes(Place(Stage.TRY_BACK), bad(WHY), OK).place == Place(Stage.WRITE_BACK)
    went = goes(Place(Stage.JUDGE_BACK), bad(WHY), OK)
    assert went == Move(state=DeployState.FAILED, reason=WHY)


def test_a_cancelled_one_that_is_back_is_cancelled() -> None:
    went = move(TWO, Place(Stage.JUDGE_BACK), [OK], is_written=True, cancelled=OLGA)
    assert went == Move(state=DeployState.CANCELLED)


@given(
    st.builds(Course, st.integers(0, 3), st.booleans(), st.booleans()),
    st.lists(st.sampled_from([OK, bad(WHY)]), min_size=20, max_size=40),
    st.booleans(),
)
def test_every_deploy_ends_once_its_results_are_out(
    course: Course, results: list[Result], cancelled: bool
) -> None:
    place, by = first_place(course), OLGA if cancelled else NOTHING
    for result in results:
        written = place.wave > 1 or place.stage in (Stage.RESTART, Stage.JUDGE, Stage.SETTLE)
        went = move(course, place, [result], is_written=written, cancelled=by)
        if went.state is not None:
            return
        assert went.place is not None
        place = went.place
    raise AssertionError("it goes on for ever")
