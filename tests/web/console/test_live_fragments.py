"""Every open page follows by fragments that hold data only and fit the page they land on."""

import re
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.applications import Application
from queries.models.definitions import Checkpoint
from queries.models.history import Failure, FailureGroup, Operation
from queries.services import failures
from queries.views.console import fragments
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, Stage
from tests.web.browserless import Page


@pytest.fixture(scope="module")
def played(story: None) -> Stage:
    """Return an installation in which one query runs and one has failed, just now."""
    empty = Stage()
    empty.now = timezone.now()
    shared = empty.application("shared")
    shared.pools.create(name="heavy", weight=2)
    empty.query("ticks", "shared", pool="heavy")
    empty.up("ticks", "shared")
    empty.query("delays")
    empty.up("delays")
    empty.fail("delays", DIVIDE, batch=7)
    return empty


@pytest.fixture
def stage(played: Stage, db: None) -> Stage:
    return deepcopy(played)


def _failure(_: Stage) -> int:
    return Failure.objects.get().pk


def _run(stage: Stage) -> int:
    return stage.run("ticks").pk


def _application(stage: Stage) -> int:
    return stage.row("ticks").application_id


def _applications(stage: Stage) -> str:
    rows = Application.objects.filter(archived_at=None).order_by("name")
    return ".".join(str(pk) for pk in rows.values_list("pk", flat=True))


def _checkpoints(stage: Stage) -> str:
    rows = Checkpoint.objects.order_by("location")
    return ".".join(str(pk) for pk in rows.values_list("pk", flat=True))


#: Address of the page, and its topic; `{}` stands for the key.
PAGES: list[tuple[str, str, Callable[[Stage], int | str] | None]] = [
    ("/failures/", "failures:status=open", None),
    ("/failures/?query=delays&q=by%20zero", "failures:q=by+zero&query=delays&status=open", None),
    ("/failures/{}/", "failure:{}", _failure),
    ("/runs/", "runs", None),
    ("/runs/?outcome=OPEN", "runs:outcome=OPEN", None),
    ("/runs/{}/", "run:{}", _run),
    ("/applications/", "applications:{}", _applications),
    ("/applications/shared/", "application:{}", _application),
    ("/checkpoints/", "checkpoints:{}", _checkpoints),
    ("/audit/?tab=changes&actor=olga", "audit:actor=olga&tab=changes", None),
    ("/audit/?tab=operations", "audit:tab=operations", None),
]


@pytest.mark.parametrize(("address", "topic", "key"), PAGES)
def test_a_page_names_its_topic_and_each_fragment_fits_a_place_on_it(
    client: Client,
    admin: User,
    stage: Stage,
    address: str,
    topic: str,
    key: Callable[[Stage], int | str] | None,
) -> None:
    if key is not None:
        address, topic = address.format(key(stage)), topic.format(key(stage))
    client.force_login(admin)
    page = Page(client, address)
    topics = re.search(r'data-topics="([^"]*)"', page.html)
    assert topics is not None
    system, own = topics[1].replace("&amp;", "&").split()
    assert (system, re.sub(r"\.t\d+$", "", own)) == ("system", topic)
    drawn = fragments.draw(own, None, timezone.now())
    assert drawn
    places = set(re.findall(r'sse-swap="([^"]+)"', page.html))
    elsewhere = [event for event, _ in drawn if event not in places and "batches" not in event]
    assert all(event.startswith(("group-", "run-", "operation-")) for event in elsewhere)
    for event, html in drawn:
        if event.startswith("batches"):
            continue
        first = re.match(r"\s*<[^>]+>", html)
        assert first is not None
        assert f'sse-swap="{event}"' in first[0], event
        assert 'id="' in first[0], event
        for forbidden in ("<form", "<button", "<input", "csrf", "/edit/", "/resolve/"):
            assert forbidden not in html, event


def drawn(topic: str, *changes: str) -> dict[str, str]:
    return dict(fragments.draw(topic, frozenset(changes) or None, timezone.now()))


def test_a_new_failure_arrives_hidden_above_the_list_and_is_counted(stage: Stage) -> None:
    stage.fail("ticks", BROKEN_PIPE, batch=3)
    group = FailureGroup.objects.get(query__name="ticks")
    found = drawn("failures:status=open", f"group:{group.pk}")
    assert f'data-arrived="group-{group.pk}"' in found["failures-arrived"]
    assert re.search(rf'id="new-group-{group.pk}"[^>]* hidden', found["failures-arrived"])
    assert ">2<" in found["failures-open"]
    assert "hidden" in found["failures-resolved"]
    assert found.keys() >= {f"group-{group.pk}"}
    older = FailureGroup.objects.get(query__name="delays")
    assert f"group-{older.pk}" not in found  # only what has changed is drawn


def test_arrivals_keep_to_the_filters_of_the_page(stage: Stage) -> None:
    stage.fail("ticks", BROKEN_PIPE, batch=3)
    ticks = FailureGroup.objects.get(query__name="ticks")
    found = drawn("failures:query=delays&status=open", f"group:{ticks.pk}")
    assert f"group-{ticks.pk}" not in found["failures-arrived"]
    assert "DIVIDE_BY_ZERO" in found["failures-arrived"]


def test_a_group_resolved_elsewhere_says_so_where_it_stands(stage: Stage) -> None:
    group = FailureGroup.objects.get()
    failures.resolve_group(group=group, actor="otto", now=stage.now)
    found = drawn("failures:status=open", f"group:{group.pk}")
    assert 'data-status="RESOLVED"' in found[f"group-{group.pk}"]
    assert "group-" not in found["failures-arrived"]


