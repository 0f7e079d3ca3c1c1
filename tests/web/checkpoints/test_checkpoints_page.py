"""The page of checkpoints names who holds each location."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from tests.scenarios.stage import Stage
from tests.web.browserless import Page


@pytest.fixture
def held(stage: Stage) -> Stage:
    stage.query("delays")
    stage.query("idle")
    stage.up("delays")
    return stage


def test_the_holder_is_named_with_its_number_and_host(
    client: Client, viewer: User, held: Stage
) -> None:
    client.force_login(viewer)
    page = Page(client, "/checkpoints/")
    run = held.run("delays")
    assert "file:///checkpoints/delays" in page.text
    assert f"run {run.pk}" in page.text
    assert f"JVM {run.driver.jvm_pid} on {run.driver.host}" in page.text
    assert "idle none" in page.text  # holds the idle query's


@pytest.mark.sql("queries.views.checkpoints.checkpoint.checkpoint_list")
def test_a_search_finds_by_location_and_by_query(client: Client, viewer: User, held: Stage) -> None:
    client.force_login(viewer)
    page = Page(client, "/checkpoints/?q=idle")
    assert "checkpoints/idle" in page.text
    assert "checkpoints/delays" not in page.text


def test_a_retired_one_stands_apart(client: Client, viewer: User, held: Stage) -> None:
    Checkpoint.objects.filter(query__name="idle").update(retired_at=held.now)
    client.force_login(viewer)
    assert "checkpoints/idle" not in Page(client, "/checkpoints/").text
    assert "checkpoints/idle" in Page(client, "/checkpoints/?retired=1").text


def test_a_checkpoint_that_is_not_fenced_says_so_with_the_reason(
    client: Client, viewer: User, held: Stage
) -> None:
    Checkpoint.objects.filter(query__name="delays").update(location="s3a://bucket/delays")
    client.force_login(viewer)
    assert "not fenced" not in Page(client, "/checkpoints/").text
    warning = "not fenced: a second driver is not kept out of it, because its store cannot"
    Run.objects.filter(pk=held.run("delays").pk).update(warnings=["of the query", warning])
    page = client.get("/checkpoints/").content.decode()
    assert f'title="{warning}">not fenced</span>' in page


def test_an_outsider_is_refused(client: Client, outsider: User) -> None:
    client.force_login(outsider)
    assert client.get("/checkpoints/").status_code == 403
