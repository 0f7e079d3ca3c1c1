"""HEADGATE_START_DEADLINE_S holds for the control plane and for the driver alike."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from queries.domain.protocol import AssignmentEntry, DriverSpec, Hangs, RunState, Want
from queries.runtime.checkpoints.locks import CheckpointLock
from queries.runtime.run import DriverContext, QueryRun
from queries.runtime.status_report import StatusFile
from queries.secret_references import References
from tests.scenarios.stage import Stage


@pytest.mark.django_db
def test_the_setting_reaches_the_driver(stage: Stage) -> None:
    stage.query("delays")
    with override_settings(START_DEADLINE_S=33):
        stage.start("delays")
    assert stage.launcher.spec("delays").start_deadline_s == 33


def test_a_spec_of_a_release_before_sets_no_deadline_of_its_own(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    text = stage.launcher.spec("delays").dumps().replace('"start_deadline_s":180,', "")
    assert DriverSpec.loads(text).start_deadline_s is None


@pytest.mark.parametrize(("deadline_s", "state"), [(0.05, "FAILED"), (None, "STARTING")])
def test_the_driver_calls_a_start_that_takes_longer_a_failure(
    tmp_path: Path, deadline_s: float | None, state: str
) -> None:
    going = threading.Event()

    def opens_too_late(*_: Any) -> None:
        going.wait(30)
        raise RuntimeError("the test is over")

    nobody: Any = SimpleNamespace()
    around = DriverContext(
        spark=nobody,
        sessions=SimpleNamespace(open=opens_too_late),  # type: ignore[arg-type]
        locks=SimpleNamespace(  # type: ignore[arg-type]
            take=lambda *_, **__: CheckpointLock("file:///c", 1, 1),
            release=lambda _: None,
        ),
        board=StatusFile(tmp_path, 1, lambda: None, lambda said: said),
        telemetry=SimpleNamespace(start_failed=lambda **_: None),  # type: ignore[arg-type]
        references=References(env_allowlist=(), secrets_dir=""),
        jvm_ended=threading.Event(),
        spark_stopped=threading.Event(),
        start_deadline_s=deadline_s,
    )
    place = f"file://{tmp_path}"
    entry = AssignmentEntry(1, "delays", 1, 1, {}, place, "", Want.RUN)
    run = QueryRun(entry, around)
    time.sleep(0.1)  # longer than the deadline
    run.check_start()
    line = around.board.read(1)
    going.set()
    run.join(30)
    assert line is not None
    assert line.state == RunState(state)
    if line.error is not None:
        here = "tests/runtime/test_start_deadline.py, line 42"
        said = (
            "The query was not started, and its start did not advance for 0.05 s; its code is at "
            f"{here}."
        )
        assert line.error.root_cause == said
        assert line.hangs is Hangs.START
