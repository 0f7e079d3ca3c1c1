"""What was lost: read from Spark's words, from offsets, and from batches that came up short."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.kafka.lag import PartitionLook
from queries.domain.kafka.losses import (
    OffsetGap,
    SkippedOffsets,
    gaps_of,
    late_rows,
    named_in,
    read_whole,
    shortfall,
    skipped,
    span_of,
    touch,
    without,
)
from tests.domain.kafka.test_lag import NOW


def test_gaps_are_what_lies_between_the_committed_and_the_first_offset_left() -> None:
    looks = [
        PartitionLook("flights", 3, NOW, committed=100, earliest=250, latest=300),
        PartitionLook("flights", 0, NOW, committed=100, earliest=100, latest=300),
        PartitionLook("flights", 1, NOW, committed=0, earliest=7, latest=7),
        PartitionLook("flights", 2, NOW, committed=None, earliest=7, latest=7),
        PartitionLook("flights", 4, NOW, committed=9, earliest=None, latest=None),
    ]
    found = gaps_of(looks)
    assert found == [OffsetGap("flights", 1, 0, 7), OffsetGap("flights", 3, 100, 250)]
    assert [gap.offsets for gap in found] == [7, 150]


@pytest.mark.parametrize(
    ("text", "gaps"),
    [
        ("Division by zero", []),
        (
            "Could not read records in offset [93635, 104204) for topic partition in-0",
            [OffsetGap("in", 0, 93635, 104204)],
        ),
        (
            "Partition my-topic-2 offset was changed from 500 to 1200. Some data may have been "
            "lost\nPartition my-topic-0's offset was changed from 500 to 40",
            [OffsetGap("my-topic", 2, 500, 1200)],
        ),
        (
            "Cannot fetch offset 500 (GroupId: spark-kafka-source-1, TopicPartition: flights-0).",
            [OffsetGap("flights", 0, 500, 501)],
        ),
        (
            "Cannot fetch offset 500 (GroupId: g, TopicPartition: flights-0). Could not read "
            "records in offset [500, 900) for topic partition flights-0",
            [OffsetGap("flights", 0, 500, 900)],
        ),
    ],
)
def test_sparks_words_name_partitions_and_offsets(text: str, gaps: list[OffsetGap]) -> None:
    assert named_in(text) == gaps


def test_what_is_gone_belongs_to_a_failure_if_it_was_reading_there() -> None:
    read = [OffsetGap("flights", 0, 500, 800)]
    assert touch([OffsetGap("flights", 0, 500, 650)], read)
    assert not touch([OffsetGap("flights", 1, 500, 650)], read)
    assert not touch([OffsetGap("flights", 0, 800, 900)], read)
    assert not touch([], read)
    assert touch([OffsetGap("flights", 1, 0, 9)], [])  # it is unknown what it was reading


def _progress(**fields: Any) -> dict[str, Any]:
    known = {
        "startOffset": {"flights": {"0": 100, "1": 50}},
        "endOffset": {"flights": {"0": 200, "1": 150}},
        "numInputRows": 140,
    }
    return {**known, **fields}


def test_a_batch_that_read_fewer_rows_than_offsets_is_short() -> None:
    start, end = {"flights": {0: 100, 1: 50}}, {"flights": {0: 200, 1: 150}}
    assert shortfall(_progress()) == (start, end, 60)


@pytest.mark.parametrize(
    "fields",
    [
        {"numInputRows": 200},
        {"numInputRows": 400},  # the plan reads the source twice
        {"numInputRows": None},
        {"startOffset": None},  # a first batch
        {"endOffset": {"logOffset": 4}},  # a source of files
    ],
)
def test_other_batches_are_not(fields: dict[str, Any]) -> None:
    assert shortfall(_progress(**fields)) is None


def test_a_partition_that_is_new_begins_at_nought() -> None:
    assert span_of({"a": {0: 5}}, {"a": {0: 8, 1: 4}, "b": {0: 2}}) == 9
    assert span_of({"a": {0: 5}}, {"a": {0: 3}}) == 0


START = {"flights": {0: 100, 1: 50}}
END = {"flights": {0: 200, 1: 150}}


def _skipped(missing: int, earliest: Any, known: Any = None) -> list[SkippedOffsets]:
    return skipped(START, END, missing, earliest=earliest, ledger=known or {})


def test_what_a_batch_went_over_is_told_by_partition_and_offsets() -> None:
    gaps = (OffsetGap("flights", 0, 100, 130), OffsetGap("flights", 1, 50, 80))
    assert _skipped(60, {"flights": {0: 130, 1: 80}}) == [SkippedOffsets("flights", gaps, 60)]


def test_rows_missing_beyond_what_was_deleted_are_no_loss() -> None:
    # A LIMIT took the rest, or a transaction's marks.
    gaps = (OffsetGap("flights", 0, 100, 110), OffsetGap("flights", 1, 50, 60))
    assert _skipped(60, {"flights": {0: 110, 1: 60}}) == [SkippedOffsets("flights", gaps, 20)]
    assert _skipped(60, {"flights": {0: 90, 1: 10}}) == []


def test_of_one_partition_the_first_offsets_are_those_that_are_missing() -> None:
    found = _skipped(60, {"flights": {0: 190, 1: 20}})
    assert found == [SkippedOffsets("flights", (OffsetGap("flights", 0, 100, 160),), 60)]


def test_of_several_partitions_deleted_on_and_on_only_the_count_is_told() -> None:
    assert _skipped(60, {"flights": {0: 180, 1: 60}}) == [SkippedOffsets("flights", (), 60)]


def test_what_the_ledger_holds_already_is_not_counted_again() -> None:
    known = {("flights", 0): [(100, 130)], ("other", 0): [(0, 10)]}
    assert _skipped(30, {"flights": {0: 130}}, known) == []
    found = _skipped(60, {"flights": {0: 190}}, known)
    assert found == [SkippedOffsets("flights", (OffsetGap("flights", 0, 130, 160),), 30)]
    holed = {("flights", 0): [(110, 120)]}
    assert _skipped(25, {"flights": {0: 190}}, holed) == [
        SkippedOffsets(
            "flights", (OffsetGap("flights", 0, 100, 110), OffsetGap("flights", 0, 120, 125)), 15
        )
    ]
    assert _skipped(15, {"flights": {0: 190}}, holed) == [
        SkippedOffsets("flights", (OffsetGap("flights", 0, 100, 105),), 5)
    ]


def test_a_gap_never_reaches_beyond_its_batch() -> None:
    found = _skipped(200, {"flights": {0: 10**6, 1: 10**6}})
    assert found == [
        SkippedOffsets(
            "flights", (OffsetGap("flights", 0, 100, 200), OffsetGap("flights", 1, 50, 150)), 200
        )
    ]


@pytest.mark.parametrize(
    ("known", "left"),
    [
        ([], [(10, 20)]),
        ([(10, 20)], []),
        ([(0, 15)], [(15, 20)]),
        ([(12, 15)], [(10, 12), (15, 20)]),
        ([(12, 15), (14, 30)], [(10, 12)]),
        ([(0, 10), (20, 30)], [(10, 20)]),
    ],
)
def test_what_stands_in_the_ledger_is_not_written_twice(
    known: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    found = without(OffsetGap("flights", 0, 10, 20), known)
    assert [(gap.first, gap.until) for gap in found] == left


ranges = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda one: (min(one), max(one)))


@given(first=st.integers(0, 30), length=st.integers(1, 30), known=st.lists(ranges, max_size=6))
def test_what_is_left_is_the_gap_without_what_is_known(
    first: int, length: int, known: list[tuple[int, int]]
) -> None:
    left = without(OffsetGap("flights", 0, first, first + length), known)
    covered = {at for low, high in known for at in range(low, high)}
    expected = [at for at in range(first, first + length) if at not in covered]
    assert [at for gap in left for at in range(gap.first, gap.until)] == expected


def test_late_rows_are_counted_by_operator() -> None:
    progress = {
        "stateOperators": [
            {"operatorName": "stateStoreSave", "numRowsDroppedByWatermark": 12},
            {"operatorName": "dedupe", "numRowsDroppedByWatermark": 0},
            {"numRowsDroppedByWatermark": 3},
            {"operatorName": "join"},
        ]
    }
    assert late_rows(progress) == {"stateStoreSave 0": 12, "operator 2": 3}
    assert late_rows({}) == {}
    assert late_rows({"stateOperators": [None, {"numRowsDroppedByWatermark": -1}]}) == {}


def test_a_topic_that_replaced_another_has_no_gap_to_go_over() -> None:
    one = PartitionLook("t", 0, NOW, committed=100, earliest=180, latest=300)
    assert gaps_of([one]) == [OffsetGap("t", 0, 100, 180)]
    assert gaps_of([replace(one, replaced=True)]) == []


@pytest.mark.parametrize(
    ("start", "end", "rows", "found"),
    [
        (100, 200, 100, True),
        (100, 200, 99, False),
        (100, 200, 200, False),  # the plan reads it twice: nobody knows
        (100, 100, 0, False),
        (100, 200, None, False),
    ],
)
def test_a_batch_has_read_its_offsets_whole_only_with_exactly_a_row_for_each(
    start: int, end: int, rows: int | None, found: bool
) -> None:
    source = {
        "startOffset": {"t": {"0": start}},
        "endOffset": {"t": {"0": end}},
        "numInputRows": rows,
    }
    whole = ({"t": {0: start}}, {"t": {0: end}})
    assert read_whole(source) == (whole if found else None)
    assert read_whole({"startOffset": 7, "endOffset": 8, "numInputRows": 1}) is None
