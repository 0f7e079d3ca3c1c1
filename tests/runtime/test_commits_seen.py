"""The driver reports when it saw the newest commit, wherever the checkpoint is."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from queries.runtime.checkpoints.logs import CheckpointReader
from queries.runtime.liveness import ProgressTracker


def test_a_commit_in_an_object_store_is_seen_by_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("queries.runtime.liveness.PROGRESS_S", 0.0)
    progress: dict[str, Any] = {"batchId": 4, "durationMs": {"addBatch": 3}}
    jquery = SimpleNamespace(
        lastProgress=lambda: SimpleNamespace(json=lambda: json.dumps(progress))
    )
    life = ProgressTracker(jquery, CheckpointReader("s3a://bucket/delays", None), before=None)
    first = life.look()
    assert first["last_batch"] == 4
    assert first["last_commit_at"] == first["first_commit_at"]
    assert "last_commit_at" not in life.look()  # nothing new
    progress["batchId"] = 5
    second = life.look()
    assert second["last_batch"] == 5
    assert second["last_commit_at"] > first["last_commit_at"]
