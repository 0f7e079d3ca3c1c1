"""What restarts together, and in which order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.deploys.request import ChangeKind, RestartGroup, Waves, divide
from queries.domain.errors import Invalid

QUERY, APPLICATION = ChangeKind.QUERY, ChangeKind.APPLICATION


def units(*names: str) -> list[RestartGroup]:
    return [RestartGroup(QUERY, name) for name in names]


def names(waves: list[tuple[RestartGroup, ...]]) -> list[list[str]]:
    return [[unit.name for unit in wave] for wave in waves]


def test_queries_go_some_at_a_time_by_name() -> None:
    found = divide(units("c", "a", "b"), Waves(size=2))
    assert names(found) == [["a", "b"], ["c"]]


def test_the_canary_goes_first_whatever_its_size() -> None:
    found = divide(units("a", "b", "c", "d"), Waves(canary=("d", "b"), size=1))
    assert names(found) == [["b", "d"], ["a"], ["c"]]


def test_applications_go_in_waves_of_their_own_before_queries() -> None:
    flights = RestartGroup(APPLICATION, "flights", ("delays", "planes"))
    found = divide([*units("a"), flights], Waves(size=5))
    assert names(found) == [["flights"], ["a"]]


def test_a_query_of_an_application_makes_that_application_the_canary() -> None:
    flights = RestartGroup(APPLICATION, "flights", ("delays", "planes"))
    found = divide([*units("a"), flights], Waves(canary=("planes",), size=5))
    assert names(found) == [["flights"], ["a"]]


def test_nothing_that_changes_makes_no_wave() -> None:
    assert divide([], Waves()) == []


@pytest.mark.parametrize(
    ("there", "way_out"),
    [(units("a"), "Restarted by this deploy: a."), ([], "Restarted by this deploy: none.")],
)
def test_a_canary_that_does_not_change_is_refused_with_what_does(
    there: list[RestartGroup], way_out: str
) -> None:
    with pytest.raises(Invalid) as caught:
        divide(there, Waves(canary=("z",)))
    [problem] = caught.value.problems
    assert (problem.field, problem.value, problem.way_out) == ("waves.canary", "z", way_out)


def test_a_unit_goes_after_those_that_precede_it() -> None:
    before = {"Query:a": {"Query:c"}, "Query:b": {"Query:a", "Application:z"}}
    found = divide(units("a", "b", "c", "d"), Waves(size=5), before)
    assert names(found) == [["c", "d"], ["a"], ["b"]]


def test_the_canary_goes_before_what_precedes_it() -> None:
    found = divide(units("a", "b", "c"), Waves(canary=("b",)), {"Query:b": {"Query:a"}})
    assert names(found) == [["b"], ["a", "c"]]


def test_an_order_in_a_circle_falls_back_to_names() -> None:
    circle = {"Query:a": {"Query:b"}, "Query:b": {"Query:a"}}
    assert names(divide(units("b", "a"), Waves(size=1), circle)) == [["a"], ["b"]]


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


def test_the_order_of_many_units_is_looked_up_once_for_each() -> None:
    class Counted(dict[str, list[str]]):
        count = 0

        def get(self, key: str, default: Any = None) -> Any:
            self.count += 1
            return super().get(key, default)

    before = Counted()
    assert len(divide(units(*(f"q{at:03}" for at in range(300))), Waves(size=5), before)) == 60
    assert before.count <= 300
