"""Incidents are listed, each tells its story, and operators act on it there."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from headgate_ground.wire import EventKind
from listeners.models import Event
from queries.domain.alerts.forms import IncidentKind
from queries.domain.alerts.incidents import QUIET_BEFORE_CLOSING
from queries.domain.states import LossKind
from queries.domain.system import SystemHealth
from queries.models.alerts import Channel, Incident
from queries.models.checkpoints import Loss
from queries.models.definitions import Query, QueryRevision
from queries.selectors.alerts.incidents import story
from queries.services.alerts import incidents as service
from queries.services.alerts.deliveries import announce_incidents
from queries.views.console.fragments import draw
from tests.scenarios.stage import NO_SUCH_SOURCE, Stage
from tests.web.browserless import Page


@pytest.fixture
def broken(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage on which delays has failed for good, with one channel to tell."""
    monkeypatch.setattr(service, "system_health", lambda now: SystemHealth(now, ()))
    Channel.objects.create(name="pager", kind="webhook", created_at=stage.now, created_by="ada")
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", NO_SUCH_SOURCE)
    service.watch_incidents(now=stage.now)
    announce_incidents(now=stage.now)
    return stage


def _see(client: Client, person: User, address: str) -> Page:
    client.force_login(person)
    return Page(client, address)


def _address() -> str:
    return f"/alerts/{Incident.objects.get().uuid}/"


def test_the_list_shows_what_is_open_and_the_navigation_counts_it(
    client: Client, viewer: User, broken: Stage
) -> None:
    page = _see(client, viewer, "/alerts/")
    assert "delays: failed" in page.text
    assert "Failed to find the data source" in page.text
    assert 'id="open-incidents"' in page.html
    assert 'title="1 open"' in page.html


@pytest.mark.sql(
    "queries.selectors.alerts.incidents.incident_counts",
    "queries.selectors.rows.rows_after",
)
def test_filters_stand_in_the_address(client: Client, viewer: User, broken: Stage) -> None:
    for query, there in (
        ("q=delays", True),
        ("q=nothing", False),
        ("severity=warning", False),
        ("severity=critical", True),
        ("state=closed", False),
        ("state=all", True),
        ("query=delays", True),
        ("query=other", False),
        ("state=\x00&after=~&severity=%22", True),
    ):
        assert ("delays: failed" in _see(client, viewer, f"/alerts/?{query}").text) is there, query


@pytest.mark.sql("queries.selectors.alerts.incidents.thread_dump")
def test_a_stalled_query_shows_its_drivers_thread_dump(
    client: Client, viewer: User, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "system_health", lambda now: SystemHealth(now, ()))
    stage.query("delays")
    stage.up("delays")
    Query.objects.update(verdict="STALLED", verdict_since=stage.now)
    service.watch_incidents(now=stage.now)
    assert "Thread dump" not in _see(client, viewer, _address()).text
    run = stage.run("delays")
    body = {"quiet_s": 61, "threads": '"main" <waiting>', "heap": "[B"}
    for seq, minutes in enumerate((31, 1)):
        Event.objects.create(
            driver=run.driver_id,
            epoch=run.driver.epoch,
            seq=seq,
            at=stage.now - timedelta(minutes=minutes),
            received_at=stage.now,
            kind=EventKind.THREAD_DUMP,
            query=run.query_id,
            run=run.pk,
            body=body if seq else {**body, "threads": "an older one"},
        )
    page = _see(client, viewer, _address())
    assert '"main" <waiting>' in page.text
    assert "an older one" not in page.text
    Incident.objects.update(kind=IncidentKind.FAILED)
    assert "Thread dump" not in _see(client, viewer, _address()).text


def test_no_incident_is_said_kindly(client: Client, viewer: User, stage: Stage) -> None:
    assert "No incidents" in _see(client, viewer, "/alerts/").text


def test_its_page_tells_what_happened_and_leads_to_the_way_out(
    client: Client, viewer: User, broken: Stage
) -> None:
    page = _see(client, viewer, _address())
    for words in (
        "Failed to find the data source",
        "View failure",
        "Opened",
        "delays RUNNING → FAILED",
        "Requested start",
        "Notifying pager",
    ):
        assert words in page.text
    assert "Acknowledge" not in page.text  # a viewer only reads


def test_an_operator_acknowledges_assigns_notes_snoozes_and_closes(
    client: Client, operator: User, broken: Stage
) -> None:
    client.force_login(operator)
    address = _address()
    assert "Acknowledge" in Page(client, address).text
    for verb, sent in (
        ("acknowledge", {"hours": "4"}),
        ("assign", {"to": "ben"}),
        ("note", {"text": "The connector is missing."}),
        ("snooze", {"hours": "1"}),
    ):
        client.post(f"{address}{verb}/", sent)
    text = Page(client, address).text
    for words in (
        "is working on it until",
        "Assigned to ben",
        "The connector is missing.",
        "Snoozed",
    ):
        assert words in text
    client.post(f"{address}close/")
    text = Page(client, address).text
    assert f"by {operator.username}" in text
    answer = client.post(f"{address}acknowledge/", follow=True)
    assert "already closed" in answer.content.decode()


def test_what_no_form_sends_does_no_harm(client: Client, operator: User, broken: Stage) -> None:
    client.force_login(operator)
    assert client.post(f"{_address()}explode/").status_code == 404
    client.post(f"{_address()}acknowledge/", {"hours": "1e9"})
    answer = client.post(f"{_address()}note/", {"text": " "}, follow=True)
    assert "empty" in answer.content.decode()


