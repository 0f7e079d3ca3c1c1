"""What was done reads as a sentence, stands once, and leads nowhere that is not there any more."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.domain.states import GroupStatus
from queries.models.history import FailureGroup, Operation
from queries.services import failures
from queries.services.definitions import catalog
from queries.services.supervision import application_operations, operations
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage
from tests.web.browserless import Page


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def _delete(stage: Stage, name: str) -> None:
    stage.stop(name)
    stage.settle()
    operations.archive_query(query=stage.row(name), actor="ada", now=stage.now)


def test_the_overview_says_what_was_done_to_a_failure(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    group = FailureGroup.objects.get()
    failures.resolve_group(group=group, actor="ada", now=stage.now)
    failures.reopen_group(group=group, actor="olga", now=stage.now)
    text = Page(vera, "/").text
    assert "ada resolved a failure of delays" in text
    assert "olga reopened a failure of delays" in text


def test_a_query_with_an_application_of_its_own_is_defined_once(vera: Client, stage: Stage) -> None:
    spec = stage.query("pattern").revisions.get().spec
    catalog.create_query(name="delays", spec=spec, actor="ada", now=stage.now)
    assert Page(vera, "/").text.count("ada defined delays") == 1


def test_a_restart_is_no_change_from_running_to_running(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    operation = stage.restart("delays")
    assert isinstance(operation, Operation)
    for address in ("/audit/", "/queries/delays/activity/"):
        page = Page(vera, address)
        assert not re.search(r"running (→|to) running", page.text, re.IGNORECASE)


def test_nothing_of_a_deleted_query_is_left_to_do_or_leads_to_a_missing_page(
    vera: Client, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    _delete(stage, "delays")
    group = FailureGroup.objects.get()
    assert (group.status, group.resolved_by) == (GroupStatus.RESOLVED, "ada")
    failure = group.failures.get()
    assert failure.run is not None
    addresses = ("/", "/failures/?status=all", f"/failures/{failure.pk}/", "/runs/", "/audit/")
    for address in (*addresses, f"/runs/{failure.run.pk}/"):
        page = Page(vera, address)
        assert "delays" in page.text
        assert 'href="/queries/delays/' not in page.html


def test_what_its_application_left_open_is_resolved_with_it(stage: Stage) -> None:
    home = stage.application("shared")
    stage.query("delays", "shared")
    FailureGroup.objects.create(
        application=home, fingerprint="f", title="died", first_seen=stage.now, last_seen=stage.now
    )
    _delete(stage, "delays")
    application_operations.archive_application(application=home, actor="ada", now=stage.now)
    assert FailureGroup.objects.get().status == GroupStatus.RESOLVED
