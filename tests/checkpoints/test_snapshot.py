"""Copies of checkpoints: whole, of one batch, with nothing of the original touched."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from queries.checkpoints.snapshot import CannotCopy, Copied, remove, snapshot
from tests.checkpoints.forms import compact_source, names, tree, write_batch, write_checkpoint

STORES = ["delta", "zip", "changelog", "v2"]


def _location(root: Path) -> str:
    return f"file://{root}"


@pytest.mark.parametrize("store", STORES)
def test_a_copy_holds_the_newest_committed_batch_and_nothing_of_the_next(
    tmp_path: Path, store: str
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(6), store=store, in_flight=True)
    before = tree(root)
    copied = snapshot(_location(root), tmp_path / "copy")
    assert copied.batch == 5
    assert names(tmp_path / "copy/offsets") == names(tmp_path / "copy/commits") == set("012345")
    assert names(tmp_path / "copy/sources/0") == set("012345")
    held = names(tmp_path / "copy/state/0/1")
    assert any(name.startswith("6") for name in held)
    assert not any(name.startswith("7") for name in held)
    assert (tmp_path / "copy/state/0/_metadata/metadata").exists()
    assert (tmp_path / "copy/state/0/0/_metadata/schema").exists()
    assert not list((tmp_path / "copy").rglob(".*"))
    assert tree(root) == before
    assert copied.files == len(tree(tmp_path / "copy"))
    assert names(tmp_path) == {"cp", "copy"}


@pytest.mark.parametrize("store", STORES)
def test_a_copy_to_run_a_batch_again_has_its_offsets_and_neither_commit_nor_state(
    tmp_path: Path, store: str
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(6), store=store)
    copied = snapshot(_location(root), tmp_path / "copy", keep_commit=False)
    assert copied.batch == 5
    assert names(tmp_path / "copy/offsets") == set("012345")
    assert names(tmp_path / "copy/commits") == set("01234")
    assert not any(name.startswith("6") for name in names(tmp_path / "copy/state/0/0"))


@pytest.mark.parametrize("store", STORES)
def test_an_earlier_batch_takes_state_and_sources_back_with_it(tmp_path: Path, store: str) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(12), store=store)
    assert snapshot(_location(root), tmp_path / "copy", 3).batch == 3
    assert names(tmp_path / "copy/sources/0") == set("0123")
    versions = {name.split(".")[0].split("_")[0] for name in names(tmp_path / "copy/state/0/0")}
    assert versions - {"", "SSTs"} == set("1234")
    if store == "zip":
        ssts = names(tmp_path / "copy/state/0/0/SSTs")
        assert ssts == {f"{n:06}-sst.sst" for n in range(1, 5)}


def test_an_sst_file_that_still_grows_is_named_by_no_zip_and_stays_out(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3), store="zip")
    (root / "state/0/0/SSTs/000099-half.sst").write_text("ro")
    snapshot(_location(root), tmp_path / "copy")
    assert "000099-half.sst" not in names(tmp_path / "copy/state/0/0/SSTs")


def test_a_compacted_source_log_comes_with_what_is_needed(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(14))
    compact_source(root, 9)
    snapshot(_location(root), tmp_path / "copy", 11)
    assert names(tmp_path / "copy/sources/0") == {"9.compact", "10", "11"}
    with pytest.raises(CannotCopy, match="source 0 is incomplete up to entry 5"):
        snapshot(_location(root), tmp_path / "early", 5)
    assert names(tmp_path) == {"cp", "copy"}


def test_a_kafka_sources_first_offsets_are_kept(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3), source="kafka")
    snapshot(_location(root), tmp_path / "copy", 1)
    assert names(tmp_path / "copy/sources/0") == {"0"}


def test_files_of_a_source_that_has_not_been_read_are_left_to_it(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(2))
    text = (root / "offsets/1").read_text().split("\n")
    (root / "offsets/1").write_text("\n".join([*text[:2], "-", "-"]))
    (root / "sources/1").mkdir()
    (root / "sources/1/0").write_text('v1\n{"rate":{"0":0}}')
    snapshot(_location(root), tmp_path / "copy")
    assert not (tmp_path / "copy/sources/0").exists()
    assert names(tmp_path / "copy/sources/1") == {"0"}


def test_a_clone_gets_an_id_of_its_own_and_the_original_keeps_its(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(2))
    before = tree(root)
    snapshot(_location(root), tmp_path / "copy", new_id=True)
    identity = json.loads((tmp_path / "copy/metadata").read_text())["id"]
    assert identity != json.loads((root / "metadata").read_text())["id"]
    assert len(identity) == 36
    assert tree(root) == before


def test_the_gap_that_async_progress_tracking_leaves_is_filled(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(0), source="kafka")
    for batch in (0, 3, 7):
        write_batch(root, batch, source="kafka")
    assert snapshot(_location(root), tmp_path / "copy").filled == 6
    assert (tmp_path / "copy/offsets/6").read_text() == (root / "offsets/7").read_text()
    # To run batch 7 again, what it read since the last kept one is read again.
    snapshot(_location(root), tmp_path / "again", keep_commit=False)
    assert (tmp_path / "again/offsets/6").read_text() == (root / "offsets/3").read_text()


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (12, "Batch 12 is not committed .* The checkpoint contains batches 5 to 9"),
        (4, "Batch 4 is not committed .* The checkpoint contains batches 5 to 9"),
        (5, "offsets/4 has been purged"),
    ],
)
def test_a_batch_that_is_out_of_reach_is_refused_with_those_that_are_not(
    tmp_path: Path, batch: int, said: str
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(5, 10), source="kafka")
    with pytest.raises(CannotCopy, match=said):
        snapshot(_location(root), tmp_path / "copy", batch)
    assert names(tmp_path) == {"cp"}


def test_a_batch_whose_state_is_purged_is_refused_by_name(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(8), store="delta")
    for version in range(1, 5):
        (root / f"state/0/1/{version}.delta").unlink()
    (root / "state/0/1/5.snapshot").write_text("whole")
    snapshot(_location(root), tmp_path / "copy", 5)
    with pytest.raises(CannotCopy, match=r"after batch 3 .* version 4 of state/0/1 is missing"):
        snapshot(_location(root), tmp_path / "early", 3)


def test_a_zip_whose_sst_files_are_purged_counts_as_gone(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(8), store="zip")
    (root / "state/0/1/SSTs/000001-sst.sst").unlink()
    snapshot(_location(root), tmp_path / "copy")
    assert {"1.zip", "2.zip"}.isdisjoint(names(tmp_path / "copy/state/0/1"))
    with pytest.raises(CannotCopy, match="version 2"):
        snapshot(_location(root), tmp_path / "early", 1)


def test_what_is_purged_while_it_is_copied_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(8), store="delta")
    for partition in "01":
        (root / f"state/0/{partition}/6.snapshot").write_text("whole")

    def purge() -> None:
        for old in ["offsets/0", "commits/0", "state/0/0/1.delta", "state/0/1/1.delta"]:
            (root / old).unlink(missing_ok=True)

    _on_link(monkeypatch, purge)
    assert snapshot(_location(root), tmp_path / "copy").batch == 7
    assert "1.delta" not in names(tmp_path / "copy/state/0/0")


def test_a_query_that_purges_faster_is_looked_at_again_at_its_newer_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3))

    def overtake() -> None:
        if (root / "offsets/4").exists():
            return
        for batch in (3, 4):
            write_batch(root, batch)
        (root / "commits/2").unlink()

    _on_link(monkeypatch, overtake)
    assert snapshot(_location(root), tmp_path / "copy").batch == 4


def test_nothing_committed_yet_is_said(tmp_path: Path) -> None:
    with pytest.raises(CannotCopy, match="No batch has committed"):
        snapshot(_location(tmp_path / "cp"), tmp_path / "copy")
    root = write_checkpoint(tmp_path / "cp", batches=range(1))
    (root / "offsets/0").write_text("cut")
    with pytest.raises(CannotCopy, match="offsets/0 cannot be read"):
        snapshot(_location(root), tmp_path / "copy")


def test_where_there_are_no_links_files_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3), store="zip")

    def refuse(source: Path, to: Path, **more: object) -> None:
        if not Path(source).exists():
            raise FileNotFoundError(source)
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    copied = snapshot(_location(root), tmp_path / "copy")
    assert copied == Copied(2, len(tree(tmp_path / "copy")), copied.bytes)
    place = tmp_path / "copy/offsets/1"
    assert place.read_text() == (root / "offsets/1").read_text()
    assert place.stat().st_nlink == 1


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3), store="delta")
    before = tree(root)

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    _on_link(monkeypatch, full)
    with pytest.raises(OSError, match="No space left"):
        snapshot(_location(root), tmp_path / "copy")
    assert names(tmp_path) == {"cp"}
    assert tree(root) == before


def test_what_stands_at_the_destination_is_never_replaced(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/mine").write_text("mine")
    with pytest.raises(OSError, match="not empty"):
        snapshot(_location(root), tmp_path / "copy")
    assert names(tmp_path / "copy") == {"mine"}
    assert names(tmp_path) == {"cp", "copy"}


def test_what_a_killed_attempt_left_is_removed_by_the_next(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3))
    (tmp_path / "copy.building-dead").mkdir()
    (tmp_path / "copy.building-dead/offsets").write_text("half")
    snapshot(_location(root), tmp_path / "copy")
    assert names(tmp_path) == {"cp", "copy"}


def test_a_copy_is_removed_whole_and_the_original_stays(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3), store="zip")
    before = tree(root)
    snapshot(_location(root), tmp_path / "copy")
    remove(tmp_path / "copy")
    remove(tmp_path / "copy")
    assert names(tmp_path) == {"cp"}
    assert tree(root) == before


def _on_link(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something after each of the copier's links, as a running query would."""
    link = os.link

    def wrapped(source: Path, to: Path, **more: Any) -> None:
        link(source, to, **more)
        act()

    monkeypatch.setattr(os, "link", wrapped)
