"""The logs of tables are read within limits, and only what is new since the last time."""

import gzip
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from queries.domain.tables.metadata import checksum_name, commit_name
from queries.storage import table_logs
from queries.storage.hadoop import FileContent, Listing, LocalFiles, StorageFailed
from queries.storage.table_logs import NoTable, read_delta, read_iceberg
from tests.domain.tables.logs import QUERY, TABLE, add, checksum, commit, iceberg, snapshot

AT = datetime(2026, 11, 27, 1, 30, tzinfo=UTC)


class Counted(LocalFiles):
    """Local files that note which names were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.listed = 0

    def read(self, place: str, names: Iterable[str], *, most: int) -> dict[str, FileContent]:
        self.asked += (names := list(names))
        return super().read(place, names, most=most)

    def list(self, place: str, *, deep: bool = False, most: int) -> Listing:
        self.listed += 1
        return super().list(place, deep=deep, most=most)


def write_version(table: Path, version: int, *files: str) -> None:
    """Write a commit and its checksum, as Delta does."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    text = commit(AT, *(add(name) for name in files), batch=version)
    (log / commit_name(version)).write_bytes(text)
    (log / checksum_name(version)).write_bytes(checksum(txns=[(QUERY, version)]))


def test_the_newest_version_is_found_without_a_listing(tmp_path: Path) -> None:
    for version in range(30):
        write_version(tmp_path, version, f"f{version}")
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version":20,"size":3}')
    files = Counted()
    log = read_delta(files, tmp_path.as_uri(), needed=[27])
    assert (log.newest, sorted(log.commits)) == (29, [27, 28, 29])
    assert (log.state.table, log.state.txns) == (TABLE, {QUERY: 29})
    assert files.listed == 0
    assert commit_name(5) not in files.asked


def test_the_next_time_only_new_commits_are_read(tmp_path: Path) -> None:
    for version in range(5):
        write_version(tmp_path, version)
    files = Counted()
    log = read_delta(files, tmp_path.as_uri(), needed=[2])
    write_version(tmp_path, 5)
    files.asked.clear()
    log = read_delta(files, tmp_path.as_uri(), needed=[3], earlier_log=log)
    assert sorted(log.commits) == [3, 4, 5]
    assert commit_name(3) not in files.asked
    assert (log.newest, log.state.version) == (5, 5)


def test_a_table_that_was_created_again_is_read_from_the_beginning(tmp_path: Path) -> None:
    for version in range(5):
        write_version(tmp_path, version, "old")
    log = read_delta(LocalFiles(), tmp_path.as_uri(), needed=[0])
    for path in (tmp_path / "_delta_log").iterdir():
        path.unlink()
    write_version(tmp_path, 0, "new")
    log = read_delta(LocalFiles(), tmp_path.as_uri(), needed=[0], earlier_log=log)
    assert (log.newest, log.commits[0].added[0][0]) == (0, "part-new.snappy.parquet")


def test_the_first_version_that_is_left_is_found_when_one_is_missing(tmp_path: Path) -> None:
    for version in range(8):
        write_version(tmp_path, version)
    for version in range(5):
        (tmp_path / "_delta_log" / commit_name(version)).unlink()
    log = read_delta(LocalFiles(), tmp_path.as_uri(), needed=[3])
    assert (log.newest, log.earliest) == (7, 5)


def test_a_long_backlog_is_read_in_several_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_logs, "COMMITS_PER_PASS", 20)
    for version in range(60):
        write_version(tmp_path, version)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"version":59,"size":3}')
    log = read_delta(LocalFiles(), tmp_path.as_uri(), needed=[0])
    assert log.newest == 59
    assert len(log.commits) < 30
    for _ in range(3):
        log = read_delta(LocalFiles(), tmp_path.as_uri(), needed=[0], earlier_log=log)
    assert sorted(log.commits) == list(range(60))


def test_a_commit_that_is_too_large_is_unknown_and_not_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_logs, "MOST_OF_COMMIT", 4000)
    write_version(tmp_path, 0)
    write_version(tmp_path, 1, *(f"f{number}" for number in range(50)))
    write_version(tmp_path, 2)
    log = read_delta(LocalFiles(), tmp_path.as_uri(), needed=[0])
    assert (log.newest, log.commits[1].whole, log.commits[2].whole) == (2, False, True)


def test_a_link_out_of_the_table_is_not_followed(tmp_path: Path) -> None:
    write_version(tmp_path, 0)
    (tmp_path / "secret").write_bytes(commit(AT, add("a")))
    os.symlink(tmp_path / "secret", tmp_path / "_delta_log" / commit_name(1))
    with pytest.raises(StorageFailed):
        read_delta(LocalFiles(), tmp_path.as_uri(), needed=[0])


def test_without_a_checksum_the_tables_state_is_that_of_its_commits(tmp_path: Path) -> None:
    write_version(tmp_path, 0)
    (tmp_path / "_delta_log" / checksum_name(0)).unlink()
    log = read_delta(LocalFiles(), tmp_path.as_uri(), needed=[0])
    assert (log.state.version, log.state.txns, log.state.files) == (0, {QUERY: 0}, 0)
    assert log.state.table == ""  # this one's first commit does not state it


