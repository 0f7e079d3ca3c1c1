"""Batches, files and operators of a checkpoint, read without Spark."""

from pathlib import Path
from shutil import copy2

import pytest

from queries.checkpoints import batches
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.state import operators
from tests.checkpoints.forms import compact_source, put, write_batch, write_checkpoint


def test_batches_come_newest_first_and_a_page_at_a_time(tmp_path: Path) -> None:
    logs = CheckpointLogs(write_checkpoint(tmp_path / "cp", batches=range(9), in_flight=True))
    first = batches.page(logs, limit=4)
    assert [(one.number, one.state) for one in first] == [
        (9, "in flight"),
        (8, "committed"),
        (7, "committed"),
        (6, "committed"),
    ]
    assert [one.number for one in batches.page(logs, before=6, limit=100)] == [5, 4, 3, 2, 1, 0]
    assert batches.page(logs, before=0) == []
    assert first[0].took_s is None
    assert first[1].took_s is not None


def test_a_kafka_batch_says_what_it_read_of_each_partition(tmp_path: Path) -> None:
    logs = CheckpointLogs(write_checkpoint(tmp_path / "cp", batches=range(4, 9), source="kafka"))
    found = batches.batch_by_number(logs, 6)
    assert found is not None
    assert [(one.topic, one.partition, one.start, one.end) for one in found.ranges] == [
        ("flights", 0, 60, 70)
    ]
    assert found.records == 10
    oldest = batches.batch_by_number(logs, 4)  # what stood before it is purged
    assert oldest is not None
    assert (oldest.ranges, oldest.records) == ((), None)
    assert batches.batch_by_number(logs, 3) is None


def test_a_batch_that_cannot_be_read_says_so_and_the_others_stand(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(3), source="kafka")
    (root / "offsets/1").write_text("v1\n{cut\n-")
    found = batches.page(CheckpointLogs(root))
    assert [one.state for one in found] == ["committed", "unreadable", "committed"]
    assert "is not JSON" in found[1].problem
    assert batches.compare(CheckpointLogs(root), 1, 2) is None


def test_a_batch_that_ended_where_the_one_before_it_did_read_nothing(tmp_path: Path) -> None:
    logs = CheckpointLogs(write_checkpoint(tmp_path / "cp", batches=range(3)))
    copy2(logs.root / "offsets/2", logs.root / "offsets/3")  # it moved the watermark on
    assert batches.read_nothing(logs, 3)
    assert not batches.read_nothing(logs, 2)
    assert not batches.read_nothing(logs, 0)  # nothing tells where it began
    assert not batches.read_nothing(logs, 7)


def test_gaps_are_counted(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(0), source="kafka")
    for batch in (2, 3, 7):
        write_batch(root, batch, source="kafka")
    found = batches.page(CheckpointLogs(root))
    assert [one.left_out_before for one in found] == [3, 0, 0]
    assert found[0].records == 40


def test_a_commit_that_was_not_kept_is_no_batch_in_flight(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(4), in_flight=True)
    (root / "commits/2").unlink()
    found = batches.page(CheckpointLogs(root))
    assert [one.state for one in found[:3]] == ["in flight", "committed", "uncommitted"]


@pytest.mark.parametrize("compacted", [False, True])
def test_the_files_of_a_batch_are_those_of_its_log_entries(tmp_path: Path, compacted: bool) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(12), files_a_batch=2)
    if compacted:
        compact_source(root, 9)
    logs = CheckpointLogs(root)
    found = batches.files_of(logs, 7)
    assert [file.path for file in found] == ["file:///in/f7-0.json", "file:///in/f7-1.json"]
    assert [file.exists for file in found] == [False, False]
    assert len(batches.files_of(logs, 0)) == 2
    assert batches.files_of(logs, 40) == []


def test_a_batch_whose_beginning_is_purged_names_no_files(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(12))
    for batch in range(6):
        (root / f"offsets/{batch}").unlink()
    assert batches.files_of(CheckpointLogs(root), 6) == []
    assert len(batches.files_of(CheckpointLogs(root), 7)) == 1


def test_a_file_that_is_there_and_one_on_another_storage(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(1))
    here = tmp_path / "a b.json"
    here.write_text("{}")
    lines = [
        f'{{"path":"file://{tmp_path}/a%20b.json","timestamp":1,"batchId":0}}',
        '{"path":"s3a://bucket/b.json","timestamp":1,"batchId":0}',
    ]
    put(root / "sources/0/0", "\n".join(["v1", *lines]))
    assert [file.exists for file in batches.files_of(CheckpointLogs(root), 0)] == [True, None]


def test_two_batches_are_compared_whichever_is_named_first(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(9), source="kafka")
    place = root / "offsets/7"
    place.write_text(place.read_text().replace('"2"', '"8"'))
    found = batches.compare(CheckpointLogs(root), 7, 3)
    assert found is not None
    assert (found.earlier.number, found.other.number, found.records) == (3, 7, 40)
    assert found.conf == (("spark.sql.shuffle.partitions", "2", "8"),)
    assert batches.compare(CheckpointLogs(root), 7, 30) is None


def test_what_is_pinned_is_what_the_newest_batch_says(tmp_path: Path) -> None:
    logs = CheckpointLogs(write_checkpoint(tmp_path / "cp", batches=range(3)))
    assert batches.pinned(logs) == {"spark.sql.shuffle.partitions": "2"}
    assert batches.pinned(CheckpointLogs(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        ("delta", "HDFS-backed"),
        ("zip", "RocksDB"),
        ("changelog", "RocksDB with changelogs"),
        ("v2", "RocksDB with changelogs"),
    ],
)
def test_state_operators_say_what_they_are_and_how_large(
    tmp_path: Path, store: str, kind: str
) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(4), store=store, partitions=3)
    about = (
        'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},'
        '"stateStoreInfo":[{"storeName":"default","numPartitions":3}]}'
    )
    put(root / "state/0/_metadata/metadata", about)
    put(root / "state/0/2/big.snapshot", "x" * 9000)
    (operator,) = operators(CheckpointLogs(root))
    assert (operator.name, operator.stores, operator.kind) == ("stateStoreSave", ("default",), kind)
    assert [part.version for part in operator.partitions] == [4, 4, 4]
    assert operator.largest is not None
    assert operator.largest.number == 2
    assert operator.skew is not None
    assert operator.skew > 1
    assert not operator.partial


def test_the_second_form_of_an_operators_description_is_read_too(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "cp", batches=range(2), store="delta", partitions=1)
    (root / "state/0/_metadata/metadata").unlink()
    text = 'v2\n{"operatorInfo":{"operatorName":"transformWithStateExec"}}'
    put(root / "state/0/_metadata/v2/0", text)
    (operator,) = operators(CheckpointLogs(root))
    assert operator.name == "transformWithStateExec"
    assert operator.skew is None
    (root / "state/0/_metadata/v2/0").write_text("v2\ncut")
    assert operators(CheckpointLogs(root))[0].name == ""


def test_a_stateless_query_has_none(tmp_path: Path) -> None:
    assert operators(CheckpointLogs(write_checkpoint(tmp_path / "cp", batches=range(2)))) == []