def test_the_page_of_a_failure_counts_those_that_come_after_it(stage: Stage) -> None:
    failure = Failure.objects.get()
    assert "1 time " in drawn(f"failure:{failure.pk}")[f"failure-lead-{failure.pk}"]
    stage.ready("delays")
    stage.fail("delays", DIVIDE, batch=7)
    found = drawn(f"failure:{failure.pk}", f"group:{failure.group_id}")
    assert "2 times " in found[f"failure-lead-{failure.pk}"]
    assert found[f"failure-occurrences-{failure.pk}"].count("<tr id=") == 2


@pytest.mark.sql(
    "queries.selectors.checkpoints.checkpoints",
    "queries.selectors.checkpoints.run_counts",
    "queries.selectors.supervision.applications.application_details",
    "queries.selectors.supervision.applications.pools_of",
    "queries.views.checkpoints.checkpoint.draw_checkpoints",
    "queries.views.supervision.applications.draw_applications",
)
def test_what_is_about_others_draws_nothing(stage: Stage) -> None:
    ticks, delays = stage.row("ticks"), stage.row("delays")
    assert drawn(f"run:{stage.run('ticks').pk}", f"query:{delays.pk}") == {}
    assert drawn(f"failure:{Failure.objects.get().pk}", f"query:{ticks.pk}") == {}
    assert drawn(f"application:{ticks.application_id}", f"query:{delays.pk}") == {}
    rows = drawn(f"applications:{_applications(stage)}", f"query:{delays.pk}")
    assert rows.keys() == {f"application-{delays.application_id}"}
    assert len(drawn(f"checkpoints:{_checkpoints(stage)}", f"query:{delays.pk}")) == 1


def test_a_run_that_ends_says_how_on_its_open_page(stage: Stage) -> None:
    run = stage.run("ticks")
    assert "Running" in drawn(f"run:{run.pk}")[f"run-state-{run.pk}"]
    stage.fail("ticks", BROKEN_PIPE, batch=3)
    found = drawn(f"run:{run.pk}", f"query:{run.query_id}")
    assert "Failed" in found[f"run-state-{run.pk}"]
    assert "data-ended" in found[f"run-state-{run.pk}"]
    assert "Connection refused" in found[f"run-notes-{run.pk}"]
    assert "Ended" in found[f"run-lead-{run.pk}"]


def test_a_run_whose_driver_dies_leads_to_the_death_on_its_open_page(stage: Stage) -> None:
    run = stage.run("ticks")
    stage.launcher.die("shared", python="SIGKILL", jvm="UNKNOWN")
    stage.look()
    found = drawn(f"run:{run.pk}", f"driver:{run.driver_id}")
    assert "Driver died: Python killed by SIGKILL" in found[f"run-notes-{run.pk}"]


def test_a_run_that_began_since_arrives_in_the_list(stage: Stage) -> None:
    stage.ready("delays")
    run = stage.run("delays")
    found = drawn("runs:query=delays", f"query:{run.query_id}")
    assert f'data-arrived="run-{run.pk}"' in found["runs-arrived"]
    assert f"run-{stage.run('ticks').pk}" not in found["runs-arrived"]


def test_an_act_arrives_in_the_audit_and_its_operation_follows(stage: Stage) -> None:
    operation = stage.stop("ticks")
    found = drawn("audit:actor=olga&tab=changes", f"operation:{operation.uuid}")
    assert "stop requested" in found["audit-arrived"]
    assert 'href="?actor=olga&amp;tab=changes"' in found["audit-arrived"]
    shown = drawn("audit:tab=operations", f"operation:{operation.uuid}")
    assert "In progress" in shown[f"operation-{operation.pk}"]
    Operation.objects.filter(pk=operation.pk).update(outcome="DONE", ended_at=stage.now)
    shown = drawn("audit:tab=operations", f"operation:{operation.uuid}")
    assert "Done" in shown[f"operation-{operation.pk}"]


@pytest.mark.parametrize("topic", ["failure:99", "failure:x", "run:99", "application:99", "run"])
def test_a_topic_about_nothing_draws_nothing(stage: Stage, topic: str) -> None:
    assert drawn(topic) == {}


@pytest.mark.parametrize("key", ["status=nonsense&q=%00", "outcome=%F0%9F&tab=x", "=&&&"])
def test_filters_that_nobody_could_have_chosen_do_no_harm(stage: Stage, key: str) -> None:
    for kind in ("failures", "runs", "audit"):
        assert drawn(f"{kind}:{key}")


def test_the_navigation_counts_open_failures(stage: Stage) -> None:
    assert ">1<" in drawn("system", "group:1")["open-failures"]
    failures.resolve_group(group=FailureGroup.objects.get(), actor="otto", now=stage.now)
    assert "hidden" in drawn("system", "group:1")["open-failures"]


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("/queries/", "queries"),
        ("/applications/", "applications"),
        ("/checkpoints/", "checkpoints"),
    ],
)
def test_a_list_tells_what_was_created_since_it_was_loaded_and_moves_no_row(
    client: Client, viewer: User, stage: Stage, address: str, what: str
) -> None:
    client.force_login(viewer)
    topics = re.search(r'data-topics="system ([^"]*)"', Page(client, address).html)
    assert topics is not None
    assert "new since" not in drawn(topics[1])[f"new-{what}"]
    stage.now = timezone.now() + timedelta(seconds=2)
    stage.query("fresh")
    found = drawn(topics[1])
    assert "1 new since this page was loaded." in found[f"new-{what}"]
    assert "fresh" not in "".join(found.values())