def test_a_viewer_may_not_act(client: Client, viewer: User, broken: Stage) -> None:
    client.force_login(viewer)
    assert client.post(f"{_address()}close/").status_code == 403
    assert Incident.objects.get().state == "OPEN"


@pytest.mark.sql(
    "queries.selectors.alerts.incidents._deliveries",
    "queries.selectors.alerts.incidents._entries",
    "queries.selectors.alerts.incidents._operations",
    "queries.selectors.alerts.incidents._transitions",
    "queries.selectors.alerts.incidents.incidents",
    "queries.views.alerts.incidents.draw_incidents",
)
def test_an_open_list_and_an_open_page_follow(broken: Stage) -> None:
    row = Incident.objects.get()
    later = broken.now + timedelta(seconds=5)
    drawn = dict(draw("incidents:state=open", frozenset({f"incident:{row.pk}"}), later))
    assert "delays: failed" in drawn[f"incident-row-{row.pk}"]
    assert "delays: failed" in drawn["incidents-arrived"]
    service.acknowledge(row, actor="olga", now=broken.now)
    drawn = dict(draw(f"incident:{row.pk}", None, later))
    assert "olga is working on it" in drawn[f"incident-lead-{row.pk}"]
    assert "Acknowledged" in drawn[f"incident-story-{row.pk}"]
    assert "acknowledged" in drawn[f"incident-status-{row.pk}"]
    assert dict(draw("system", None, later))["open-incidents"].count("1 open") == 1
    assert dict(draw("incident:0", None, later)) == {}


def test_one_that_closed_by_itself_says_so(client: Client, viewer: User, broken: Stage) -> None:
    Query.objects.update(phase="RUNNING", restart_block="")
    for seconds in (10, QUIET_BEFORE_CLOSING.total_seconds()):
        broken.now += timedelta(seconds=seconds)
        service.watch_incidents(now=broken.now)
    text = _see(client, viewer, _address()).text
    assert "automatically" in text
    assert "Cause cleared" in text


def test_what_happened_at_one_moment_stands_in_its_order(broken: Stage) -> None:
    # The stage's clock has not moved: a start, a driver and a first commit share one moment.
    lines = [line.what for line in story(Incident.objects.get())]
    started = next(i for i, what in enumerate(lines) if what.endswith("→ STARTING"))
    failed = next(i for i, what in enumerate(lines) if what.endswith("→ FAILED"))
    assert started < failed < lines.index("Opened")


def test_the_page_names_what_is_downstream(client: Client, viewer: User, broken: Stage) -> None:
    assert "Downstream" not in _see(client, viewer, _address()).text
    files = {"format": "json", "options": {"path": "/data/delays"}}
    revision = broken.last_run("delays").revision
    QueryRevision.objects.filter(pk=revision.pk).update(spec=revision.spec | {"sink": files})
    for name in ("daily", "late"):
        broken.query(name, sources=[{"name": "flights", **files}])
    page = _see(client, viewer, _address())
    said = re.sub(r"\s+(?=[,)])|(?<=\()\s+", "", page.text)
    assert "Downstream: daily, late (2 queries)" in said
    assert 'href="/queries/delays/lineage/"' in page.html
    assert "may be incomplete" not in page.text
    unread = {"relations": [], "unknown": ["Spark's parser rejects it"]}
    broken.query("apart").revisions.update(reads=unread)
    page = _see(client, viewer, _address())
    why = "the list may be incomplete, because not all reads and writes are known of apart"
    assert why in page.text


def test_a_lineage_that_cannot_be_read_hides_no_incident(
    client: Client,
    viewer: User,
    broken: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def unreadable() -> None:
        raise ValueError("two queries of one name")

    monkeypatch.setattr("queries.selectors.lineage.lineage", unreadable)
    assert "delays" in _see(client, viewer, _address()).text
    assert "two queries of one name" in caplog.text


@pytest.mark.sql("queries.selectors.alerts.incidents._accepted_losses")
def test_one_that_is_over_shows_how_it_ended_and_claims_nothing_of_now(
    client: Client, viewer: User, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "system_health", lambda now: SystemHealth(now, ()))
    stage.query("delays")
    stage.up("delays")
    Query.objects.update(risk="150 offsets may be lost.", risk_at=stage.now)
    service.watch_incidents(now=stage.now)
    assert "150 offsets may be lost." in _see(client, viewer, _address()).text
    Loss.objects.create(
        **{"query": Query.objects.get(), "source": "flights", "kind": LossKind.RETENTION},
        **{"offsets": 150, "noticed_at": stage.now, "accepted_at": stage.now},
        accepted_by="ada",
    )
    service.close(Incident.objects.get(), actor="ada", now=stage.now)
    page = _see(client, viewer, _address()).text
    assert "The loss of 150 offsets was accepted by ada." in page
    assert "Cause until then" in page
    assert "What to do" not in page


@pytest.mark.parametrize("kind", IncidentKind)
def test_a_restart_is_offered_only_where_it_ends_the_problem(
    client: Client, operator: User, broken: Stage, kind: IncidentKind
) -> None:
    Incident.objects.update(kind=kind, failure_group=None)
    buttons = _see(client, operator, _address()).html
    ends = kind in (IncidentKind.STALLED, IncidentKind.QUERY_MISSING)
    assert ("Restart…" in buttons) is ends
    assert ("End the driver…" in buttons) is (kind is IncidentKind.STUCK_STOP)
