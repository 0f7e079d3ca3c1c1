"""Schedules against rows: each planned time gives one run or one named skip, whoever looks when."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from listeners.loops.backlogs import current
from queries.domain.errors import Conflict
from queries.domain.protocol import RunError
from queries.domain.schedules.planning import PlannedState, ScheduledObject, SkipReason
from queries.domain.states import Desired, Phase, RunOutcome
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.models.schedules import PlannedRun, ScheduleState
from queries.services.schedules import targets, ticks
from queries.services.schedules.targets import QueryTarget
from tests.scenarios.stage import DIVIDE, NO_SUCH_SOURCE, START, Stage

MINUTE = timedelta(minutes=1)


def _planned(stage: Stage, name: str = "delays", **schedule: Any) -> Query:
    schedule = {"cron": "* * * * *", **schedule}
    query = stage.query(name, trigger={"kind": "available_now"}, schedule=schedule)
    ticks.follow_schedule(query.revisions.get())
    return query


def _completed(query: Query) -> None:
    Query.objects.filter(pk=query.pk).update(desired=Desired.STOPPED, phase=Phase.COMPLETED)


def _states() -> list[str]:
    return [f"{row.state} {row.skipped}".strip() for row in PlannedRun.objects.order_by("due_at")]


def test_a_planned_time_starts_the_query_once_and_its_end_is_noted(stage: Stage) -> None:
    query = _planned(stage)
    for _ in range(3):
        ticks.run_schedules(now=START + MINUTE)
    assert _states() == [PlannedState.STARTED]
    assert Operation.objects.get().actor == "schedule"
    _completed(query)
    ticks.run_schedules(now=START + MINUTE + timedelta(seconds=30))
    assert _states() == [PlannedState.DONE]


def test_a_time_during_the_run_is_skipped_or_waits_for_its_end(stage: Stage) -> None:
    query = _planned(stage, overlap="queue")
    for minute in (1, 2, 3):
        ticks.run_schedules(now=START + minute * MINUTE)
    assert _states() == ["STARTED", "WAITING", "SKIPPED duplicate"]
    _completed(query)
    ticks.run_schedules(now=START + 3.5 * MINUTE)
    assert _states() == ["DONE", "STARTED", "SKIPPED duplicate"]


def test_a_time_that_is_skipped_names_the_state_of_the_run_before_it(stage: Stage) -> None:
    query = _planned(stage)
    ticks.run_schedules(now=START + MINUTE)
    Query.objects.filter(pk=query.pk).update(phase=Phase.BACKOFF)
    ticks.run_schedules(now=START + 2 * MINUTE)
    Query.objects.filter(pk=query.pk).update(phase=Phase.RUNNING)
    ticks.run_schedules(now=START + 3 * MINUTE)
    assert [row.why for row in PlannedRun.objects.filter(state="SKIPPED").order_by("due_at")] == [
        f"The run before it had not ended; it was {phase}." for phase in ("BACKOFF", "RUNNING")
    ]


def test_after_a_day_without_a_look_one_run_is_made_up_for_and_one_row_has_the_others(
    stage: Stage,
) -> None:
    _planned(stage)
    ticks.run_schedules(now=START + timedelta(days=1))
    assert _states() == ["SKIPPED missed", "STARTED"]
    missed = PlannedRun.objects.get(state=PlannedState.SKIPPED)
    first, last = START + MINUTE, START + 1439 * MINUTE
    assert (missed.due_times, missed.first_due_at, missed.due_at) == (1439, first, last)
    assert missed.why == (
        f"1,439 due times were missed, {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC."
        " Nothing looked at the schedule in time."
    )


def test_times_that_are_older_than_planned_runs_are_kept_are_not_made_up_for(stage: Stage) -> None:
    _planned(stage)
    now = START + timedelta(days=4000)
    ticks.run_schedules(now=now)
    missed = PlannedRun.objects.get(state=PlannedState.SKIPPED)
    assert missed.due_times == 90 * 1440 - 1
    assert ScheduleState.objects.get().cursor == now


def _started(stage: Stage, **schedule: Any) -> Query:
    """Return a query that its schedule has started, a minute after it was due."""
    query = _planned(stage, **schedule)
    ticks.run_schedules(now=START + MINUTE)
    stage.now = START + 2 * MINUTE
    stage.settle()
    stage.ready("delays")
    stage.commit("delays")
    return query


def test_a_run_past_its_limit_is_stopped_and_says_so_and_ends_when_the_run_has_ended(
    stage: Stage,
) -> None:
    _started(stage, timeout_s=60)
    ticks.run_schedules(now=stage.now + timedelta(seconds=50))
    assert stage.row("delays").desired == Desired.RUNNING
    ticks.run_schedules(now=stage.now + timedelta(seconds=70))
    first = PlannedRun.objects.order_by("due_at")[0]
    assert stage.row("delays").desired == Desired.STOPPED
    assert (first.state, first.ended_at) == (PlannedState.STARTED, None)
    assert "limit of 60 s" in first.reason.text
    Query.objects.update(phase=Phase.STOPPED)
    Run.objects.update(outcome=RunOutcome.STOPPED, ended_at=stage.now + timedelta(seconds=80))
    ticks.run_schedules(now=stage.now + timedelta(seconds=90))
    first.refresh_from_db()
    assert (first.state, first.ended_at) == ("STOPPED", stage.now + timedelta(seconds=80))
    assert "limit of 60 s" in first.reason.text


def test_a_run_has_its_own_times_not_those_of_the_look(stage: Stage) -> None:
    query = _started(stage)
    run = stage.run("delays")
    _completed(query)
    Run.objects.update(outcome=RunOutcome.COMPLETED, ended_at=START + 3 * MINUTE)
    ticks.run_schedules(now=START + 4.5 * MINUTE)
    first = PlannedRun.objects.order_by("due_at")[0]
    assert first.started_at == (run.started_at or run.created_at) == START + 2 * MINUTE
    assert (first.state, first.ended_at) == ("DONE", START + 3 * MINUTE)


@pytest.mark.parametrize(
    ("phase", "error", "times"),
    [(Phase.ON_HOLD, DIVIDE, 3), (Phase.FAILED, NO_SUCH_SOURCE, 1)],
)
def test_a_run_that_fails_for_good_is_failed_with_the_reason(
    stage: Stage, phase: Phase, error: RunError, times: int
) -> None:
    _started(stage, overlap="queue")
    ticks.run_schedules(now=START + 2 * MINUTE)  # one waits behind it
    for _ in range(times):
        stage.pause("delays")
        stage.ready("delays")
        stage.fail("delays", error, 3)
    assert stage.phase("delays") == phase
    ticks.run_schedules(now=stage.now)
    first, second = PlannedRun.objects.order_by("due_at")[:2]
    assert first.state == PlannedState.FAILED
    assert first.ended_at == stage.last_run("delays").ended_at
    assert error.root_cause in first.reason.text
    assert (second.state, second.skipped) == ("SKIPPED", "blocked")


def test_a_start_gets_the_schedules_values_and_its_planned_time_however_late(
    stage: Stage,
) -> None:
    schedule = {"cron": "* * * * *", "params": {"day": "{date}", "at": "{time}"}}
    spec: dict[str, Any] = {
        "trigger": {"kind": "available_now"},
        "params": {"day": "", "at": "", "low": 1},
    }
    query = stage.query("delays", schedule=schedule, **spec)
    ticks.follow_schedule(query.revisions.get())
    ticks.run_schedules(now=START + 1.5 * MINUTE)
    given = {"day": "2026-01-05", "at": f"{START + MINUTE:%Y-%m-%dT%H:%M:%SZ}"}
    assert PlannedRun.objects.get().params == given
    assert stage.row("delays").params == given


def test_a_pause_and_a_held_query_skip_by_name(stage: Stage) -> None:
    query = _planned(stage)
    ScheduleState.objects.update(paused_at=START, paused_by="olga")
    ticks.run_schedules(now=START + MINUTE)
    ScheduleState.objects.update(paused_at=None)
    Query.objects.filter(pk=query.pk).update(phase=Phase.FAILED)
    ticks.run_schedules(now=START + 2 * MINUTE)
    assert _states() == [f"SKIPPED {SkipReason.PAUSED}", f"SKIPPED {SkipReason.BLOCKED}"]


def test_a_refused_start_is_a_failed_run_with_its_sentence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _planned(stage)

    def refuse(**_: Any) -> Operation:
        raise Conflict("A rewind is under way.")

    monkeypatch.setattr(targets, "request_start", refuse)
    ticks.run_schedules(now=START + MINUTE)
    row = PlannedRun.objects.get()
    assert row.state == PlannedState.FAILED
    assert "A rewind is under way." in row.reason.text


def test_one_rotten_schedule_does_not_stop_the_others(stage: Stage) -> None:
    rotten = _planned(stage)
    _planned(stage, "good")
    revision = rotten.revisions.get()
    type(revision).objects.update_or_create(
        pk=revision.pk, defaults={"spec": {**revision.spec, "schedule": {"cron": "never"}}}
    )
    ticks.run_schedules(now=START + MINUTE)
    assert PlannedRun.objects.get(query__name="good").state == PlannedState.STARTED
    assert PlannedRun.objects.count() == 1


@pytest.mark.guarantee("G-SCHEDULE-1")
@pytest.mark.parametrize("write", ["save", "_start", "lock"])
def test_a_kill_between_two_writes_leaves_all_or_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    _planned(stage)

    def killed(*_: Any, **__: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr({"save": PlannedRun, "lock": QueryTarget}.get(write, ticks), write, killed)
        with pytest.raises(SystemExit):
            ticks.run_schedules(now=START + MINUTE)
    assert (PlannedRun.objects.count(), Operation.objects.count()) == (0, 0)
    ticks.run_schedules(now=START + MINUTE)
    assert (_states(), Operation.objects.count()) == ([PlannedState.STARTED], 1)


@pytest.mark.guarantee("G-SCHEDULE-1")
def test_a_worker_that_was_overtaken_writes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _planned(stage)
    before = ScheduleState.objects.get().cursor
    ticks.run_schedules(now=START + MINUTE)

    def judged_before_that(query: Query, state: ScheduleState, *_: Any) -> ScheduledObject:
        PlannedRun.objects.update(state=PlannedState.STOPPED)
        state.cursor = before
        return ScheduledObject(
            Desired.STOPPED, Phase.STOPPED, has_run=False, paused=False, waiting=False
        )

    monkeypatch.setattr(ticks, "_settle", judged_before_that)
    ticks.run_schedules(now=START + MINUTE)
    assert (_states(), Operation.objects.count()) == ([PlannedState.STARTED], 1)
    assert current(datetime.now(UTC)) == []


def test_a_removed_schedule_plans_nothing_more(stage: Stage) -> None:
    _planned(stage)
    stage.revise("delays", schedule=None)
    ticks.run_schedules(now=START + MINUTE)
    assert not PlannedRun.objects.exists()


def test_a_run_outlives_its_schedule_and_what_waits_does_not(stage: Stage) -> None:
    query = _planned(stage, overlap="queue")
    for minute in (1, 2):
        ticks.run_schedules(now=START + minute * MINUTE)
    assert _states() == ["STARTED", "WAITING"]
    stage.now = START + 2.5 * MINUTE
    stage.revise("delays", schedule=None)
    ticks.run_schedules(now=START + 3 * MINUTE)
    assert _states() == ["STARTED", f"SKIPPED {SkipReason.REMOVED}"]
    _completed(query)
    ticks.run_schedules(now=START + 4 * MINUTE)
    assert _states() == ["DONE", f"SKIPPED {SkipReason.REMOVED}"]
    assert not ScheduleState.objects.exists()


def test_the_run_of_an_archived_query_ends(stage: Stage) -> None:
    query = _planned(stage)
    ticks.run_schedules(now=START + MINUTE)
    _completed(query)
    Query.objects.update(archived_at=START + 1.5 * MINUTE)
    ticks.run_schedules(now=START + 2 * MINUTE)
    assert _states() == ["DONE"]
    assert not ScheduleState.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_workers_at_once_start_a_planned_time_once() -> None:
    _planned(Stage())

    def look(_: int) -> None:
        try:
            ticks.run_schedules(now=START + MINUTE)
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(look, range(8)))
    assert (_states(), Operation.objects.count()) == ([PlannedState.STARTED], 1)
