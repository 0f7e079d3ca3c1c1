"""The driver reports the logs of a checkpoint that is not local: after batches, and at the end."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from queries.domain.checkpoints.logs import LogReport, parse, report_file
from queries.runtime.checkpoints import logs
from queries.runtime.checkpoints.logs import CheckpointReader
from queries.runtime.liveness import ProgressTracker
from tests.checkpoints.forms import write_checkpoint
from tests.checkpoints.reports import Store, reports_of

PLACE = "s3a://flights/checkpoints/delays"
LIMIT_S = 20


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(logs, "EVERY_S", 0.0)
    return Store(write_checkpoint(tmp_path / "checkpoint", batches=range(3), in_flight=True))


def read(folder: Path) -> LogReport | None:
    place = folder / report_file(PLACE)
    return parse(place.read_text(), PLACE) if place.exists() else None


def until(right: Callable[[], Any]) -> None:
    end = time.monotonic() + LIMIT_S
    while not right():
        assert time.monotonic() < end, "nothing changes"
        time.sleep(0.01)


def test_a_start_reports_what_earlier_runs_have_written(store: Store, tmp_path: Path) -> None:
    reports = reports_of(store, PLACE, tmp_path)
    until(lambda: read(tmp_path))
    found = read(tmp_path)
    assert found is not None
    assert [one.batch for one in found.offsets] == [0, 1, 2, 3]
    assert [one.batch for one in found.commits] == [0, 1, 2]
    assert not found.ended
    assert store.lists == 2
    reports.end()


def test_the_store_is_asked_only_after_a_batch_and_reads_each_entry_once(
    store: Store, tmp_path: Path
) -> None:
    reports = reports_of(store, PLACE, tmp_path)
    until(lambda: read(tmp_path))
    assert (store.lists, store.reads) == (2, 4)
    reports.request_report()
    until(lambda: store.lists == 4)
    reports.end()
    found = read(tmp_path)
    assert found is not None
    assert found.ended
    assert store.reads == 4


def test_a_store_that_fails_leaves_the_last_report_and_the_next_read_succeeds(
    store: Store, tmp_path: Path
) -> None:
    reports = reports_of(store, PLACE, tmp_path)
    until(lambda: read(tmp_path))
    store.broken = True
    reports.request_report()
    until(lambda: store.lists == 3)
    assert read(tmp_path) is not None
    store.broken = False
    reports.end()
    found = read(tmp_path)
    assert found is not None
    assert found.ended


def test_a_batch_that_starts_and_one_that_commits_are_reasons_for_a_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("queries.runtime.liveness.PROGRESS_S", 0.0)
    progress: dict[str, Any] = {"batchId": 4, "durationMs": {}}
    working = [False]
    jquery = SimpleNamespace(
        lastProgress=lambda: SimpleNamespace(json=lambda: json.dumps(progress)),
        status=lambda: SimpleNamespace(
            isTriggerActive=lambda: True, isDataAvailable=lambda: working[0]
        ),
    )
    asked: list[None] = []
    reports: Any = SimpleNamespace(request_report=lambda: asked.append(None))
    life = ProgressTracker(jquery, CheckpointReader(PLACE, None), None, reports=reports)
    life.look()
    assert len(asked) == 0
    working[0] = True
    life.look()
    life.look()
    assert len(asked) == 1  # the batch has started
    progress["durationMs"] = {"addBatch": 3}
    life.look()
    life.look()
    assert len(asked) == 2  # and committed
