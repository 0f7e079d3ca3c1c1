"""What lies between two batches' offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.kafka.offsets import OffsetRange, is_file, is_kafka, ranges, records


def test_each_partition_says_what_was_read_of_it() -> None:
    before = {"0": {"flights": {"0": 10, "10": 5}}, "1": {"logOffset": 3}}
    after = {"0": {"flights": {"10": 9, "2": 4, "0": 12}}, "1": {"logOffset": 4}, "2": None}
    found = ranges(before, after)
    assert found == [
        OffsetRange("0", "flights", 0, 10, 12),
        OffsetRange("0", "flights", 2, None, 4),
        OffsetRange("0", "flights", 10, 5, 9),
    ]
    assert [each.records for each in found] == [2, None, 4]
    assert records(found) is None
    assert records([found[0], found[2]]) == 6


def test_without_a_kafka_source_there_is_nothing_to_count() -> None:
    assert ranges({}, {"0": {"logOffset": 3}, "1": 7}) == []
    assert records([]) is None


def test_a_first_batch_starts_nowhere() -> None:
    assert ranges({"0": None}, {"0": {"a": {"0": 3}}}) == [OffsetRange("0", "a", 0, None, 3)]


@pytest.mark.parametrize(
    ("offset", "kafka", "file"),
    [
        ({"flights": {"0": 1}}, True, False),
        ({"flights": {}}, True, False),
        ({"logOffset": 1}, False, True),
        ({"flights": {"a": 1}}, False, False),
        ({"flights": {"0": "1"}}, False, False),
        ({}, False, False),
        (12, False, False),
        (None, False, False),
    ],
)
def test_an_offset_shows_what_wrote_it(offset: object, kafka: bool, file: bool) -> None:
    assert (is_kafka(offset), is_file(offset)) == (kafka, file)


@given(
    st.dictionaries(
        st.integers(0, 20), st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), min_size=1
    )
)
def test_the_sum_is_that_of_the_partitions(parts: dict[int, tuple[int, int]]) -> None:
    before = {"0": {"t": {str(p): start for p, (start, _) in parts.items()}}}
    after = {"0": {"t": {str(p): start + more for p, (start, more) in parts.items()}}}
    assert records(ranges(before, after)) == sum(more for _, more in parts.values())
