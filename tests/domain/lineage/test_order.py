"""The order of units that restart together."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from queries.domain.lineage.graph import order_of


def after(**readers: str) -> Mapping[str, frozenset[str]]:
    return {name: frozenset(text.split()) for name, text in readers.items()}


def test_what_writes_precedes_what_reads_also_through_queries_outside() -> None:
    found = order_of({"a": ["a"], "c": ["c"]}, after(a="b", b="c"))
    assert (dict(found.before), found.circles) == ({"c": frozenset("a")}, ())


def test_a_unit_of_several_queries_is_one() -> None:
    found = order_of({"app": ["x", "y"], "z": ["z"]}, after(x="y", y="z w", w="y"))
    assert dict(found.before) == {"z": frozenset({"app"})}


def test_units_in_a_circle_do_not_precede_each_other_and_are_named() -> None:
    units = {name: [name] for name in "abcd"}
    found = order_of(units, after(a="b", b="a c", c="d"))
    assert found.circles == (("a", "b"),)
    assert dict(found.before) == {"c": frozenset("b"), "d": frozenset("c")}


def test_two_ways_to_one_unit_are_no_circle() -> None:
    units = {name: [name] for name in "abcd"}
    found = order_of(units, after(a="b c", b="d", c="d"))
    assert found.circles == ()
    assert found.before["d"] == {"b", "c"}


_LETTERS = "abcdefg"
_READERS = st.dictionaries(
    st.sampled_from(_LETTERS), st.frozensets(st.sampled_from(_LETTERS)), max_size=7
)


@given(_READERS)
def test_the_order_has_no_circle_and_the_rest_is_named(
    readers: dict[str, frozenset[str]],
) -> None:
    found = order_of({name: [name] for name in _LETTERS}, readers)
    left = set(_LETTERS)
    while ready := {name for name in left if not found.before.get(name, frozenset()) & left}:
        left -= ready
    assert left == set()
    part_of = {name: part for part in found.circles for name in part}
    for writer, names in readers.items():
        for reader in names - {writer}:
            ordered = writer in found.before.get(reader, frozenset())
            assert ordered or part_of[writer] == part_of[reader]
