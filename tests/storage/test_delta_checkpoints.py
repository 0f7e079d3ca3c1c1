"""The state of a table whose writer leaves no checksums: from its commits and its checkpoints."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_ground.tool_process import ToolFailed
from queries.domain.tables import metadata as delta_log
from queries.domain.tables.metadata import NEW, commit_of, replayed
from queries.services.checkpoints.storage_jvms import open_checkpoints
from queries.storage import checkpoint_actions, table_logs
from queries.storage.checkpoint_process import CheckpointProcess
from queries.storage.hadoop import LocalFiles, StorageFailed
from queries.storage.table_logs import DeltaLog, read_delta
from tests.domain.tables.logs import (
    QUERY,
    TABLE,
    UNCHECKED,
    WITHOUT_CHECKSUMS,
    add,
    metadata,
)
from tests.storage.delta_checkpoints import write_checkpoint

LIVE = {"c.parquet": 890, "d.parquet": 960}
FOUR = f"{4:020}.checkpoint"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a table without checksums: the versions 0 to 4."""
    place = tmp_path / "_delta_log"
    shutil.copytree(WITHOUT_CHECKSUMS, place)
    return place


def actions() -> list[dict[str, Any]]:
    """Return what is in force as of version 4."""
    files = [{"add": {"path": path, "size": size}} for path, size in LIVE.items()]
    about = metadata(**{"delta.logRetentionDuration": "interval 2 days"}) | {"id": UNCHECKED}
    gone = {"remove": {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": True}}
    txn = {"txn": {"appId": QUERY, "version": 7}}
    return [{"protocol": {"minReaderVersion": 1}}, {"metaData": about}, txn, gone, *files]


def without_walls() -> CheckpointProcess:
    """Start the process as a worker does, but not within walls."""
    argv = [sys.executable, "-P", "-m", "queries.storage.checkpoint_actions"]
    pipe, env = subprocess.PIPE, os.environ | {"PYTHONPATH": os.getcwd()}
    return CheckpointProcess(subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env))


def never() -> CheckpointProcess:
    raise AssertionError("a checkpoint was opened")


def read(log: Path, **more: Any) -> DeltaLog:
    return read_delta(
        LocalFiles(), log.parent.as_uri(), **{"whole": True, "unpack": without_walls, **more}
    )


def drop(log: Path, *versions: int) -> None:
    for version in versions:
        (log / f"{version:020}.json").unlink()


def test_without_a_checkpoint_the_commits_are_enough(log: Path) -> None:
    found = read(log, needed=[0], snapshots=[0], unpack=never)
    assert (found.newest, found.state.table, found.state.live) == (4, UNCHECKED, LIVE)
    assert (found.states[0].files, found.states[0].bytes) == (1, 900)


def test_the_next_time_only_the_new_commit_is_added(log: Path) -> None:
    known = read(log, needed=[5])
    (log / f"{5:020}.json").write_text(json.dumps(add("e", 10)))
    drop(log, 0, 1, 2, 3)
    found = read(log, needed=[5], earlier_log=known, unpack=never)
    assert (found.state.version, found.state.files, found.state.bytes) == (5, 3, 1860)


def parts_of(log: Path) -> None:
    for part, some in enumerate((actions()[:3], actions()[3:5], actions()[5:]), 1):
        write_checkpoint(log / f"{FOUR}.{part:010}.{3:010}.parquet", *some)


def one_of(log: Path) -> None:
    write_checkpoint(log / f"{FOUR}.parquet", *actions())


def with_sidecars(log: Path) -> None:
    listed = [{"sidecar": {"path": f"{name}.parquet", "sizeInBytes": 9}} for name in "xy"]
    main = log / f"{FOUR}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"
    write_checkpoint(main, *actions()[:3], *listed)
    for name, file in zip("xy", actions()[4:], strict=True):
        write_checkpoint(log / "_sidecars" / f"{name}.parquet", file)


def in_json(log: Path) -> None:
    main = log / f"{FOUR}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    main.write_text("\n".join(json.dumps(one) for one in actions()))


@pytest.mark.parametrize("hint", [{}, {"parts": 3}, None])
@pytest.mark.parametrize("write", [one_of, parts_of, with_sidecars, in_json])
@pytest.mark.parametrize("gone", [range(4), range(5)])
def test_a_checkpoint_is_enough_without_the_first_commits(
    log: Path, write: Callable[[Path], None], hint: dict[str, int] | None, gone: Collection[int]
) -> None:
    write(log)
    if hint is not None:  # it may name files that are not there: then they are looked for
        (log / "_last_checkpoint").write_text(json.dumps({"version": 4, "size": 6, **hint}))
    drop(log, *gone)
    found = read(log, needed=[5], snapshots=[4])
    assert (found.newest, found.earliest, found.unknown) == (4, None, "")
    assert (found.state.table, found.state.live) == (UNCHECKED, LIVE)
    assert (found.state.files, found.state.bytes, found.state.txns) == (2, 1850, {QUERY: 7})
    assert str(found.state.log_retention) == "2 days, 0:00:00"
    again = read(log, needed=[5], snapshots=[4], earlier_log=found, unpack=never)
    assert again.state.live == LIVE


def test_the_table_as_of_an_older_version_is_that_of_an_older_checkpoint(log: Path) -> None:
    one_of(log)
    for version in range(5, 9):
        (log / f"{version:020}.json").write_text(json.dumps(add(str(version), 10)))
    write_checkpoint(log / f"{8:020}.checkpoint.parquet", *actions())
    (log / "_last_checkpoint").write_text('{"version":8,"size":6}')
    drop(log, *range(5))
    found = read(log, needed=[6], snapshots=[6])
    assert (found.states[6].files, found.states[8].files) == (4, 2)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda file: file.write_bytes(b"PAR1 nonsense"), "ArrowInvalid"),
        (lambda file: file.write_bytes(file.read_bytes() * 60), "has more than 65536 bytes"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_unknown_and_not_tried_at_once_again(
    log: Path,
    damage: Callable[[Path], None],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_logs, "MOST_OF_CHECKPOINT", 65536)
    one_of(log)
    damage(log / f"{FOUR}.parquet")
    (log / "_last_checkpoint").write_text('{"version":4,"size":6}')
    drop(log, 0)
    found = read(log, needed=[4])
    assert (found.state.table, found.state.files) == ("", None)
    assert why in found.unknown
    again = read(log, needed=[4], earlier_log=found, unpack=never)
    assert why in again.unknown


def test_without_the_first_commits_and_a_checkpoint_the_state_is_unknown(log: Path) -> None:
    drop(log, 0)
    found = read(log, needed=[4])
    assert (found.state.table, found.newest) == ("", 4)
    assert "no checkpoint, and its first commits were removed" in found.unknown


def test_a_checkpoint_that_is_a_link_is_not_followed(log: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "secret", *actions())
    (log / f"{FOUR}.parquet").symlink_to(tmp_path / "secret")
    (log / "_last_checkpoint").write_text('{"version":4,"size":6}')
    with pytest.raises(StorageFailed, match="not a regular file"):
        read(log, needed=[4])


def test_of_very_many_files_only_the_number_is_unknown(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = log / f"{FOUR}.parquet"
    one_of(log)
    monkeypatch.setattr(checkpoint_actions, "MOST_LIVE", 1)
    said = checkpoint_actions.answer(file.read_bytes())
    assert said["more"]
    assert [next(iter(one)) for one in said["actions"]] == ["metaData", "txn"]
    monkeypatch.setattr(delta_log, "MOST_LIVE", 1)
    (log / "_last_checkpoint").write_text('{"version":4,"size":6}')
    found = read(log, needed=[4])
    assert (found.state.table, found.state.files, found.state.live) == (UNCHECKED, None, None)


@pytest.mark.walls
@pytest.mark.parametrize("walls", ["bubblewrap", "neither"])
def test_within_walls_a_checkpoint_is_read(log: Path, walls: str, settings: Any) -> None:
    from queries.launchers.process.isolation import self_test

    settings.ISOLATION = walls
    self_test._isolation.cache_clear()
    one_of(log)
    with open_checkpoints() as process:
        told, more = process.actions((log / f"{FOUR}.parquet").read_bytes())
        with pytest.raises(ToolFailed, match="ArrowInvalid"):
            process.actions(b"nonsense")
    self_test._isolation.cache_clear()
    assert not more
    assert replayed(NEW, [commit_of(4, told)]).live == LIVE


FILES = st.dictionaries(st.text("ab/=%20 é", min_size=1), st.integers(0, 2**62) | st.none())


@given(FILES, st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_what_is_written_to_a_checkpoint_is_read_from_it(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, int | None], conf: dict[str, str]
) -> None:
    file = tmp_path_factory.mktemp("log") / f"{FOUR}.parquet"
    rows = [{"add": {"path": path, "size": size}} for path, size in files.items()]
    write_checkpoint(file, {"metaData": metadata(**conf)}, *rows)
    found = list(checkpoint_actions.actions_in(file.read_bytes()))
    state = replayed(NEW, [commit_of(4, found)])
    assert (state.table, state.conf, state.live) == (TABLE, conf, files)


@given(st.binary(max_size=200))
def test_no_bytes_are_taken_for_a_checkpoint(data: bytes) -> None:
    with pytest.raises(Exception, match=r".+"):
        list(checkpoint_actions.actions_in(data))
