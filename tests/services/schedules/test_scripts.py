"""A schedule of a script: each time starts it once in a new driver, and its end is noted."""

from datetime import timedelta
from typing import Any

import pytest

from queries.domain.states import Desired, Phase, Reason
from queries.models.applications import Script
from queries.models.drivers import Driver
from queries.models.schedules import PlannedRun
from queries.services.schedules import ticks
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import START

MINUTE = timedelta(minutes=1)

pytestmark = pytest.mark.django_db


def _planned(**schedule: Any) -> ScriptStage:
    stage = ScriptStage(schedule=schedule)
    ticks.follow_schedule(stage.job.revisions.get())
    return stage


def _states() -> list[str]:
    return [f"{row.state} {row.skipped}".strip() for row in PlannedRun.objects.order_by("due_at")]


def test_a_script_is_started_by_its_schedule_and_its_end_is_noted() -> None:
    stage = _planned(cron="* * * * *")
    for _ in range(3):
        ticks.run_schedules(now=START + MINUTE)
    assert _states() == ["STARTED"]
    assert stage.script.desired == Desired.RUNNING
    stage.now = START + 2 * MINUTE
    stage.settle()
    ticks.run_schedules(now=START + 2 * MINUTE)
    assert _states() == ["STARTED", "SKIPPED overlap"]
    Script.objects.update(desired=Desired.STOPPED, phase=Phase.COMPLETED)
    Driver.objects.update(ended_at=START + 2.5 * MINUTE, state="ENDED")
    ticks.run_schedules(now=START + 3 * MINUTE)
    assert _states() == ["DONE", "SKIPPED overlap", "STARTED"]
    first = PlannedRun.objects.order_by("due_at")[0]
    assert first.started_at == Driver.objects.get().created_at
    assert first.ended_at == START + 2.5 * MINUTE
    Script.objects.update(phase=Phase.ON_HOLD, phase_reason=Reason.FAILED_POISON)
    ticks.run_schedules(now=START + 3.5 * MINUTE)
    newest = PlannedRun.objects.order_by("due_at")[2]
    assert newest.state == "FAILED"
    assert "same error on the same batch" in newest.why


def test_a_script_that_runs_too_long_is_stopped() -> None:
    stage = _planned(cron="* * * * *", timeout_s=60)
    ticks.run_schedules(now=START + MINUTE)
    stage.now = START + MINUTE
    stage.settle()
    ticks.run_schedules(now=START + 3 * MINUTE)
    assert stage.script.desired == Desired.STOPPED


def test_a_schedule_that_is_removed_ends_with_its_last_run() -> None:
    stage = _planned(cron="* * * * *")
    ticks.run_schedules(now=START + MINUTE)
    spec = {**stage.job.revisions.get().spec, "schedule": None}
    about = {"author": "ada", "created_at": START}
    made = stage.job.revisions.create(number=2, spec=spec, **about)
    ticks.follow_schedule(made)
    ticks.run_schedules(now=START + 5 * MINUTE)
    assert _states() == ["STARTED"]
