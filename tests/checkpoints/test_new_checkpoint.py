"""Checkpoints built to begin elsewhere, and the files that a source would find."""

import json
from pathlib import Path

import pytest

from queries.checkpoints.batches import exists, files_of_source, local
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.new_checkpoint import Fresh, SourceStart, fresh
from queries.checkpoints.snapshot import CannotCopy
from tests.checkpoints.forms import names, put, tree, write_checkpoint

NOW_MS = 1_772_452_800_000


def test_a_stateless_query_goes_on_counting_from_the_offsets_that_are_wanted(
    tmp_path: Path,
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(6), source="kafka", in_flight=True)
    before = tree(root)
    wanted = [SourceStart("0", {"flights": {"0": 12}})]
    built = fresh(CheckpointLogs(root), tmp_path / "new", wanted, now_ms=NOW_MS)
    assert built == Fresh(6)  # above the batch in flight: a sink may hold its number already
    assert names(tmp_path / "new") == {"metadata", "offsets", "commits"}
    assert names(tmp_path / "new/offsets") == {"5", "6"}
    assert names(tmp_path / "new/commits") == {"6"}
    found = CheckpointLogs(tmp_path / "new").offsets(6)
    assert found is not None
    assert found.sources == {"0": {"flights": {"0": 12}}}
    assert (found.timestamp_ms, found.watermark_ms) == (NOW_MS, 0)
    assert found.conf == {"spark.sql.shuffle.partitions": "2"}
    assert tree(root) == before


def test_named_sources_and_continuous_epochs_keep_their_form(tmp_path: Path) -> None:
    root = tmp_path / "cp"
    put(root / "metadata", '{"id":"a"}')
    put(root / "offsets/3", 'v2\n\nleft:{"flights":{"0":3}}\nright:{"flights":{"1":9}}')
    wanted = [SourceStart("left", {"flights": {"0": 1}}), SourceStart("right")]
    fresh(CheckpointLogs(root), tmp_path / "new", wanted, now_ms=NOW_MS)
    text = (tmp_path / "new/offsets/3").read_text()
    assert text == 'v2\n\nleft:{"flights":{"0":1}}\nright:-'


def test_the_very_first_batch_has_none_before_it(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(1))
    wanted = [SourceStart("0", passed=(("file:///in/a.json", 5),))]
    fresh(CheckpointLogs(root), tmp_path / "new", wanted, now_ms=NOW_MS)
    assert names(tmp_path / "new/offsets") == {"0"}
    line = (tmp_path / "new/sources/0/0").read_text().split("\n")[1]
    assert json.loads(line) == {"path": "file:///in/a.json", "timestamp": 5, "batchId": 0}


def test_a_stateful_kafka_query_finds_its_first_offsets_where_the_source_keeps_them(
    tmp_path: Path,
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3), source="kafka", store="delta")
    wanted = [SourceStart("0", {"flights": {"0": 12}}), SourceStart("1")]
    built = fresh(CheckpointLogs(root), tmp_path / "new", wanted, now_ms=NOW_MS)
    assert built == Fresh(None)
    assert set(tree(tmp_path / "new")) == {"metadata", "sources/0/0"}
    assert (tmp_path / "new/sources/0/0").read_bytes() == b'\0v1\n{"flights":{"0":12}}'


def test_what_cannot_be_built_leaves_nothing(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3), store="delta")
    passed = [SourceStart("0", passed=(("file:///in/a.json", 5),))]
    with pytest.raises(CannotCopy, match="only start with its first file"):
        fresh(CheckpointLogs(root), tmp_path / "new", passed, now_ms=NOW_MS)
    with pytest.raises(CannotCopy, match="No batch has started"):
        fresh(CheckpointLogs(tmp_path / "none"), tmp_path / "new", [], now_ms=NOW_MS)
    assert names(tmp_path) == {"cp"}


def test_files_are_found_as_spark_lists_them(tmp_path: Path) -> None:
    for name in ("a b.json", "day=1/c.json", "_hidden/d.json", ".e.json", "_f", "g%ü.json"):
        put(tmp_path / "in" / name, "{}")
    found = files_of_source(str(tmp_path / "in"))
    assert {uri.removeprefix(f"file://{tmp_path}/in/") for uri, _ in found} == {
        "a%20b.json",
        "day=1/c.json",
        "g%25ü.json",
    }
    assert all(modified > 1_600_000_000_000 for _, modified in found)
    assert len(files_of_source(f"file://{tmp_path}/in/*.json")) == 2
    assert files_of_source(str(tmp_path / "none")) == []
    with pytest.raises(CannotCopy, match="not on a local file system"):
        files_of_source("s3a://bucket/in")


def test_a_files_place_is_known_where_it_is_on_this_machine(tmp_path: Path) -> None:
    put(tmp_path / "a b.json", "{}")
    assert exists(f"file://{tmp_path}/a%20b.json") is True
    assert exists(f"{tmp_path}/b.json") is False
    assert exists("s3a://bucket/b.json") is None
    assert local("file:/in/*.json") == local("file:///in/*.json") == "/in/*.json"
    assert local("s3a://bucket/in") is None
