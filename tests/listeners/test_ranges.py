"""Ranges of numbers: what has arrived and what is missing."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from listeners.store import holes, merge, overlap

_sets = st.sets(st.integers(0, 60), max_size=40)


def _numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(_sets, _sets)
def test_merging_covers_exactly_what_came_in_with_the_fewest_ranges(
    before: set[int], numbers: set[int]
) -> None:
    ranges = merge(merge([], before), numbers)
    assert _numbers(ranges) == before | numbers
    assert all(end + 1 < start for (_, end), (start, _) in pairwise(ranges))


@given(_sets, st.integers(0, 60))
def test_holes_and_ranges_together_have_every_number_once(numbers: set[int], last: int) -> None:
    ranges = merge([], numbers)
    missing = holes(ranges, first=0, last=last)
    end = max([last, *numbers])
    assert _numbers(missing) == set(range(end + 1)) - numbers


@given(_sets)
def test_without_ends_only_what_lies_between_is_missing(numbers: set[int]) -> None:
    missing = _numbers(holes(merge([], numbers)))
    between = set(range(min(numbers), max(numbers))) if numbers else set()
    assert missing == between - numbers


@given(_sets, st.integers(0, 60), st.integers(0, 60))
def test_an_overlap_is_counted_number_by_number(numbers: set[int], one: int, other: int) -> None:
    first, last = sorted((one, other))
    expected = len(numbers & set(range(first, last + 1)))
    assert overlap((first, last), merge([], numbers)) == expected
