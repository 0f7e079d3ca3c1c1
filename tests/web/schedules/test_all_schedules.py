"""The page of all schedules, its REST list and `headgate get schedules`' figures: last night."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from queries.domain.reasons import Because, Detail
from queries.domain.schedules.planning import PlannedState, SkipReason
from queries.domain.states import Phase
from queries.models.definitions import QueryRevision
from queries.models.schedules import PlannedRun, ScheduleState
from queries.services.schedules import ticks
from tests.api.conftest import client_of
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import Stage
from tests.web.batches import batches
from tests.web.supervision.test_query_page import words

MINUTE = timedelta(minutes=1)
LIST = "/api/v1/schedules/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def as_viewer(viewer: User) -> APIClient:
    """Return Vera's client for the API."""
    return client_of(viewer)


@pytest.fixture
def night(stage: Stage) -> Stage:
    """Two schedules: one with a night of every kind, one that is paused."""
    now = timezone.now()
    for name in ("delays", "idle"):
        query = stage.query(
            name,
            trigger={"kind": "available_now"},
            schedule={"cron": "30 2 * * *", "time_zone": "Europe/Berlin"},
        )
        ticks.follow_schedule(query.revisions.get())
        ScheduleState.objects.filter(query=query).update(cursor=now)
        if name == "idle":
            ScheduleState.objects.filter(query=query).update(paused_at=now, paused_by="otto")
            continue
        for minutes, late_s, state, skipped in (
            (2000, 0, PlannedState.DONE, ""),  # before the window
            (300, 4, PlannedState.DONE, ""),
            (240, 90, PlannedState.DONE, ""),
            (180, 2, PlannedState.FAILED, ""),
            (120, None, PlannedState.SKIPPED, SkipReason.OVERLAP),
            (60, None, PlannedState.SKIPPED, SkipReason.MISSED),
        ):
            at = now - minutes * MINUTE
            row = PlannedRun(
                query=query, key=at.isoformat(), due_at=at, state=state, skipped=skipped
            )
            if late_s is not None:
                row.started_at = at + timedelta(seconds=late_s)
                row.ended_at = row.started_at + timedelta(seconds=30)
            if skipped == SkipReason.OVERLAP:
                row.reason = Because(Detail.OVERLAPPED, {"state": str(Phase.RUNNING)})
            if skipped == SkipReason.MISSED:
                row.due_times, row.first_due_at = 12, at - 12 * MINUTE
            row.save()
    return stage


def test_a_night_is_counted_by_what_became_of_its_times(as_viewer: APIClient, night: Stage) -> None:
    delays, idle = as_viewer.get(LIST).json()["results"]
    assert (delays["name"], delays["starts"]) == ("delays", "query")
    assert delays["when"] == "30 2 * * * in Europe/Berlin"
    assert delays["next_time"]
    assert delays["tally"] == {
        "due": 16,
        "done": 2,
        "failed": 1,
        "stopped": 0,
        "running": 0,
        "waiting": 0,
        "skipped": {"missed": 12, "overlap": 1},
        "late": 1,
        "latest_s": 90.0,
        "ran_s": 90.0,
    }
    assert delays["last"]["skipped"] == "missed"
    assert "12 due times were missed" in delays["last"]["reason"]
    assert (idle["name"], idle["paused_by"], idle["next_time"]) == ("idle", "otto", None)
    assert (idle["tally"]["due"], idle["last"]) == (0, None)


def test_the_window_and_the_application_narrow_the_list(as_viewer: APIClient, night: Stage) -> None:
    (two_days, _) = as_viewer.get(LIST, {"hours": 48}).json()["results"]
    assert two_days["tally"]["done"] == 3
    assert as_viewer.get(LIST, {"hours": 169}).status_code == 422
    (only,) = as_viewer.get(LIST, {"application": "idle"}).json()["results"]
    assert only["name"] == "idle"


def test_pages_follow_each_other_by_name(as_viewer: APIClient, night: Stage) -> None:
    first = as_viewer.get(LIST, {"limit": 1}).json()
    second = as_viewer.get(first["next"]).json()
    assert [one["name"] for one in first["results"] + second["results"]] == ["delays", "idle"]
    assert second["next"] is None


def test_a_run_has_the_rows_that_it_read(as_viewer: APIClient, stage: Stage) -> None:
    query = stage.query("delays", trigger={"kind": "available_now"}, schedule={"cron": "* * * * *"})
    ticks.follow_schedule(query.revisions.get())
    at = stage.now + MINUTE
    ticks.run_schedules(now=at)
    stage.now = at
    stage.settle()
    stage.ready("delays")
    stage.commit("delays")
    batches(stage.run("delays"), 3, until=at + MINUTE, rows=40)
    PlannedRun.objects.update(due_at=timezone.now() - MINUTE)
    (line,) = as_viewer.get(LIST).json()["results"]
    assert line["tally"]["running"] == 1
    assert line["last"]["rows"] == 120


def test_a_schedule_that_cannot_be_read_spoils_no_other(
    client: Client, viewer: User, as_viewer: APIClient, night: Stage
) -> None:
    revision = QueryRevision.objects.get(query__name="delays")
    spec = {**revision.spec, "schedule": {"cron": 7}}
    QueryRevision.objects.update_or_create(pk=revision.pk, defaults={"spec": spec})
    found = as_viewer.get(LIST).json()
    assert [one["name"] for one in found["results"]] == ["idle"]
    assert found["not_shown"][0]["name"] == "query delays"
    client.force_login(viewer)
    shown = client.get("/schedules/").content.decode()
    assert "cannot be shown" in shown
    assert "Paused by otto" in words(shown)


@pytest.mark.sql(
    "queries.selectors.schedules.schedule_lines",
    "queries.selectors.schedules._states",
    "queries.selectors.schedules._tallies",
    "queries.selectors.schedules._newest",
)
def test_the_page_shows_each_schedule_with_its_night(
    client: Client, viewer: User, night: Stage
) -> None:
    client.force_login(viewer)
    shown = words(client.get("/schedules/").content.decode())
    assert "delays 30 2 * * * in Europe/Berlin 16 2 1 failed 12 missed 1 overlap" in shown
    assert "1, up to 1 min 30 s" in shown
    assert "Paused by otto" in shown
    assert "12 due times were missed" in shown
    assert "The run before it had not ended; it was RUNNING." in shown
    one = words(client.get("/schedules/?application=idle&hours=6").content.decode())
    assert "idle 30 2" in one
    assert "delays 30 2" not in one
    assert "No matching schedules" in client.get("/schedules/?application=%00x").content.decode()
    assert client.get("/schedules/?hours=-1&after=x~y").status_code == 200


def test_a_script_stands_in_the_list_and_nothing_is_an_offer(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert "No schedules yet" in client.get("/schedules/").content.decode()
    stage = ScriptStage(schedule={"cron": "0 3 * * *"})
    ticks.follow_schedule(stage.job.revisions.get())
    shown = client.get("/schedules/").content.decode()
    assert '<a href="/applications/job/schedule/">job</a>' in shown
    assert "script" in shown
