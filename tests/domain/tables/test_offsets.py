"""The offsets of table sources, in the form that Spark's checkpoints have."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.tables.replay import DeltaOffset, IcebergOffset, delta_offset, iceberg_offset

DELTA = {
    "sourceVersion": 1,
    "reservoirId": "c0183fee-1b60-4f5a-88e1-0cf1868e6bf0",
    "reservoirVersion": 2,
    "index": -1,
    "isStartingVersion": False,
}
ICEBERG = {
    "version": 1,
    "snapshot_id": 5199853319064552797,
    "position": 0,
    "scan_all_files": False,
}


def test_a_delta_offset_names_the_version_that_is_read_next() -> None:
    assert delta_offset(DELTA) == DeltaOffset("c0183fee-1b60-4f5a-88e1-0cf1868e6bf0", 2, -1)
    assert delta_offset({**DELTA, "index": 7, "isStartingVersion": True}) == DeltaOffset(
        "c0183fee-1b60-4f5a-88e1-0cf1868e6bf0", 2, 7, initial=True
    )


def test_an_iceberg_offset_names_a_snapshot_and_how_many_of_its_files_are_read() -> None:
    assert iceberg_offset(ICEBERG) == IcebergOffset(5199853319064552797)
    assert iceberg_offset({**ICEBERG, "position": 3, "scan_all_files": True}) == IcebergOffset(
        5199853319064552797, 3, initial=True
    )
    assert iceberg_offset({**ICEBERG, "snapshot_id": -1, "position": -1}) == IcebergOffset(None)


@pytest.mark.parametrize(
    "value",
    [
        {**DELTA, "reservoirId": 5},
        {**DELTA, "reservoirVersion": -1},
        {**DELTA, "index": "0"},
        {**ICEBERG, "snapshot_id": "1"},
        {**ICEBERG, "position": None},
    ],
)
def test_offsets_in_another_form_are_unknown(value: Any) -> None:
    assert (delta_offset(value), iceberg_offset(value)) == (None, None)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
def test_offsets_of_other_sources_are_none_of_a_table(value: Any) -> None:
    assert delta_offset(value) is None
    assert iceberg_offset(value) is None
