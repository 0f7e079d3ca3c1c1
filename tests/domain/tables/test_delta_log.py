"""What is read from the files of a Delta table's log."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.tables.delta_log import (
    Commit,
    TableState,
    checksum_name,
    commit_name,
    interval,
    read_checksum,
    read_commit,
    read_last_checkpoint,
    version_of,
)
from tests.domain.tables.logs import QUERY, TABLE, add, checksum, commit, metadata, remove

AT = datetime(2026, 11, 27, 1, 37, 24, tzinfo=UTC)


def test_a_commit_names_its_files_its_time_and_the_batch_that_wrote_it() -> None:
    text = commit(AT, add("a", 16366), remove("b", AT), {"metaData": metadata(x="1")}, batch=1)
    assert read_commit(7, text) == Commit(
        version=7,
        at=AT,
        added=(("part-a.snappy.parquet", 16366),),
        removed=(("part-b.snappy.parquet", AT),),
        txns={QUERY: 1},
        table=TABLE,
        conf={"x": "1"},
    )


def test_files_that_only_reorganize_data_are_not_for_readers() -> None:
    assert read_commit(0, commit(AT, add("a", change=False))).added == ()


def test_the_time_in_the_commit_goes_before_its_writers_clock() -> None:
    later = AT + timedelta(seconds=5)
    info = {"timestamp": 1, "inCommitTimestamp": int(later.timestamp() * 1000)}
    assert read_commit(0, json.dumps({"commitInfo": info}).encode()).at == later


@pytest.mark.parametrize(
    "line",
    [
        b'{"add":{"path":"half',
        b"[1]",
        b'{"add":{"size":1}}',
        b'{"remove":5}',
        b'{"txn":{"appId":"q","version":-1}}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_line_takes_no_other_line_along_and_is_not_counted_as_nothing(
    line: bytes,
) -> None:
    found = read_commit(3, commit(AT, add("a")) + line + b"\n\n" + commit(AT, batch=4))
    assert not found.whole
    assert len(found.added) == 1
    assert found.txns == {QUERY: 4}


@given(st.lists(st.binary(max_size=40) | st.just(b'{"add":{"path":"x","size":"1"}}')))
def test_no_text_breaks_the_reading_of_a_log(lines: list[bytes]) -> None:
    text = b"\n".join(lines)
    assert read_commit(0, text).version == 0
    assert read_checksum(0, text).version == 0
    assert read_last_checkpoint(text) is None


def test_a_checksum_describes_the_table() -> None:
    text = checksum(3, 500, [(QUERY, 41)], **{"delta.logRetentionDuration": "interval 2 days"})
    found = read_checksum(9, text)
    assert (found.table, found.files, found.bytes, found.txns) == (TABLE, 3, 500, {QUERY: 41})
    assert found.log_retention == timedelta(days=2)
    assert found.file_retention == timedelta(days=7)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (b"{}", TableState(1)),
        (b"nonsense", TableState(1)),
        (
            b'{"numFiles":-1,"metadata":{"id":5,"configuration":[]},"setTransactions":'
            b'[5,{"appId":5,"version":1},{"appId":"q","version":"1"},{"appId":"r","version":2}]}',
            TableState(1, conf={}, txns={"r": 2}),
        ),
    ],
)
def test_what_a_checksum_does_not_say_is_unknown(text: bytes, known: TableState) -> None:
    assert read_checksum(1, text) == known


def test_retention_is_unknown_without_the_tables_configuration() -> None:
    assert (TableState(1).log_retention, TableState(1).file_retention) == (None, None)


def test_a_log_that_is_never_cleaned_up_has_no_retention() -> None:
    assert TableState(1, conf={"delta.enableExpiredLogCleanup": "false"}).log_retention is None
    assert TableState(1, conf={}).log_retention == timedelta(days=30)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("interval 30 days", timedelta(days=30)),
        ("INTERVAL 1 WEEK", timedelta(weeks=1)),
        ("1 day 12 hours", timedelta(hours=36)),
        (" 720 hours ", timedelta(days=30)),
        ("interval 2 months", None),
        ("interval 999999999999 weeks", None),
        ("interval -1 day", None),
        ("interval", None),
        ("", None),
        ("soon", None),
        ("interval 1 day soon", None),
    ],
)
def test_durations_are_read_as_spark_writes_them(text: str, length: timedelta | None) -> None:
    assert interval(text) == length


@given(st.integers(0, 10**18))
def test_a_version_has_a_name_of_twenty_digits(version: int) -> None:
    assert version_of(commit_name(version)) == version
    assert version_of(checksum_name(version)) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [(b'{"version":10,"size":3}', 10), (b'{"version":-1}', None), (b"10", None), (b"", None)],
)
def test_the_last_checkpoint_names_a_version(text: bytes, version: Any) -> None:
    assert read_last_checkpoint(text) == version
