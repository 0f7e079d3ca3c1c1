"""A probe has one limit for Spark's start, which a slow host needs, and one for its question."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queries.domain.probes.questions import XrayTask
from queries.domain.supervision.observation import Liveness
from tests.launchers.test_contract import HANGS, NAME, Processes, _spec
from tests.spark.driver_under_test import wait_for


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Yield a launcher whose probes' Spark never comes up."""
    made = Processes(tmp_path, monkeypatch, HANGS)
    yield made
    made.end()


def _launch(ground: Processes, *, start_s: float | None, question_s: float, epoch: int = 1) -> None:
    spec = replace(_spec(epoch), probe=True, start_deadline_s=start_s)
    task = XrayTask("file:///nowhere", limit_s=question_s, rows=1)
    ground.launcher.launch_probe(spec, task.dumps())


def _found(ground: Processes) -> dict[str, Any]:
    text = wait_for(lambda: ground.launcher.probe_result(NAME, 1), "the probe has said something")
    return dict(json.loads(text))


def test_the_time_for_the_question_begins_when_spark_is_up(ground: Processes) -> None:
    _launch(ground, start_s=600, question_s=0.1)
    assert _found(ground)["at"] == "Starting Spark"
    # Another, begun later and with more time than that, has used up its own.
    _launch(ground, start_s=1, question_s=600, epoch=2)
    ground.until(2, Liveness.EXITED, probe=True)
    assert not _found(ground)["done"]
    assert ground.launcher.sight(NAME, 1, probe=True).liveness is Liveness.ALIVE


@pytest.mark.parametrize(("start_s", "question_s"), [(1, 600), (None, 1)])
def test_a_spark_that_does_not_come_up_ends_the_probe(
    ground: Processes, start_s: float | None, question_s: float
) -> None:
    _launch(ground, start_s=start_s, question_s=question_s)
    ended = ground.until(1, Liveness.EXITED, probe=True).exit
    assert ended is not None
    assert ended.python == "75"
    found = _found(ground)
    assert found["done"]
    said = "Not finished within 1 s, at: Starting Spark."
    assert found["error"]["root_cause"].startswith(said)  # and that this host was busy, if it was
