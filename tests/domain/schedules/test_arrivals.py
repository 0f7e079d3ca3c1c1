"""Files that arrive are noticed, those that are removed are not, and bursts wait for their end."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.schedules.planning import Totals, due_at, is_hidden, totals_from, totals_of

FOLDER = st.dictionaries(
    st.sampled_from(["a", "b", "day=1/c", "_tmp/d", ".e", "f._COPYING_"]),
    st.tuples(st.integers(0, 9), st.floats(1, 9)),
)


def _totals(folder: dict[str, tuple[int, float]]) -> Totals:
    return totals_of((name, *held) for name, held in folder.items())


@given(FOLDER, st.sets(st.sampled_from(["a", "b", "day=1/c"])))
def test_an_arrival_is_noticed_and_a_removal_is_not(
    folder: dict[str, tuple[int, float]], gone: set[str]
) -> None:
    before = _totals(folder)
    fewer = {name: held for name, held in folder.items() if name not in gone}
    assert not _totals(fewer).has_more_than(before)
    assert _totals({**folder, "new": (1, 10.0)}).has_more_than(before)
    assert not _totals({**folder, "_tmp/new": (1, 10.0)}).has_more_than(before)


def test_the_files_of_the_first_listing_have_arrived() -> None:
    assert not _totals({}).has_more_than(None)
    assert _totals({"a": (1, 2.0)}).has_more_than(None)


def test_an_overwritten_file_has_arrived_again() -> None:
    before = _totals({"a": (1, 2.0), "b": (1, 3.0)})
    assert _totals({"a": (1, 4.0), "b": (1, 3.0)}).has_more_than(before)


@pytest.mark.parametrize("body", [{}, {"files": 1}, {"files": "x", "bytes": 1, "newest": 1.0}])
def test_damaged_totals_count_as_none(body: dict[str, object]) -> None:
    assert totals_from(body) is None


def test_totals_survive_their_storage() -> None:
    totals = _totals({"a": (1, 2.5)})
    assert totals_from(totals.body()) == totals


def test_a_name_is_hidden_by_any_of_its_parts() -> None:
    assert [is_hidden(name) for name in ("_SUCCESS", "a/.crc", "x._COPYING_")] == [True] * 3
    assert [is_hidden(name) for name in ("a_b", "_day=1/a")] == [False] * 2


def test_a_burst_starts_a_run_after_its_end_or_after_ten_times_the_wait() -> None:
    first = datetime(2026, 11, 27, tzinfo=UTC)
    minute = timedelta(minutes=1)
    assert due_at(first, first, 60) == first + minute
    assert due_at(first, first + 5 * minute, 60) == first + 6 * minute
    assert due_at(first, first + 30 * minute, 60) == first + 10 * minute
