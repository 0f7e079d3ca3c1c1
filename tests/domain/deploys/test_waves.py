"""What restarts together, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.deploys.forms import Waves
from queries.domain.deploys.states import ChangeKind
from queries.domain.deploys.waves import Unit, divide
from queries.domain.errors import Invalid

QUERY, APPLICATION = ChangeKind.QUERY, ChangeKind.APPLICATION


def units(*names: str) -> list[Unit]:
    return [Unit(QUERY, name) for name in names]


def names(waves: list[tuple[Unit, ...]]) -> list[list[str]]:
    return [[unit.name for unit in wave] for wave in waves]


def test_queries_go_some_at_a_time_by_name() -> None:
    found = divide(units("c", "a", "b"), Waves(size=2))
    assert names(found) == [["a", "b"], ["c"]]


def test_the_canary_goes_first_whatever_its_size() -> None:
    found = divide(units("a", "b", "c", "d"), Waves(canary=("d", "b"), size=1))
    assert names(found) == [["b", "d"], ["a"], ["c"]]


def test_applications_go_in_waves_of_their_own_before_queries() -> None:
    flights = Unit(APPLICATION, "flights", ("delays", "planes"))
    found = divide([*units("a"), flights], Waves(size=5))
    assert names(found) == [["flights"], ["a"]]


def test_a_query_of_an_application_makes_that_application_the_canary() -> None:
    flights = Unit(APPLICATION, "flights", ("delays", "planes"))
    found = divide([*units("a"), flights], Waves(canary=("planes",), size=5))
    assert names(found) == [["flights"], ["a"]]


def test_nothing_that_changes_makes_no_wave() -> None:
    assert divide([], Waves()) == []


@pytest.mark.parametrize(
    ("there", "way_out"),
    [(units("a"), "Restarted by this deploy: a."), ([], "Restarted by this deploy: none.")],
)
def test_a_canary_that_does_not_change_is_refused_with_what_does(
    there: list[Unit], way_out: str
) -> None:
    with pytest.raises(Invalid) as caught:
        divide(there, Waves(canary=("z",)))
    [problem] = caught.value.problems
    assert (problem.field, problem.value, problem.way_out) == ("waves.canary", "z", way_out)


@given(st.sets(st.text("abcdefgh", min_size=1, max_size=3)), st.integers(1, 6), st.data())
def test_each_query_is_in_one_wave_and_no_wave_but_the_canary_is_larger_than_asked(
    there: set[str], size: int, data: st.DataObject
) -> None:
    canary = data.draw(st.sets(st.sampled_from(sorted(there)))) if there else set()
    waves = divide(units(*there), Waves(canary=tuple(canary), size=size))
    flat = [unit.name for wave in waves for unit in wave]
    assert sorted(flat) == sorted(there)
    assert all(len(wave) <= size for wave in waves[bool(canary) :])
    assert not canary or {unit.name for unit in waves[0]} == canary
