"""A clock that was once wrong neither silences a schedule nor runs a time twice."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queries.domain.schedules.planning import PlannedState
from queries.domain.states import Desired, Phase
from queries.models.access.audit import AuditEntry
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.models.schedules import PlannedRun, ScheduleState
from queries.selectors.schedules import schedule_status
from queries.services.schedules import ticks
from tests.scenarios.stage import START, Stage

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def _planned(stage: Stage, **schedule: Any) -> Query:
    schedule = schedule or {"cron": "* * * * *"}
    query = stage.query("delays", trigger={"kind": "available_now"}, schedule=schedule)
    ticks.follow_schedule(query.revisions.get())
    return query


def _completed() -> None:
    Query.objects.update(desired=Desired.STOPPED, phase=Phase.COMPLETED)


def _rows() -> list[tuple[str, int, datetime]]:
    rows = PlannedRun.objects.order_by("due_at")
    return [(f"{row.state} {row.skipped}".strip(), row.due_times, row.due_at) for row in rows]


@pytest.mark.guarantee("G-SCHEDULE-2")
def test_a_schedule_goes_on_at_once_when_the_clock_is_right_again(stage: Stage) -> None:
    query = _planned(stage)
    ticks.run_schedules(now=START + 10 * DAY)  # the clock was ten days ahead
    assert len(_rows()) == 2
    now = START + 5.5 * MINUTE
    assert schedule_status(query, now=now).overdue
    _completed()
    ticks.run_schedules(now=now)
    early = ("DONE", 1, START + 10 * DAY)
    assert _rows() == [("SKIPPED missed", 5, START + 5 * MINUTE), early]
    assert not schedule_status(query, now=now).overdue
    entry = AuditEntry.objects.get(kind="schedule")
    assert entry.details["clock_was_ahead_until"] == (START + 10 * DAY).isoformat()
    assert entry.details["times_not_due_yet"] == 14_399 - 5
    ticks.run_schedules(now=START + 6 * MINUTE)
    assert [state for state, *_ in _rows()] == ["SKIPPED missed", "STARTED", "DONE"]
    assert AuditEntry.objects.filter(kind="schedule").count() == 1


@pytest.mark.guarantee("G-SCHEDULE-2")
def test_a_time_that_ran_early_is_not_run_again_when_it_is_due(stage: Stage) -> None:
    _planned(stage)
    ticks.run_schedules(now=START + 3 * MINUTE)
    _completed()
    for minute in (1.2, 2, 3, 4):
        ticks.run_schedules(now=START + minute * MINUTE)
        _completed()
    ticks.run_schedules(now=START + 4.5 * MINUTE)
    # Minute 1 was past when the clock was right again; minute 3 had its run.
    assert [(state, at - START) for state, _, at in _rows()] == [
        ("SKIPPED missed", MINUTE),
        ("DONE", 2 * MINUTE),
        ("DONE", 3 * MINUTE),
        ("DONE", 4 * MINUTE),
    ]
    assert Operation.objects.filter(verb="start").count() == 3
    assert {row.late_s for row in PlannedRun.objects.all()} <= {None, 0.0}


def test_a_time_that_waits_since_before_it_was_due_is_decided_when_it_is_due(stage: Stage) -> None:
    _planned(stage, cron="* * * * *", overlap="queue")
    ticks.run_schedules(now=START + MINUTE)
    ticks.run_schedules(now=START + 10 * MINUTE)
    assert [state for state, *_ in _rows()] == ["STARTED", "SKIPPED missed", "WAITING"]
    ticks.run_schedules(now=START + 2 * MINUTE)
    _completed()
    ticks.run_schedules(now=START + 2.5 * MINUTE)
    assert [(state, at - START) for state, _, at in _rows()] == [
        ("DONE", MINUTE),
        ("SKIPPED missed", 2 * MINUTE),
    ]


def test_a_query_deleted_after_the_clock_was_wrong_loses_no_due_time(stage: Stage) -> None:
    _planned(stage, cron="* * * * *", missed="skip")
    ticks.run_schedules(now=START + 10 * DAY)
    Query.objects.update(archived_at=START + 3.5 * MINUTE)
    ticks.run_schedules(now=START + 5 * MINUTE)
    assert _rows()[0] == ("SKIPPED missed", 3, START + 3 * MINUTE)


def test_a_definition_saved_by_a_clock_that_was_ahead_starts_at_once(stage: Stage) -> None:
    _planned(stage)
    ScheduleState.objects.update(cursor=START + 400 * DAY, next_at=START + 400 * DAY)
    ticks.run_schedules(now=START)
    ticks.run_schedules(now=START + MINUTE)
    assert [state for state, *_ in _rows()] == ["STARTED"]


def test_a_clock_from_before_headgate_moves_nothing_back(stage: Stage) -> None:
    query = _planned(stage)
    ticks.run_schedules(now=START + 5 * MINUTE)
    before = _rows()
    ticks.run_schedules(now=datetime(1970, 1, 1, 0, 1, tzinfo=UTC))
    assert _rows() == before
    assert ScheduleState.objects.get().cursor == START + 5 * MINUTE
    assert schedule_status(query, now=datetime(1970, 1, 1, tzinfo=UTC)).overdue


def test_files_that_arrived_by_a_clock_that_was_ahead_start_a_run(stage: Stage) -> None:
    query = _planned(stage, files="/data/in")
    late = START + 30 * DAY
    ScheduleState.objects.update(
        looked_at=late, first_arrival_at=late, newest_arrival_at=late, next_at=late + MINUTE
    )
    assert schedule_status(query, now=START).overdue
    ticks.run_schedules(now=START)
    ticks.run_schedules(now=START + 2 * MINUTE)
    assert [state for state, *_ in _rows()] == ["STARTED"]


@pytest.mark.parametrize("seconds", [1, 59])
def test_a_clock_that_is_set_back_by_seconds_repeats_nothing(stage: Stage, seconds: int) -> None:
    _planned(stage)
    ticks.run_schedules(now=START + MINUTE)
    ticks.run_schedules(now=START + MINUTE - timedelta(seconds=seconds))
    assert PlannedRun.objects.get().state == PlannedState.STARTED
    assert not AuditEntry.objects.filter(kind="schedule").exists()
