"""What a table does with batches that are written again, in words."""

from datetime import UTC, datetime

import pytest

from queries.domain.tables.metadata import (
    IcebergTable,
    TableState,
    read_checksum,
    read_commit,
    read_metadata,
)
from queries.domain.tables.replay import (
    InTable,
    continued,
    in_delta,
    in_iceberg,
    new_id,
    restarted,
    resumed,
    rewound,
    unknown,
)
from tests.domain.tables.logs import (
    ICEBERG_QUERY,
    QUERY,
    add,
    checksum,
    commit,
    iceberg,
    snapshot,
)

AT = datetime(2026, 11, 27, 1, 30, tzinfo=UTC)


def test_the_newest_batch_in_a_delta_table_is_that_of_its_state_and_later_commits() -> None:
    state = read_checksum(3, checksum(txns=[(QUERY, 40), ("another", 99)]))
    later = read_commit(4, commit(AT, add("a"), batch=41))
    assert in_delta(QUERY, state, []) == InTable(40)
    assert in_delta(QUERY, state, [later]) == InTable(41)
    assert in_delta("nobody", state, [later]) == InTable(None)
    assert in_delta(QUERY, TableState(4), [later]) == InTable(41)
    assert in_delta("nobody", TableState(4), [later]) == InTable(None, certain=False)


def test_the_newest_batch_in_an_iceberg_table_is_that_of_its_newest_snapshot() -> None:
    table = read_metadata(iceberg(*(snapshot(n, AT, batch=n + 4) for n in (1, 2))))
    assert table is not None
    assert in_iceberg(ICEBERG_QUERY, table) == InTable(6)
    assert in_iceberg("nobody", table) == InTable(None)
    assert in_iceberg("nobody", IcebergTable("", whole=False)) == InTable(None, certain=False)


def test_a_rewind_is_skipped_up_to_the_newest_batch_in_the_table() -> None:
    said = " ".join(rewound("out", InTable(41), 29, 41))
    assert "Table out has the batches of this query up to 41." in said
    assert "Batches 30 to 41 will run again and be skipped by the table" in said
    assert "batch 30 reads all that its source offers now" in said
    assert "lost" in said
    assert "will be added" not in said


def test_batches_that_the_table_does_not_have_are_added() -> None:
    said = " ".join(rewound("out", InTable(30), 29, 41))
    assert "Batch 30 will run again and be skipped" in said
    assert "Batches 31 to 41 will be added" in said
    assert "The replayed batches are not in the table" in rewound("out", InTable(29), 29, 41)[0]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (InTable(None), "so it skips nothing"),
        (InTable(None, certain=False), "it may skip batches"),
    ],
)
def test_a_table_without_a_batch_of_the_query_skips_nothing_if_that_is_certain(
    found: InTable, said: str
) -> None:
    for lines in (
        rewound("out", found, 3, 5),
        restarted("out", found),
        continued("out", found, 3),
    ):
        assert said in lines[0]


def test_batch_numbers_that_begin_again_lose_rows() -> None:
    (said,) = restarted("out", InTable(41))
    assert "the table skips batches 0 to 41, whatever they contain: those rows are lost" in said


def test_batch_numbers_that_go_on_write_rows_twice() -> None:
    (said,) = continued("out", InTable(41), 41)
    assert "The next batch is 42, so nothing is skipped" in said
    (said,) = continued("out", InTable(42), 41)
    assert "Batch 42 will be skipped, and the rows in skipped batches are lost" in said


def test_a_new_id_is_never_skipped() -> None:
    assert "twice" in new_id("out", same=True)[0]
    assert "twice" not in new_id("out", same=False)[0]


def test_a_batch_that_was_written_before_it_could_commit_is_skipped() -> None:
    assert "Batch 42 was written before Spark could commit it" in resumed("out", InTable(42), 42)[0]
    for found, batch in ((InTable(41), 42), (InTable(None), 42), (InTable(41), None)):
        assert "skips nothing" in resumed("out", found, batch)[0]


def test_what_is_certain_without_the_log_is_said() -> None:
    (said,) = unknown("out", "The storage refused access.")
    assert said.startswith("What table out will do is unknown: The storage refused access. ")


def test_going_on_after_an_incomplete_search_claims_nothing() -> None:
    (said,) = resumed("out", InTable(None, certain=False), 42)
    assert "it may skip batches" in said
