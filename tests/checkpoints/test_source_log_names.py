"""Which files of a log together contain all of its entries."""

from hypothesis import given
from hypothesis import strategies as st

from queries.checkpoints.source_logs import newest_entries


def test_a_compacted_entry_contains_all_entries_before_it() -> None:
    names = ["9.compact", "8", "19.compact", "20", "18", "21", ".22.tmp", "metadata", "9"]
    assert newest_entries(names) == ["19.compact", "20", "21"]
    assert newest_entries(["1", "0", "10"]) == ["0", "1", "10"]
    assert newest_entries([]) == []


@given(st.sets(st.integers(0, 60), min_size=1), st.integers(2, 12))
def test_no_entry_is_left_out(batches: set[int], every: int) -> None:
    whole = range(max(batches) + 1)
    names = [f"{n}.compact" if n % every == every - 1 else str(n) for n in whole]
    read = newest_entries(names)
    first = int(read[0].removesuffix(".compact"))
    assert read[0].endswith(".compact") or first == 0
    assert read[1:] == names[first + 1 :]
    assert len(read) <= every
