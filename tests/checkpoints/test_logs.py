"""A checkpoint's logs on a real file system, while somebody else writes and purges them."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from queries.checkpoints.logs import CheckpointLogs, NotLocal


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkpoint with batches 3 to 6 committed and 7 in flight, Spark's clutter beside."""
    root = tmp_path / "delays"
    for folder in ("offsets", "commits"):
        (root / folder).mkdir(parents=True)
    for batch in range(3, 8):
        about = {"batchTimestampMs": 1000 + batch, "batchWatermarkMs": 0, "conf": {}}
        text = f'v1\n{json.dumps(about)}\n{{"logOffset":{batch}}}'
        (root / "offsets" / str(batch)).write_text(text)
        (root / "offsets" / f".{batch}.crc").write_bytes(b"crc")
        if batch < 7:
            (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":4}')
    (root / "commits" / ".7.0c1d.tmp").write_text("half")
    return root


def test_what_was_begun_what_is_committed_and_what_is_in_flight(root: Path) -> None:
    logs = CheckpointLogs.at(f"file://{root}")
    assert logs.begun() == [3, 4, 5, 6, 7]
    assert logs.committed() == [3, 4, 5, 6]
    assert (logs.last_commit(), logs.in_flight()) == (6, 7)
    (root / "offsets" / "7").unlink()
    assert logs.in_flight() is None


def test_a_batch_that_was_purged_is_none_and_no_error(root: Path) -> None:
    logs = CheckpointLogs.at(f"file://{root}")
    found = logs.offsets(4)
    assert found is not None
    assert found.sources == {"0": {"logOffset": 4}}
    done = logs.commit(4)
    assert done is not None
    assert done.next_watermark_ms == 4
    (root / "offsets" / "4").unlink()
    assert (logs.offsets(4), logs.commit(7), logs.written_at("offsets", 4)) == (None, None, None)


def test_a_files_own_time_is_when_it_was_written(root: Path) -> None:
    os.utime(root / "commits" / "6", (1772452800, 1772452800))
    logs = CheckpointLogs.at(f"file://{root}")
    assert logs.written_at("commits", 6) == datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_a_checkpoint_that_nothing_has_written_yet_is_empty(tmp_path: Path) -> None:
    logs = CheckpointLogs.at(f"file://{tmp_path}/none")
    assert (logs.begun(), logs.committed(), logs.last_commit(), logs.in_flight()) == (
        [],
        [],
        None,
        None,
    )
    (tmp_path / "file").write_text("")
    assert CheckpointLogs(tmp_path / "file").begun() == []
    assert CheckpointLogs(tmp_path / "file").offsets(0) is None


def test_the_first_batch_may_be_in_flight_alone(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n\n{"a":1}')
    assert CheckpointLogs(tmp_path).in_flight() == 0


def test_a_checkpoint_elsewhere_is_said_to_be_elsewhere() -> None:
    with pytest.raises(NotLocal, match="s3a://bucket/delays is not on a local"):
        CheckpointLogs.at("s3a://bucket/delays")