def write_metadata(table: Path, version: int, *, hint: bool = True, packed: bool = False) -> None:
    """Write the version of a table with so many snapshots, as Iceberg does."""
    folder = table / "metadata"
    folder.mkdir(parents=True, exist_ok=True)
    text = iceberg(*(snapshot(number, AT) for number in range(1, version + 1)))
    if packed:
        (folder / f"v{version}.gz.metadata.json").write_bytes(gzip.compress(text))
    else:
        (folder / f"v{version}.metadata.json").write_bytes(text)
    if hint:
        (folder / "version-hint.text").write_text(str(version))


def test_the_newest_metadata_may_be_newer_than_the_hint(tmp_path: Path) -> None:
    write_metadata(tmp_path, 2)
    write_metadata(tmp_path, 3, hint=False, packed=True)
    found = read_iceberg(LocalFiles(), tmp_path.as_uri())
    assert (found.version, len(found.table.lineage)) == (3, 3)


def test_metadata_that_is_known_is_not_read_again(tmp_path: Path) -> None:
    write_metadata(tmp_path, 3)
    files = Counted()
    known = read_iceberg(files, tmp_path.as_uri())
    files.asked.clear()
    assert read_iceberg(files, tmp_path.as_uri(), known) is known
    assert "v3.metadata.json" not in files.asked
    write_metadata(tmp_path, 4)
    assert read_iceberg(files, tmp_path.as_uri(), known).version == 4


def test_without_a_hint_the_newest_metadata_is_looked_for(tmp_path: Path) -> None:
    for version in (1, 2, 10):
        write_metadata(tmp_path, version, hint=False)
    assert read_iceberg(LocalFiles(), tmp_path.as_uri()).version == 10


@pytest.mark.parametrize("packed", [True, False])
def test_metadata_that_is_too_large_is_not_absent(
    tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_metadata(tmp_path, 2)
    known = read_iceberg(LocalFiles(), tmp_path.as_uri())
    write_metadata(tmp_path, 9, hint=False, packed=packed)
    name = "v3.gz.metadata.json" if packed else "v3.metadata.json"
    large = next((tmp_path / "metadata").glob("v9.*"))
    limit = large.stat().st_size + 500  # the packed one is below it
    monkeypatch.setattr(table_logs, "MOST_OF_METADATA", limit if packed else limit - 501)
    large.rename(tmp_path / "metadata" / name)
    for before in (None, known):
        with pytest.raises(StorageFailed, match=rf"{name} has more than \d+ bytes") as raised:
            read_iceberg(LocalFiles(), tmp_path.as_uri(), before)
        assert ("unpacked" in str(raised.value)) is packed


def test_a_hint_of_metadata_that_is_gone_is_named(tmp_path: Path) -> None:
    write_metadata(tmp_path, 2)
    (tmp_path / "metadata" / "version-hint.text").write_text("7")
    with pytest.raises(NoTable, match=r"v7.metadata.json, which version-hint.text names, does not"):
        read_iceberg(LocalFiles(), tmp_path.as_uri())


def test_a_folder_with_too_many_names_is_not_one_without_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_logs, "MOST_NAMES", 2)
    for version in (1, 2, 3):
        write_metadata(tmp_path, version, hint=False)
    with pytest.raises(StorageFailed, match="has more than 2 names"):
        read_iceberg(LocalFiles(), tmp_path.as_uri())


@pytest.mark.parametrize("read", [read_delta, read_iceberg])
def test_a_folder_without_a_table_is_named(tmp_path: Path, read: object) -> None:
    with pytest.raises(NoTable, match=r"There is no \w+ table"):
        read(LocalFiles(), tmp_path.as_uri())  # type: ignore[operator]


def test_damaged_metadata_is_named(tmp_path: Path) -> None:
    write_metadata(tmp_path, 2)
    (tmp_path / "metadata" / "v2.metadata.json").write_text("{half")
    with pytest.raises(NoTable, match=r"v2\.metadata\.json cannot be read"):
        read_iceberg(LocalFiles(), tmp_path.as_uri())


def test_an_iceberg_table_that_was_created_again_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "metadata"
    folder.mkdir()
    (folder / "v10.metadata.json").write_bytes(iceberg(snapshot(1, AT), snapshot(2, AT)))
    (folder / "version-hint.text").write_text("10")
    known = read_iceberg(LocalFiles(), tmp_path.as_uri(), None)
    (folder / "v10.metadata.json").unlink()
    (folder / "v3.metadata.json").write_bytes(iceberg(snapshot(7, AT)))
    (folder / "version-hint.text").write_text("3")
    found = read_iceberg(LocalFiles(), tmp_path.as_uri(), known)
    assert len(known.table.lineage) == 2
    assert len(found.table.lineage) == 1


def test_a_log_without_a_checkpoint_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_logs, "COMMITS_PER_PASS", 20)
    for version in range(100):
        write_version(tmp_path, version)
    log = read_delta(LocalFiles(), tmp_path.as_uri())
    assert log.newest == 99
    assert len(log.commits) < 50
