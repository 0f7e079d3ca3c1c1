"""A query that fails again and again is one incident on its page, the overview and the banner."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.history import Failure
from queries.selectors.failures.occurrences import crash_loops
from queries.selectors.query_lines import query_line
from queries.views.console import shell
from tests.scenarios.stage import BROKEN_PIPE, Stage
from tests.web.browserless import Page


def _again(failure: Failure, times: int) -> None:
    """Let a failure have come `times` times more, a minute apart, up to when it came."""
    Failure.objects.bulk_create(
        Failure(
            driver=failure.driver,
            run=failure.run,
            group=failure.group,
            at=failure.at - timedelta(minutes=number),
            category=failure.category,
            policy=failure.policy,
        )
        for number in range(1, times + 1)
    )


@pytest.fixture
def stage(db: None) -> Stage:
    """Return an empty installation whose clock shows our time."""
    empty = Stage()
    empty.now = timezone.now()
    return empty


@pytest.fixture
def looping(stage: Stage) -> Stage:
    """Return a stage on which a query has just failed for the fifth time in five minutes."""
    stage.query("delays")
    stage.query("ticks")
    stage.up("delays")
    stage.up("ticks")
    stage.fail("delays", BROKEN_PIPE, batch=3)
    _again(Failure.objects.get(), 4)
    return stage


def test_five_failures_in_ten_minutes_are_one_incident_of_that_query(looping: Stage) -> None:
    now = timezone.now()
    found = crash_loops(now=now)
    assert set(found) == {looping.row("delays").pk}
    incident = query_line("delays", now=now).head.crash_loop
    assert incident is not None
    times = Failure.objects.order_by("at").values_list("at", flat=True)
    assert (incident.count, incident.first_at, incident.last_at) == (5, times[0], times[4])
    assert query_line("ticks", now=now).head.crash_loop is None
    assert crash_loops(now=now + timedelta(minutes=11)) == {}


def test_a_query_that_nobody_wants_any_more_loops_no_longer(looping: Stage) -> None:
    looping.stop("delays")
    assert crash_loops(now=timezone.now()) == {}


def test_deaths_of_a_driver_are_an_incident_of_each_of_its_queries(stage: Stage) -> None:
    stage.application("shared")
    stage.query("a", "shared")
    stage.query("b", "shared")
    stage.up("a", "shared")
    stage.start("b")
    stage.launcher.die("shared", python="SIGKILL", jvm="SIGKILL")
    stage.look()
    _again(Failure.objects.get(), 4)
    now = timezone.now()
    assert set(crash_loops(now=now)) == {stage.row("a").pk, stage.row("b").pk}
    [line] = [line for line in shell.banner(now) if "crash loop" in line.items[0][0]]
    assert [about for about, _ in line.items] == ["a, b: crash loop"]  # told once


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/queries/delays/", "Crash loop: 5 failures since"),
        ("/", "Crash loop: 5 failures since"),
        ("/queries/ticks/", "delays: crash loop 5 failures"),  # the banner, on every page
    ],
)
def test_the_pages_say_so(
    looping: Stage, client: Client, viewer: User, address: str, sentence: str
) -> None:
    client.force_login(viewer)
    assert sentence in Page(client, address).text


def test_the_list_counts_it_among_what_needs_attention_and_rest_says_it(
    looping: Stage, client: Client, viewer: User
) -> None:
    client.force_login(viewer)
    rows = Page(client, "/queries/?group=attention").html
    assert 'data-name="delays"' in rows
    assert 'data-name="ticks"' not in rows
    body = client.get("/api/v1/queries/delays/").json()
    assert body["crash_loop"]["count"] == 5
    assert client.get("/api/v1/queries/ticks/").json()["crash_loop"] is None
