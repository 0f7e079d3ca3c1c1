"""What is read from an Iceberg table's metadata."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.tables.metadata import IcebergSnapshot, metadata_name, read_hint, read_metadata
from tests.domain.tables.logs import ICEBERG_QUERY, iceberg, snapshot

AT = datetime(2026, 11, 27, 1, 32, 24, tzinfo=UTC)


def test_snapshots_are_read_with_their_files_and_the_batch_that_wrote_them() -> None:
    found = read_metadata(iceberg(snapshot(1, AT, files=0, batch=0), snapshot(2, AT, batch=1)))
    assert found is not None
    assert found.id == "3121fedd-c9eb-40bb-8705-e1c97a3aeb1b"
    assert found.whole
    assert found.lineage == (
        IcebergSnapshot(1_000_003, None, AT, 1, "append", 0, 0, 1, ICEBERG_QUERY, 0),
        IcebergSnapshot(2_000_006, 1_000_003, AT, 2, "append", 1, 1000, 2, ICEBERG_QUERY, 1),
    )


def test_only_ancestors_of_the_current_snapshot_are_read_by_a_query() -> None:
    other = snapshot(9, AT, **{"parent-snapshot-id": 1_000_003})
    found = read_metadata(iceberg(snapshot(1, AT), other, snapshot(2, AT)))
    assert found is not None
    assert [one.sequence for one in found.lineage] == [1, 2]


def test_a_circle_of_snapshots_ends() -> None:
    first = snapshot(1, AT, **{"parent-snapshot-id": 2_000_006})
    found = read_metadata(iceberg(first, snapshot(2, AT)))
    assert found is not None
    assert len(found.lineage) == 2


def test_an_empty_table_has_no_snapshots() -> None:
    found = read_metadata(iceberg())
    assert found is not None
    assert (found.lineage, found.whole) == ((), True)


@pytest.mark.parametrize("row", [5, {"snapshot-id": "1"}, {}])
def test_a_damaged_snapshot_takes_no_other_along_and_is_not_passed_over(row: object) -> None:
    text = json.loads(iceberg(snapshot(1, AT), snapshot(2, AT)))
    text["snapshots"].append(row)
    found = read_metadata(json.dumps(text).encode())
    assert found is not None
    assert (len(found.lineage), found.whole) == (2, False)


def test_a_table_whose_current_snapshot_is_missing_is_not_whole() -> None:
    text = json.loads(iceberg(snapshot(1, AT)))
    rows: object
    for rows in ([], {"a": 1}):
        found = read_metadata(json.dumps({**text, "snapshots": rows}).encode())
        assert found is not None
        assert not found.whole


def test_counts_that_a_summary_leaves_out_are_0_only_if_it_has_others() -> None:
    bare = snapshot(1, AT, summary={"operation": 5})
    found = read_metadata(iceberg(bare))
    assert found is not None
    (one,) = found.lineage
    assert (one.operation, one.files, one.bytes, one.all_files) == ("", None, None, None)
    odd = snapshot(1, AT, summary={"added-data-files": "many", "total-data-files": 7})
    found = read_metadata(iceberg(odd))
    assert found is not None
    assert (found.lineage[0].files, found.lineage[0].bytes, found.lineage[0].all_files) == (
        None,
        0,
        7,
    )


@pytest.mark.parametrize(
    ("text", "age", "kept"),
    [
        (iceberg(), timedelta(days=5), 1),
        (
            iceberg(
                **{
                    "history.expire.max-snapshot-age-ms": "3600000",
                    "history.expire.min-snapshots-to-keep": "20",
                }
            ),
            timedelta(hours=1),
            20,
        ),
        (
            iceberg(
                refs={"main": {"max-snapshot-age-ms": 60_000, "min-snapshots-to-keep": 3}},
                **{"history.expire.max-snapshot-age-ms": "3600000"},
            ),
            timedelta(minutes=1),
            3,
        ),
        (iceberg(**{"history.expire.max-snapshot-age-ms": str(2**63 - 1)}), None, 1),
        (iceberg(**{"history.expire.max-snapshot-age-ms": "old"}), None, 1),
    ],
)
def test_the_branch_says_what_expires_or_else_the_table(
    text: bytes, age: timedelta | None, kept: int
) -> None:
    found = read_metadata(text)
    assert found is not None
    assert (found.max_age, found.min_snapshots) == (age, kept)


@given(st.binary(max_size=60))
def test_no_text_breaks_the_reading(text: bytes) -> None:
    read_metadata(text)
    assert read_hint(text) is None or text.strip().isdigit()


def test_other_texts_are_no_metadata() -> None:
    assert read_metadata(b"[]") is None
    assert read_metadata(b"{") is None
    found = read_metadata(b'{"table-uuid":5}')
    assert found is not None
    assert found.id == ""


def test_the_hint_names_the_newest_metadata() -> None:
    assert read_hint(b"7\n") == 7
    assert metadata_name(7) == "v7.metadata.json"
