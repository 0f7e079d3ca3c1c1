"""The Schedule tab: planned runs with their reasons, the trend, and the pause."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.domain.reasons import Because, Detail
from queries.domain.schedules.planning import PlannedState, SkipReason
from queries.models.schedules import PlannedRun, ScheduleState
from queries.services.schedules import ticks
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import START, Stage

TAB = "/queries/delays/schedule/"

pytestmark = pytest.mark.django_db


def planned(stage: Stage) -> None:
    """Give a query a schedule and planned runs of each state, the newest failed."""
    schedule = {"cron": "30 2 * * *", "time_zone": "Europe/Berlin"}
    query = stage.query("delays", trigger={"kind": "available_now"}, schedule=schedule)
    ticks.follow_schedule(query.revisions.get())
    failed = Because(Detail.RUN_FAILED, {"why": "driver", "about": "Division by zero."})
    for day in range(12):
        at = START + timedelta(days=day)
        row = PlannedRun(query=query, key=at.isoformat(), due_at=at, state=PlannedState.DONE)
        if day == 5:
            row.state, row.skipped = PlannedState.SKIPPED, SkipReason.OVERLAP
        else:
            row.started_at = at + timedelta(seconds=4)
            row.ended_at = row.started_at + timedelta(seconds=20 + 3 * day)
        if day == 11:
            row.state, row.reason = PlannedState.FAILED, failed
        row.save()


def test_each_planned_run_has_its_times_and_its_reason(
    client: Client, viewer: User, stage: Stage
) -> None:
    planned(stage)
    client.force_login(viewer)
    shown = client.get(TAB).content.decode()
    assert "The run before it had not ended." in shown
    assert "Division by zero." in shown
    assert "The last run took 53.0 s; half of the last 11 took 38.0 s or less." in shown
    assert shown.count('<rect class="beat-ok"') == 10
    assert shown.count('<rect class="beat-failed"') == 1
    assert "Next times in Europe/Berlin" in shown
    assert "Pause schedule" not in shown


def test_an_operator_pauses_and_resumes_on_the_page(
    client: Client, operator: User, stage: Stage
) -> None:
    planned(stage)
    client.force_login(operator)
    assert "Pause schedule" in client.get(TAB).content.decode()
    after = client.post(f"{TAB}pause/", follow=True).content.decode()
    assert "The schedule of delays is paused: its planned times are skipped." in after
    assert "by otto" in after
    assert ScheduleState.objects.get().paused_by == "otto"
    assert (
        "The schedule of delays goes on."
        in client.post(f"{TAB}resume/", follow=True).content.decode()
    )
    assert ScheduleState.objects.get().paused_at is None


def test_only_a_query_with_a_schedule_has_the_tab(
    client: Client, operator: User, stage: Stage
) -> None:
    planned(stage)
    stage.query("other")
    client.force_login(operator)
    assert TAB in client.get("/queries/delays/").content.decode()
    assert "/queries/other/schedule/" not in client.get("/queries/other/").content.decode()
    assert "No planned runs yet" in client.get("/queries/other/schedule/").content.decode()
    refused = client.post("/queries/other/schedule/pause/", follow=True).content.decode()
    assert "other has no schedule." in refused


def test_the_runs_are_set_beside_a_stream_that_is_always_on(
    client: Client, viewer: User, stage: Stage
) -> None:
    planned(stage)
    client.force_login(viewer)
    shown = client.get(TAB).content.decode()
    assert "11 runs took" in shown
    assert "A stream that is always on would have run" in shown


def test_what_cannot_start_it_is_said(client: Client, viewer: User, stage: Stage) -> None:
    planned(stage)
    ScheduleState.objects.update(problem="There is no query orders.")
    client.force_login(viewer)
    assert "Nothing can start it now: There is no query orders." in client.get(TAB).content.decode()


def test_a_script_has_a_page_for_its_schedule(client: Client, operator: User) -> None:
    stage = ScriptStage(schedule={"files": "/data/in"})
    ticks.follow_schedule(stage.job.revisions.get())
    client.force_login(operator)
    page = client.get("/applications/job/").content.decode()
    assert "/applications/job/schedule/" in page
    shown = client.get("/applications/job/schedule/").content.decode()
    assert "after the last new file in /data/in" in shown
    assert "Not listed yet. 1,440 listings a day on the application" in shown
    after = client.post("/applications/job/schedule/pause/", follow=True).content.decode()
    assert "The schedule of job is paused" in after
    after = client.post("/applications/job/schedule/resume/", follow=True).content.decode()
    assert "The schedule of job goes on" in after
