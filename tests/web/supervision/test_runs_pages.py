"""A run's page says why it began, what it did in which state, and how it ended."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from listeners.models import Progress
from queries.models.drivers import Run
from queries.models.history import Failure
from queries.views.supervision.run_list import calendar
from queries.views.supervision.runs import lane
from tests.listeners.rows import store_batch
from tests.scenarios.stage import DIVIDE, Stage
from tests.web.browserless import Page


@pytest.fixture(scope="module")
def failed(story: None) -> Stage:
    """Return a stage on which delays ran for a minute, failed, and began again."""
    stage = Stage()
    stage.query("delays")
    stage.up("delays")
    run, driver = stage.run("delays"), stage.driver("delays")
    for batch in (3, 4, 5):
        at = stage.now + timedelta(seconds=batch)
        Progress.objects.create(
            driver=driver.pk,
            epoch=driver.epoch,
            seq=batch,
            query=run.query_id,
            run=run.pk,
            spark_run_id="x",
            batch=batch,
            at=at,
            received_at=at,
            repaired=batch == 4,
            num_input_rows=1000 + batch,
            batch_duration_ms=250,
            body={
                "sources": [
                    {"description": "rate", "startOffset": batch - 1, "endOffset": {"x": batch}}
                ]
            },
        )
    stage.wait(60)
    stage.fail("delays", DIVIDE, batch=6)
    return stage


def _see(client: Client, person: User, address: str) -> Page:
    client.force_login(person)
    return Page(client, address)


def _first() -> Run:
    return Run.objects.order_by("epoch")[0]


def test_the_list_says_how_each_ended(client: Client, viewer: User, failed: Stage) -> None:
    page = _see(client, viewer, "/runs/")
    assert "Failed" in page.text
    assert "start requested by olga" in page.text
    assert Run.objects.count() == 2


@pytest.mark.parametrize(
    ("asked", "count"),
    [("", 2), ("?outcome=FAILED", 1), ("?outcome=OPEN", 1), ("?query=none", 0)],
)
def test_filters_stand_in_the_address(
    client: Client, viewer: User, failed: Stage, asked: str, count: int
) -> None:
    assert _see(client, viewer, f"/runs/{asked}").html.count("data-row-link") == count


def test_the_page_says_why_who_failure_and_batches(
    client: Client, viewer: User, failed: Stage
) -> None:
    page = _see(client, viewer, f"/runs/{_first().pk}/")
    assert "start requested, by olga" in page.text
    assert "DIVIDE_BY_ZERO at batch 6" in page.text
    assert "Batch 3" in page.text
    assert "1,003 rows in 250 ms" in page.text
    assert '{"x": 5}' in page.text
    assert "1 batch repaired" in page.text


def test_previous_and_next_lead_from_run_to_run(
    client: Client, viewer: User, failed: Stage
) -> None:
    first, second = Run.objects.order_by("epoch")
    assert f'href="/runs/{second.pk}/"' in _see(client, viewer, f"/runs/{first.pk}/").html
    assert f'href="/runs/{first.pk}/"' in _see(client, viewer, f"/runs/{second.pk}/").html


def test_the_charts_cover_the_runs_own_time(client: Client, viewer: User, failed: Stage) -> None:
    run = _first()
    client.force_login(viewer)
    answer = client.get(f"/runs/{run.pk}/series/").json()
    assert run.ended_at is not None
    assert answer["until"] == run.ended_at.timestamp()
    assert [batch for batch in answer["batches"] if batch is not None] == [3, 4, 5]
    assert [v for v in answer["columns"]["num_input_rows"] if v is not None] == [1003, 1004, 1005]


def test_time_in_states_adds_up_to_the_whole(failed: Stage) -> None:
    run = _first()
    stretches = lane(run, failed.now)
    assert [one.label for one in stretches][-1] == "running"
    assert run.ended_at is not None
    whole = (run.ended_at - run.created_at).total_seconds() * 1000
    assert sum(one.ms for one in stretches) == pytest.approx(whole)
    assert stretches[-1].x + stretches[-1].width == pytest.approx(1000, abs=0.1)


def test_both_exits_of_its_driver_are_told(client: Client, viewer: User, stage: Stage) -> None:
    stage.query("killed")
    stage.up("killed")
    run = stage.run("killed")
    stage.launcher.die("killed", python="SIGKILL", jvm="UNKNOWN")
    stage.look()
    page = _see(client, viewer, f"/runs/{run.pk}/")
    assert "Python exit SIGKILL" in page.text
    assert "JVM exit UNKNOWN" in page.text


def test_the_death_of_its_driver_stands_on_the_pages_of_the_runs_that_it_ended(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.application("shared")
    for name in ("killed", "stopped"):
        stage.query(name, "shared")
        stage.up(name, "shared")
    killed, stopped = stage.run("killed"), stage.run("stopped")
    stage.stop("stopped")
    stage.launcher.end_run(stopped.pk)
    stage.look()
    stage.wait(5)
    stage.launcher.die("shared", python="SIGKILL", jvm="UNKNOWN")
    stage.look()
    death = Failure.objects.get(run=None)
    link = f'href="/failures/{death.pk}/"'
    assert link in _see(client, viewer, f"/runs/{killed.pk}/").html
    assert link not in _see(client, viewer, f"/runs/{stopped.pk}/").html


def test_an_outsider_is_refused(client: Client, outsider: User, failed: Stage) -> None:
    client.force_login(outsider)
    for address in ("/runs/", f"/runs/{_first().pk}/", f"/runs/{_first().pk}/series/"):
        assert client.get(address).status_code == 403


@pytest.mark.sql("queries.selectors.supervision.history.outcomes_by_day")
def test_runs_of_a_query_that_ends_have_rows_parameters_and_a_calendar(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.now = timezone.now()
    query = stage.query("backfill", trigger={"kind": "available_now"}, params={"low": 1})
    stage.up("backfill")
    run = stage.run("backfill")
    body = {"sink": {"numOutputRows": 1234}}
    store_batch(0, query=query.pk, run=run.pk, num_input_rows=5678, body=body)
    stage.launcher.end_run(run.pk)
    stage.look()
    client.force_login(viewer)
    page = Page(client, "/queries/backfill/runs/")
    for said in ("5,678", "1,234", "low = 1", f"{stage.now:%d %b %Y}: 1 completed"):
        assert said in page.html
    assert "low = 1" in Page(client, f"/runs/{run.pk}/").html


def test_a_run_whose_parameters_cannot_be_read_spoils_no_page(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.query("backfill", trigger={"kind": "available_now"}, params={"low": 1})
    stage.up("backfill")
    Run.objects.update(params=[1])
    client.force_login(viewer)
    page = Page(client, "/queries/backfill/runs/")
    assert "Last 90 days" in page.html
    assert "AttributeError" in page.html  # in place of its row


def test_a_day_of_the_calendar_has_the_colour_of_its_outcomes() -> None:
    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    days = calendar(
        {
            date(2026, 3, 2): Counter({"COMPLETED": 3, "DRIVER_ENDED": 1, "": 1}),
            date(2026, 3, 1): Counter({"FAILED": 2}),
            date(2026, 2, 28): Counter({"COMPLETED": 1, "STOPPED": 1}),
            date(2026, 2, 27): Counter({"": 1}),
            date(2026, 2, 26): Counter({"STOPPED": 1}),
        },
        now,
    )
    assert [day.tone for day in days[-6:]] == ["", "calm", "busy", "ok", "bad", "warn"]
    assert days[-1].text == "02 Mar 2026: 3 completed, 1 failed, 1 running"
    assert (len(days), days[0].text) == (90, "03 Dec 2025: no runs")
