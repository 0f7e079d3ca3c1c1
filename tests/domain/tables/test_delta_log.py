"""What is read from the files of a Delta table's log."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.tables import metadata as delta_log
from queries.domain.tables.metadata import (
    MOST_PARTS,
    NEW,
    DeltaCheckpoint,
    DeltaCommit,
    TableState,
    checkpoints_in,
    checksum_name,
    commit_name,
    commit_of,
    interval,
    read_checksum,
    read_commit,
    read_last_checkpoint,
    replayed,
    version_of,
)
from tests.domain.tables.logs import QUERY, TABLE, add, checksum, commit, metadata, remove

AT = datetime(2026, 11, 27, 1, 37, 24, tzinfo=UTC)


def test_a_commit_names_its_files_its_time_and_the_batch_that_wrote_it() -> None:
    text = commit(AT, add("a", 16366), remove("b", AT), {"metaData": metadata(x="1")}, batch=1)
    assert read_commit(7, text) == DeltaCommit(
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
    found = read_last_checkpoint(text)
    assert (found.version if found else None) == version


TEN = f"{10:020}.checkpoint"
MAIN = f"{TEN}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, [f"{TEN}.parquet"]),
        ({"parts": 2}, [f"{TEN}.{1:010}.{2:010}.parquet", f"{TEN}.{2:010}.{2:010}.parquet"]),
        ({"v2Checkpoint": {"path": MAIN, "sizeInBytes": 7}}, [MAIN]),
        ({"v2Checkpoint": {"path": "../../secrets"}}, [f"{TEN}.parquet"]),
        ({"v2Checkpoint": MAIN, "parts": "2"}, [f"{TEN}.parquet"]),
    ],
)
def test_the_last_checkpoint_names_its_files(more: dict[str, Any], names: list[str]) -> None:
    found = read_last_checkpoint(json.dumps({"version": 10, "size": 3, **more}).encode())
    assert found == DeltaCheckpoint(10, tuple(names))
    assert checkpoints_in([*names, "_last_checkpoint", commit_name(9)]) == {10: found}


def test_a_checkpoint_of_any_number_of_parts_has_a_limit() -> None:
    found = read_last_checkpoint(b'{"version":10,"parts":1000000000}')
    assert found is not None
    assert len(found.names) == MOST_PARTS + 1


def test_a_checkpoint_that_lacks_a_part_is_none() -> None:
    part = f"{10:020}.checkpoint.{1:010}.{2:010}.parquet"
    assert checkpoints_in([part, f"{'9' * 20}.checkpoint.parquet"]) == {}


def test_what_is_in_force_follows_from_the_commits() -> None:
    texts = [
        commit(AT, {"metaData": metadata()}, add("a", 1), add("b", 20), batch=1),
        commit(AT, remove("a", AT), remove("b", AT), add("c", 300, change=False)),
        commit(AT, {"metaData": metadata(k="v")}, add("d", 4000), batch=2),
    ]
    commits = [read_commit(version, text) for version, text in enumerate(texts)]
    found = replayed(NEW, commits)
    assert (found.version, found.table, found.conf, found.txns) == (
        2,
        TABLE,
        {"k": "v"},
        {QUERY: 2},
    )
    assert (found.files, found.bytes) == (2, 4300)
    assert replayed(replayed(NEW, commits[:1]), commits[1:]) == found
    assert replayed(found, []) == found


def test_after_a_commit_that_cannot_be_read_only_the_tables_id_is_known() -> None:
    texts = [commit(AT, {"metaData": metadata()}, add("a")), b"{half", commit(AT, add("b"))]
    found = replayed(NEW, [read_commit(version, text) for version, text in enumerate(texts)])
    assert found == TableState(2, TABLE)


def test_files_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "MOST_LIVE", 2)
    found = replayed(NEW, [read_commit(0, commit(AT, *map(add, "abc")))])
    assert (found.files, found.bytes, found.live) == (None, None, None)
    assert found.txns == {}


def test_a_checksum_goes_on_with_commits_that_have_none() -> None:
    state = read_checksum(4, checksum(files=7, txns=[(QUERY, 1)]))
    found = replayed(state, [read_commit(5, commit(AT, add("a"), batch=2))])
    assert (found.version, found.table, found.txns) == (5, TABLE, {QUERY: 2})
    assert (found.files, found.bytes) == (None, None)  # the checksum does not list them


def test_a_file_of_unknown_size_is_counted_and_its_bytes_are_not() -> None:
    found = replayed(NEW, [commit_of(0, [{"add": {"path": "a"}}, add("b")])])
    assert (found.files, found.bytes) == (2, None)


def test_sidecars_are_names_in_their_own_folder() -> None:
    found = commit_of(3, [{"sidecar": {"path": "a-1.parquet"}}, {"sidecar": {"path": "../a"}}])
    assert (found.sidecars, found.whole) == (("a-1.parquet",), False)


FILES = st.sampled_from("abcd")
ACTIONS = st.lists(st.builds(add, FILES, st.integers(0, 9)) | st.builds(remove, FILES, st.just(AT)))


@given(st.lists(ACTIONS, max_size=8), st.integers(0, 8))
def test_it_does_not_matter_where_the_replay_is_interrupted(
    logs: list[list[dict[str, Any]]], at: int
) -> None:
    commits = [commit_of(version, actions) for version, actions in enumerate(logs)]
    found = replayed(replayed(NEW, commits[:at]), commits[at:])
    assert found == replayed(NEW, commits)
    files = [{"add": {"path": path, "size": size}} for path, size in (found.live or {}).items()]
    unpacked = replayed(NEW, [commit_of(found.version, files)])  # as its checkpoint has them
    assert (unpacked.files, unpacked.bytes) == (found.files, found.bytes)
