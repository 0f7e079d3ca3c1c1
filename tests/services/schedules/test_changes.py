"""A schedule that is changed, removed or paused while nobody looks loses no due time."""

from datetime import timedelta
from typing import Any

import pytest

from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.planning import PlannedState
from queries.domain.states import Desired, Phase
from queries.models.definitions import Query
from queries.models.schedules import PlannedRun, ScheduleState
from queries.services.schedules import pauses, ticks
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import START, Stage

MINUTE = timedelta(minutes=1)
BY: dict[str, Any] = {"actor": "olga"}

pytestmark = pytest.mark.django_db


def _planned(stage: Stage, **schedule: Any) -> Query:
    query = stage.query(
        "delays",
        trigger={"kind": "available_now"},
        schedule={"cron": "* * * * *", **schedule},
    )
    ticks.follow_schedule(query.revisions.get())
    return query


def _rows() -> list[tuple[str, int, timedelta]]:
    rows = PlannedRun.objects.order_by("due_at")
    return [
        (f"{row.state} {row.skipped}".strip(), row.due_times, row.due_at - START) for row in rows
    ]


@pytest.mark.guarantee("G-SCHEDULE-3")
def test_a_changed_cron_decides_what_was_due_by_the_old_one(stage: Stage) -> None:
    _planned(stage)
    stage.now = START + 10.5 * MINUTE
    stage.revise("delays", schedule={"cron": "0 0 1 1 *"})
    assert _rows() == [("SKIPPED missed", 9, 9 * MINUTE), ("WAITING", 1, 10 * MINUTE)]
    ticks.run_schedules(now=START + 60 * MINUTE)
    assert _rows() == [("SKIPPED missed", 9, 9 * MINUTE), ("STARTED", 1, 10 * MINUTE)]


def test_two_changes_in_a_row_leave_one_time_that_waits(stage: Stage) -> None:
    _planned(stage)
    for minute, cron in ((1.5, "*/2 * * * *"), (2.5, "*/3 * * * *")):
        stage.now = START + minute * MINUTE
        stage.revise("delays", schedule={"cron": cron})
    assert _rows() == [("WAITING", 1, MINUTE), ("SKIPPED duplicate", 1, 2 * MINUTE)]


def test_what_may_not_be_made_up_for_is_missed_when_the_cron_changes(stage: Stage) -> None:
    _planned(stage, missed="skip", cron="*/10 * * * *")
    stage.now = START + 35 * MINUTE
    stage.revise("delays", schedule={"cron": "0 0 1 1 *"})
    assert _rows() == [("SKIPPED missed", 3, 30 * MINUTE)]


def test_a_change_of_something_else_decides_nothing(stage: Stage) -> None:
    _planned(stage)
    stage.now = START + 10 * MINUTE
    stage.revise("delays", schedule={"cron": "* * * * *", "timeout_s": 60})
    assert _rows() == []
    ticks.run_schedules(now=START + 10 * MINUTE)
    assert [state for state, *_ in _rows()] == ["SKIPPED missed", "STARTED"]


def test_a_removed_schedule_names_what_was_due_until_then(stage: Stage) -> None:
    _planned(stage)
    stage.now = START + 3.5 * MINUTE
    stage.revise("delays", schedule=None)
    assert _rows() == [
        ("SKIPPED missed", 2, 2 * MINUTE),
        ("SKIPPED removed", 1, 3 * MINUTE),
    ]
    assert not ScheduleState.objects.exists()


def test_a_deleted_query_names_what_was_due_until_then(stage: Stage) -> None:
    _planned(stage)
    Query.objects.update(archived_at=START + 3.5 * MINUTE)
    ticks.run_schedules(now=START + 60 * MINUTE)
    assert _rows() == [
        ("SKIPPED missed", 2, 2 * MINUTE),
        ("SKIPPED removed", 1, 3 * MINUTE),
    ]
    assert not ScheduleState.objects.exists()


@pytest.mark.guarantee("G-SCHEDULE-3")
def test_a_pause_names_what_was_due_before_it_and_a_resume_what_was_due_in_it(
    stage: Stage,
) -> None:
    query = _planned(stage)
    pauses.pause(query, now=START + 3.5 * MINUTE, **BY)
    pauses.resume(query, now=START + 6.5 * MINUTE, **BY)
    ticks.run_schedules(now=START + 7 * MINUTE)
    assert _rows() == [
        ("SKIPPED missed", 2, 2 * MINUTE),
        ("SKIPPED paused", 1, 3 * MINUTE),
        ("SKIPPED paused", 3, 6 * MINUTE),
        ("STARTED", 1, 7 * MINUTE),
    ]


def test_a_time_that_waits_is_skipped_by_a_pause(stage: Stage) -> None:
    query = _planned(stage, overlap="queue")
    for minute in (1, 2):
        ticks.run_schedules(now=START + minute * MINUTE)
    assert [state for state, *_ in _rows()] == ["STARTED", "WAITING"]
    pauses.pause(query, now=START + 2.5 * MINUTE, **BY)
    assert [state for state, *_ in _rows()] == ["STARTED", "SKIPPED paused"]


def test_a_time_that_has_waited_since_before_the_pause_is_decided_by_a_tick(stage: Stage) -> None:
    _planned(stage, overlap="queue")
    for minute in (1, 2):
        ticks.run_schedules(now=START + minute * MINUTE)
    ScheduleState.objects.update(paused_at=START + 2 * MINUTE, paused_by="olga")
    Query.objects.update(desired=Desired.STOPPED, phase=Phase.COMPLETED)
    ticks.run_schedules(now=START + 2.5 * MINUTE)
    assert [state for state, *_ in _rows()] == ["DONE", "SKIPPED paused"]


def test_a_schedule_that_cannot_be_read_does_not_prevent_its_repair(stage: Stage) -> None:
    query = _planned(stage)
    revision = query.revisions.get()
    spec = {**revision.spec, "schedule": {"cron": 7}}
    type(revision).objects.update_or_create(pk=revision.pk, defaults={"spec": spec})
    stage.now = START + 10 * MINUTE
    stage.revise("delays", schedule={"cron": "0 0 1 1 *"})
    assert _rows() == []


def test_files_that_have_arrived_before_the_change_start_a_run(stage: Stage) -> None:
    query = _planned(stage)
    state = ScheduleState.objects.get()
    ScheduleState.objects.update(
        kind="files",
        digest=ticks._digest(Schedule(files="/data/in")),
        first_arrival_at=START,
        newest_arrival_at=START,
    )
    revision = query.revisions.get()
    spec = {**revision.spec, "schedule": {"files": "/data/in"}}
    type(revision).objects.update_or_create(pk=revision.pk, defaults={"spec": spec})
    stage.now = START + 5 * MINUTE
    stage.revise("delays", schedule={"cron": "0 0 1 1 *"})
    assert _rows() == [("WAITING", 1, MINUTE)]
    assert ScheduleState.objects.get().pk == state.pk


def test_a_script_keeps_the_rule() -> None:
    stage = ScriptStage(schedule={"cron": "* * * * *"})
    first = stage.job.revisions.get()
    ticks.follow_schedule(first)
    spec = {**first.spec, "schedule": None}
    at = first.created_at + 2.5 * MINUTE
    second = stage.job.revisions.create(number=2, spec=spec, author="aude", created_at=at)
    ticks.follow_schedule(second)
    rows = PlannedRun.objects.order_by("due_at")
    assert [row.skipped for row in rows] == ["missed", "removed"]
    assert {row.state for row in rows} == {PlannedState.SKIPPED}
