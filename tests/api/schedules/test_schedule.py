"""A schedule over REST: its times, its planned runs, and its pause."""

from datetime import timedelta

import pytest
from rest_framework.test import APIClient

from queries.models.access.audit import AuditEntry
from queries.models.drivers import Run
from queries.services.schedules import ticks
from tests.scenarios.stage import START, Stage

MINUTE = timedelta(minutes=1)
URL = "/api/v1/queries/delays/schedule/"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def planned(stage: Stage) -> None:
    """Define a query that is due each minute."""
    schedule = {"cron": "* * * * *", "time_zone": "Europe/Berlin"}
    query = stage.query("delays", trigger={"kind": "available_now"}, schedule=schedule)
    ticks.follow_schedule(query.revisions.get())


def test_the_schedule_has_its_next_times_and_says_when_nobody_looks(as_viewer: APIClient) -> None:
    found = as_viewer.get(URL).json()
    assert found["cron"] == "* * * * *"
    assert found["time_zone"] == "Europe/Berlin"
    assert len(found["next_times"]) == 5
    assert found["overdue"] is True
    assert found["paused_at"] is None


@pytest.mark.sql("queries.selectors.schedules.planned_runs")
def test_each_planned_time_is_listed_with_its_run_or_why_it_has_none(
    as_viewer: APIClient, stage: Stage
) -> None:
    for minute in (1, 2):
        ticks.run_schedules(now=START + minute * MINUTE)
        stage.now = START + minute * MINUTE + timedelta(seconds=20)
        stage.settle()
    Run.objects.update(started_at=START + MINUTE + timedelta(seconds=20))
    ticks.run_schedules(now=START + 2.5 * MINUTE)
    skipped, started = as_viewer.get(f"{URL}runs/").json()["results"]
    assert (skipped["state"], skipped["skipped"]) == ("SKIPPED", "overlap")
    assert skipped["operation"] is None
    assert (started["state"], started["late_s"]) == ("STARTED", 20.0)
    assert started["duration_s"] is None
    assert started["operation"]


def test_an_operator_pauses_and_resumes_and_the_audit_log_says_who(
    as_operator: APIClient, as_viewer: APIClient
) -> None:
    assert as_viewer.post(f"{URL}pause/").status_code == 403
    first = as_operator.post(f"{URL}pause/").json()
    assert first["paused_at"]
    assert first["paused_by"] == "otto"
    assert as_operator.post(f"{URL}pause/").json()["paused_at"] == first["paused_at"]
    assert as_operator.post(f"{URL}resume/").json()["paused_at"] is None
    acts = AuditEntry.objects.filter(kind="schedule").order_by("pk")
    assert [(one.actor, one.details["paused"]) for one in acts] == [("otto", True), ("otto", False)]


def test_a_query_without_a_schedule_says_so(as_operator: APIClient, stage: Stage) -> None:
    stage.query("other")
    for answer in (
        as_operator.get("/api/v1/queries/other/schedule/"),
        as_operator.post("/api/v1/queries/other/schedule/pause/"),
    ):
        assert answer.status_code == 404
        assert "other has no schedule." in answer.content.decode()
