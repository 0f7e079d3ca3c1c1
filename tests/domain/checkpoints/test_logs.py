"""The text of a checkpoint's logs as values: both versions, every kind of source."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.checkpoints.logs import (
    CommittedBatch,
    Offsets,
    UnreadableLog,
    begun_at,
    first_offsets,
    is_upgrade,
    read_commit,
    read_offsets,
)

ABOUT = {
    "batchWatermarkMs": 1357027200000,
    "batchTimestampMs": 1794991234567,
    "conf": {"spark.sql.shuffle.partitions": "4"},
}


def test_an_offset_log_says_where_each_source_is_read_up_to() -> None:
    text = f'v1\n{json.dumps(ABOUT)}\n{{"logOffset":7}}\n{{"flights":{{"0":12,"1":9}}}}\n-'
    assert read_offsets(3, text) == Offsets(
        batch=3,
        version="v1",
        sources={"0": {"logOffset": 7}, "1": {"flights": {"0": 12, "1": 9}}, "2": None},
        timestamp_ms=1794991234567,
        watermark_ms=1357027200000,
        conf={"spark.sql.shuffle.partitions": "4"},
    )


def test_continuous_processing_leaves_the_line_about_the_batch_blank() -> None:
    found = read_offsets(5, 'v1\n\n{"numbers":{"0":3}}')
    assert found == Offsets(batch=5, version="v1", sources={"0": {"numbers": {"0": 3}}})
    assert found.timestamp_ms is None


def test_version_two_names_its_sources() -> None:
    found = read_offsets(0, 'v2\n{}\nflights:{"logOffset":0}\nweather:-1\nair:-\nsea:at 5:7\n')
    assert found.sources == {
        "flights": {"logOffset": 0},
        "weather": -1,
        "air": None,
        "sea": "at 5:7",
    }


def test_an_offset_that_is_no_json_is_kept_as_it_stands() -> None:
    assert read_offsets(0, "v1\n{}\nposition 12:a").sources == {"0": "position 12:a"}


def test_a_commit_says_the_next_watermark_and_the_states_that_it_made() -> None:
    text = 'v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[["a"]]}}'
    assert read_commit(4, text) == CommittedBatch(4, "v2", 5, {"0": [["a"]]})
    assert read_commit(4, 'v1\n{"nextBatchWatermarkMs":0}') == CommittedBatch(4, "v1", 0)
    assert read_commit(4, text.replace("v2", "v3")) == CommittedBatch(4, "v3", 5, {"0": [["a"]]})
    assert read_commit(4, "v1\n") == read_commit(4, "v1") == CommittedBatch(4, "v1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with '', not v1"),
        ("v4\n{}", "begins with 'v4'"),
        ('v1\n{"batchWater', "is not JSON"),
        ("v1\n[1]", "is not an object"),
    ],
)
def test_what_is_no_such_log_is_refused_with_what_was_found(text: str, said: str) -> None:
    for read in (read_offsets, read_commit):
        with pytest.raises(UnreadableLog, match="batch 9: ") as caught:
            read(9, text)
        assert said in str(caught.value)


_OFFSET = st.one_of(
    st.none(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.dictionaries(
        st.sampled_from(["logOffset", "flights"]), st.integers(min_value=0, max_value=2**63 - 1)
    ),
    st.from_regex(r"[a-z]{1,9}:[0-9]{1,9}:[a-z]{1,9}", fullmatch=True),  # no JSON, with colons
)


@given(
    about=st.fixed_dictionaries(
        {
            "batchTimestampMs": st.integers(min_value=0, max_value=2**63 - 1),
            "batchWatermarkMs": st.integers(min_value=0, max_value=2**63 - 1),
            "conf": st.dictionaries(st.text(), st.text()),
        }
    ),
    offsets=st.lists(_OFFSET, min_size=1, max_size=4),
    named=st.booleans(),
)
def test_what_spark_writes_is_read_back(
    about: dict[str, Any], offsets: list[Any], named: bool
) -> None:
    written = [
        "-" if offset is None else offset if isinstance(offset, str) else json.dumps(offset)
        for offset in offsets
    ]
    if named:
        written = [f"source-{place}:{line}" for place, line in enumerate(written)]
    text = "\n".join(["v2" if named else "v1", json.dumps(about), *written])
    found = read_offsets(1, text)
    assert list(found.sources.values()) == offsets
    assert (found.timestamp_ms, found.watermark_ms) == (
        about["batchTimestampMs"],
        about["batchWatermarkMs"],
    )
    assert found.conf == about["conf"]


_ABOUT = '{"batchWatermarkMs":0,"batchTimestampMs":5}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v3\n{}\n{}", "begins with 'v3', not v1 or v2"),  # of offsets there are two
        (f"v1\n{_ABOUT}", "does not contain any source"),
        ('v1\n{"batchTimestampMs":"5"}\n-', "batchTimestampMs is '5'"),
        ('v1\n{"batchWatermarkMs":-1}\n-', "batchWatermarkMs is '-1'"),
        ('v1\n{"batchTimestampMs":true}\n-', "batchTimestampMs is 'True'"),
        ('v1\n{"conf":[1]}\n-', "conf is not an object"),
        ('v1\n{"conf":{"a":1}}\n-', "conf is not an object"),
        (f'v1\n{_ABOUT}\n{{"t":{{"0":9', "is not JSON"),
        (f"v1\n{_ABOUT}\n{'[' * 5000}", "is not JSON"),
        (f'v1\n{_ABOUT}\n{{"t":NaN}}', "is not JSON"),
        (f"v2\n{_ABOUT}\n-", "does not begin with a source's name"),
        (f'v2\n{_ABOUT}\n../../x:{{"logOffset":1}}', "does not begin with a source's name"),
    ],
)
def test_an_offset_log_with_a_wrong_type_or_a_cut_line_is_unreadable(text: str, said: str) -> None:
    with pytest.raises(UnreadableLog) as caught:
        read_offsets(9, text)
    assert said in str(caught.value)


def test_a_commit_log_with_a_wrong_type_is_unreadable() -> None:
    for about in ('{"nextBatchWatermarkMs":"soon"}', '{"stateUniqueIds":[1]}'):
        with pytest.raises(UnreadableLog):
            read_commit(9, f"v2\n{about}")


def test_an_upgraded_log_goes_on_from_the_places_of_the_batch_before() -> None:
    before = read_offsets(5, f"v1\n{_ABOUT}\n7\n8")
    after = read_offsets(6, f"v2\n{_ABOUT}\norders:9\nparts:9")
    assert begun_at(before, after) == {"orders": 7, "parts": 8}
    assert is_upgrade(before, after)
    assert not is_upgrade(after, after)
    assert not is_upgrade(None, after)
    assert not is_upgrade(before, None)
    assert begun_at(before, before) == {"0": 7, "1": 8}
    assert begun_at(None, after) == {}
    by_place = read_offsets(6, f"v2\n{_ABOUT}\n1:9\n0:9")  # sources without names keep places
    assert begun_at(before, by_place) == {"0": 7, "1": 8}


def test_an_upgrade_that_nothing_tells_apart_is_not_guessed() -> None:
    before = read_offsets(5, "\n".join(["v1", _ABOUT, *"12345"]))
    after = read_offsets(6, "\n".join(["v2", _ABOUT, *(f"s{n}:{n}" for n in range(5))]))
    fewer = read_offsets(6, f"v2\n{_ABOUT}\norders:9")
    assert begun_at(before, after) == begun_at(before, fewer) == {}


@given(st.text())
def test_any_other_text_is_unreadable_and_nothing_worse(text: str) -> None:
    for read in (read_offsets, read_commit):
        with suppress(UnreadableLog):
            assert read(0, text).version in ("v1", "v2", "v3")


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ('\0v1\n{"flights":{"0":12}}', {"flights": {"0": 12}}),  # as Spark writes it
        ('v1\n{"flights":{"0":12}}', {"flights": {"0": 12}}),
        ('v1\n{"path":"/a","timestamp":1}\n{"path":"/b"}', None),  # a file source's log
        ("v1\n", None),
        ("", None),
    ],
)
def test_the_first_offsets_of_a_kafka_source_are_read(text: str, offset: object) -> None:
    assert first_offsets(text) == offset
