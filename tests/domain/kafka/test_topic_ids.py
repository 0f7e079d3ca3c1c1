"""Whether a topic is the one that was read: by its id, never by its name, and never by a guess."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.kafka.losses import OffsetGap
from queries.domain.kafka.topic_ids import (
    GONE,
    NO_ID,
    Entered,
    PartitionPosition,
    Remembered,
    after_look,
    as_json,
    as_of,
    by_topic,
    changed,
    ended_at,
    entered,
    ids_of,
    java_id,
    lost_by,
    names,
    replaced_in,
    rest_of,
    while_missing,
)

READ_ALL = {0: PartitionPosition(4_000, 4_000)}
REPLACED = Remembered("old", now="new", was=READ_ALL)


def _look(held: Remembered | None, seen: str | None, **changes: Any) -> Remembered | None:
    given = {"begun": True, "was": READ_ALL, "ends": {0: 8_000}, **changes}
    return after_look(held, seen, **given)


@pytest.mark.parametrize(
    ("held", "seen", "changes", "after"),
    [
        # Nothing told is nothing known: not the same, and not another.
        (None, None, {}, None),
        (Remembered("old"), None, {}, Remembered("old")),
        (REPLACED, None, {}, REPLACED),
        # Until something was read, whichever topic is there is the right one.
        (None, "old", {"begun": False}, Remembered("old")),
        (Remembered("old"), "new", {"begun": False}, Remembered("new")),
        # Of a checkpoint from before ids were remembered the first one counts …
        (None, "old", {}, Remembered("old")),
        (None, "old", {"was": {0: PartitionPosition(None, None)}, "ends": {}}, Remembered("old")),
        # … unless the topic is shorter than what was read.
        (None, "new", {"ends": {0: 3_999}}, Remembered(GONE, now="new", was=READ_ALL)),
        (Remembered("old", 7), "old", {}, Remembered("old", 7)),
        (Remembered("old"), "new", {}, REPLACED),
        (Remembered(GONE), "new", {}, Remembered(GONE, now="new", was=READ_ALL)),
        (REPLACED, "new", {"was": {0: PartitionPosition(1, 1)}}, REPLACED),
        # Replaced twice before anything was read: the place in the first one counts.
        (
            REPLACED,
            "third",
            {"was": {0: PartitionPosition(1, 1)}},
            Remembered("old", now="third", was=READ_ALL),
        ),
        (
            Remembered("old", now="new", was=READ_ALL, passed=3),
            "third",
            {"was": {0: PartitionPosition(9_000, 9_000)}},
            Remembered("old", now="third", was={0: PartitionPosition(9_000, 9_000)}),
        ),
    ],
)
def test_a_look_remembers_what_was_told_and_nothing_else(
    held: Remembered | None, seen: str | None, changes: dict[str, Any], after: Remembered | None
) -> None:
    assert _look(held, seen, **changes) == after


def test_while_a_topic_is_missing_its_last_place_is_kept() -> None:
    missing = while_missing(Remembered("old"), READ_ALL)
    assert missing == Remembered("old", was=READ_ALL)
    assert while_missing(missing, {}) == missing
    assert while_missing(REPLACED, {0: PartitionPosition(1, 1)}) == REPLACED
    assert _look(missing, "new", was={0: PartitionPosition(4_000, None)}) == REPLACED
    assert _look(missing, "old") == Remembered("old")  # the broker had only not led it


def test_what_is_remembered_knows_whether_the_new_topic_was_read() -> None:
    passed = Remembered("old", now="new", passed=4)
    assert [one.is_replaced for one in (Remembered("old"), REPLACED, passed)] == [0, 1, 1]
    assert [one.is_unread for one in (Remembered("old"), REPLACED, passed)] == [0, 1, 0]
    ids = {"one": {"same": Remembered("x"), "flights": REPLACED}}
    assert replaced_in(ids) == {"flights"}


@pytest.mark.parametrize(
    ("text", "known"), [("x", "x"), ("a+b/", "a-b_"), ("", None), (None, None), (NO_ID, None)]
)
def test_no_id_is_no_id(text: str | None, known: str | None) -> None:
    assert java_id(text) == known


def test_a_topic_has_changed_only_where_both_ids_are_known() -> None:
    seen = {"same": "a", "other": "b", "never-seen": "c", "second-broker": "d"}
    remembered = {"same": ["a"], "other": ["a"], "silent": ["e"], "second-broker": ["x", "d"]}
    assert changed(remembered, seen) == ["other"]
    ids = {"one": {"t": Remembered("a")}, "two": {"t": Remembered("b"), "u": Remembered("c")}}
    assert by_topic(ids) == {"t": ["a", "b"], "u": ["c"]}


def _history(*offsets: int) -> list[tuple[int, dict[str, dict[int, int]]]]:
    return [(batch, {"t": {0: at}}) for batch, at in enumerate(offsets)]


@pytest.mark.parametrize(
    ("offsets", "end", "found"),
    [
        ((2_000, 4_000), 8_000, None),  # no batch since
        ((2_000, 4_000, 8_000), 8_000, Entered(2, {0: 4_000})),  # read on from the old offset
        ((2_000, 4_000, 0, 8_000), 8_000, Entered(2, {0: 0})),  # Spark saw it empty: nothing lost
        ((2_000, 4_000, 500), 500, Entered(2, {0: 500})),  # Spark went back to its end
        ((4_000, 4_100), 500, None),  # what was read since is the old topic's
        ((3_000, 5_000), 8_000, Entered(1, {0: 4_000})),  # async: the log has gaps
        ((), 8_000, None),
    ],
)
def test_where_a_query_has_entered_the_new_topic_is_told_by_its_batches(
    offsets: tuple[int, ...], end: int, found: Entered | None
) -> None:
    assert entered(REPLACED, "t", _history(*offsets), {0: end}) == found


def test_a_partition_that_stands_still_beside_one_that_was_entered_goes_on_from_its_offset() -> (
    None
):
    was = {
        0: PartitionPosition(4_000, 4_000),
        1: PartitionPosition(10, 10),
        2: PartitionPosition(7, 7),
        3: PartitionPosition(None, 9),
    }
    held = Remembered("old", now="new", was=was)
    history = [(0, {"t": {0: 4_000, 1: 10}}), (1, {"t": {0: 8_000, 1: 10}})]
    assert entered(held, "t", history, {0: 8_000, 1: 10}) == Entered(1, {0: 4_000, 1: 10})
    # It would have been set back too: what moved may still have been the old topic.
    assert entered(held, "t", history, {0: 8_000, 1: 9}) is None


@pytest.mark.parametrize("after", [{0: 4_000, 1: 4_000}, {}])
def test_other_partitions_in_a_batch_are_the_new_topics(after: dict[int, int]) -> None:
    """The one that both have stands where it stood: as many records are in the new one."""
    history = [(6, {"u": {0: 1}}), (7, {"t": {0: 4_000}}), (8, {"t": after})]
    assert entered(REPLACED, "t", history, {0: 4_000, 1: 4_000}) == Entered(8, {0: 4_000})
    # A log that does not hold what was read before proves nothing.
    assert entered(REPLACED, "t", history[2:], {0: 4_000, 1: 4_000}) is None


def test_what_is_lost_is_the_rest_of_the_old_topic_and_the_beginning_of_the_new_one() -> None:
    was = {
        0: PartitionPosition(100, 130),
        1: PartitionPosition(50, 50),
        2: PartitionPosition(None, 9),
        3: PartitionPosition(5, None),
    }
    held = Remembered("old", now="new", was=was)
    old, new = lost_by(held, "t", {0: 100, 1: 20, 4: 8}, {0: 10, 1: 20})
    assert old == [OffsetGap("t", 0, 100, 130)]
    assert new == [OffsetGap("t", 0, 10, 100)]


def test_a_copy_as_of_an_earlier_batch_knows_which_topic_that_batch_read() -> None:
    passed = Remembered("old", 3, now="new", was=READ_ALL, passed=9)
    ids = {"s": {"t": passed}}
    assert as_of(ids, 2) == {"s": {"t": Remembered(GONE)}}
    assert as_of(ids, 8) == {"s": {"t": Remembered("old", 3)}}
    assert as_of(ids, 9) == ids
    unread = {"s": {"t": REPLACED}}
    assert as_of(unread, 5) == {"s": {"t": Remembered("old")}}


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        (["a"], "Topic a was"),
        (["b", "a"], "Topics a, b were"),
        (["a", "b", "c", "d", "e"], "Topics a, b, c and 2 more were"),
    ],
)
def test_topics_are_named_up_to_three(topics: list[str], said: str) -> None:
    assert names(topics) == said


_numbers = st.integers(0, 10**6)
_places = st.builds(PartitionPosition, st.none() | _numbers, st.none() | _numbers)
_held = st.builds(
    Remembered,
    st.text(max_size=5),
    _numbers,
    st.text(max_size=5),
    st.dictionaries(st.integers(0, 9), _places, max_size=3),
    st.none() | _numbers,
)


@given(
    st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=5), _held), max_size=3)
)
def test_what_is_stored_is_read_back(ids: Any) -> None:
    stored = as_json(ids)
    assert json.loads(json.dumps(stored)) == stored
    assert ids_of(stored) == {source: topics for source, topics in ids.items() if topics}


@given(
    committed=st.integers(1, 5_000),
    new=st.lists(st.integers(0, 9_000), min_size=1, max_size=6).map(sorted),
    back=st.none() | st.integers(0, 5_000),
)
def test_spark_never_reads_what_is_counted_as_lost(
    committed: int, new: list[int], back: int | None
) -> None:
    """The new topic grows; Spark goes on from its offset, or back to the end that it saw."""
    end, read_from = new[-1], committed
    log = [committed]
    if back is not None and back < committed:
        read_from = min(back, end)
        log.append(read_from)
    if end < read_from:
        return  # nothing of it was read yet
    log.append(end)
    held = Remembered("old", now="new", was={0: PartitionPosition(committed, committed)})
    found = entered(held, "t", _history(*log), {0: end})
    if found is None:
        assert end == committed == read_from  # nothing after the old offset: nothing was skipped
        return
    _, lost = lost_by(held, "t", found.at, {0: 0})
    assert sum(gap.offsets for gap in lost) == read_from


def test_what_a_run_has_committed_since_the_look_is_not_of_the_rest() -> None:
    was = {
        0: PartitionPosition(100, 130),
        1: PartitionPosition(100, 130),
        2: PartitionPosition(None, 130),
        3: PartitionPosition(100, 130),
    }
    held = Remembered("old", now="new", was=was)
    # Partition 1: with async progress tracking its commits are behind what was reported.
    ended = ended_at(held, {0: 120, 1: 90, 2: 110, 9: 1})
    assert ended.was == {
        0: PartitionPosition(120, 130),
        1: PartitionPosition(100, 130),
        2: PartitionPosition(110, 130),
        3: PartitionPosition(100, 130),
    }
    assert rest_of(ended, "t")[0] == OffsetGap("t", 0, 120, 130)
