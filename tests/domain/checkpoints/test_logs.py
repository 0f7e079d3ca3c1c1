"""The text of a checkpoint's logs as values: both versions, every kind of source."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.checkpoints.logs import (
    Commit,
    Offsets,
    Unreadable,
    first_offsets,
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
    found = read_offsets(0, 'v2\n{}\nflights:{"logOffset":0}\nweather:-1\n')
    assert found.sources == {"flights": {"logOffset": 0}, "weather": -1}


def test_an_offset_that_is_no_json_is_kept_as_it_stands() -> None:
    assert read_offsets(0, "v1\n{}\nposition 12:a").sources == {"0": "position 12:a"}


def test_a_commit_says_the_next_watermark_and_the_states_that_it_made() -> None:
    text = 'v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[["a"]]}}'
    assert read_commit(4, text) == Commit(4, "v2", 5, {"0": [["a"]]})
    assert read_commit(4, 'v1\n{"nextBatchWatermarkMs":0}') == Commit(4, "v1", 0)
    assert read_commit(4, "v1\n") == read_commit(4, "v1") == Commit(4, "v1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with '', not v1 or v2"),
        ("v3\n{}", "begins with 'v3'"),
        ('v1\n{"batchWater', "is not JSON"),
        ("v1\n[1]", "is not an object"),
    ],
)
def test_what_is_no_such_log_is_refused_with_what_was_found(text: str, said: str) -> None:
    for read in (read_offsets, read_commit):
        with pytest.raises(Unreadable, match="batch 9: ") as caught:
            read(9, text)
        assert said in str(caught.value)


_OFFSET = st.one_of(
    st.none(),
    st.integers(),
    st.dictionaries(st.sampled_from(["logOffset", "flights"]), st.integers(min_value=0)),
)


@given(
    about=st.fixed_dictionaries(
        {
            "batchTimestampMs": st.integers(min_value=0),
            "batchWatermarkMs": st.integers(min_value=0),
            "conf": st.dictionaries(st.text(), st.text()),
        }
    ),
    offsets=st.lists(_OFFSET, max_size=4),
    named=st.booleans(),
)
def test_what_spark_writes_is_read_back(
    about: dict[str, Any], offsets: list[Any], named: bool
) -> None:
    written = [json.dumps(offset) if offset is not None else "-" for offset in offsets]
    if named:
        written = [
            line if line == "-" else f"source-{place}:{line}" for place, line in enumerate(written)
        ]
    text = "\n".join(["v2" if named else "v1", json.dumps(about), *written])
    found = read_offsets(1, text)
    assert list(found.sources.values()) == offsets
    assert (found.timestamp_ms, found.watermark_ms) == (
        about["batchTimestampMs"],
        about["batchWatermarkMs"],
    )
    assert found.conf == about["conf"]


@given(st.text())
def test_any_other_text_is_unreadable_and_nothing_worse(text: str) -> None:
    for read in (read_offsets, read_commit):
        with suppress(Unreadable):
            assert read(0, text).version in ("v1", "v2")


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
