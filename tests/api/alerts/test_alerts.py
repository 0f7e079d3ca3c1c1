"""Scripts see and act on incidents, and set channels, rules and maintenance up, over REST."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from queries.models.alerts import AlertRule, Channel, Delivery, Incident, Maintenance
from queries.models.definitions import Query
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
CHANNEL = {
    "name": "pager",
    "kind": "webhook",
    "settings": {"url": "file:hook", "secret": "file:hook-key"},
}


def api(person: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(person)
    return client


def _incident(**columns: Any) -> Incident:
    known: dict[str, Any] = {
        "kind": "failed",
        "fingerprint": f"f{Incident.objects.count()}",
        "severity": "critical",
        "title": "delays: failed",
        "opened_at": NOW,
        "first_opened_at": NOW,
        "seen_at": NOW,
        **columns,
    }
    return Incident.objects.create(**known)


@pytest.mark.sql("queries.selectors.alerts.incidents.incidents")
def test_incidents_are_listed_with_filters_and_pages(viewer: User) -> None:
    for number in range(3):
        _incident(opened_at=NOW + timedelta(seconds=number))
    _incident(severity="warning", state="CLOSED", closed_at=NOW)
    client = api(viewer)
    first = client.get("/api/v1/incidents/?state=OPEN&limit=2").json()
    rest = client.get(first["next"]).json()
    assert len(first["results"]) == 2
    assert len(rest["results"]) == 1
    (closed,) = client.get("/api/v1/incidents/?severity=warning").json()["results"]
    assert closed["state"] == "CLOSED"
    assert client.get("/api/v1/incidents/?state=odd").status_code == 422


def test_an_operator_acknowledges_assigns_notes_snoozes_and_closes(operator: User) -> None:
    address = f"/api/v1/incidents/{_incident().uuid}/"
    client = api(operator)
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = client.post(f"{address}acknowledge/", {}, format="json").json()
    assert body["acknowledged_by"] == operator.username
    assert (
        client.post(f"{address}assign/", {"to": "ben"}, format="json").json()["assignee"] == "ben"
    )
    assert client.post(f"{address}snooze/", {"until": later}, format="json").status_code == 200
    client.post(f"{address}notes/", {"text": "The broker was away."}, format="json")
    assert client.post(f"{address}close/", {}, format="json").json()["closed_by"]
    assert client.post(f"{address}close/", {}, format="json").status_code == 409
    lines = client.get(f"{address}entries/").json()["results"]
    assert [line["kind"] for line in lines] == [
        *("closed", "note", "snoozed", "assigned", "acknowledged"),
    ]


def test_a_time_that_has_passed_is_refused(operator: User) -> None:
    address = f"/api/v1/incidents/{_incident().uuid}/snooze/"
    answer = api(operator).post(address, {"until": NOW.isoformat()}, format="json")
    assert answer.status_code == 422
    assert "not in the future" in answer.content.decode()


def test_a_viewer_reads_and_does_nothing(viewer: User) -> None:
    address = f"/api/v1/incidents/{_incident().uuid}/"
    client = api(viewer)
    body = client.get(address).json()
    assert body["title"] == "delays: failed"
    assert "a restart cannot fix" in body["cause"]
    assert body["next_step"].endswith(".")
    assert client.get(body["next_page"]).status_code != 404
    assert body["place"]
    assert client.post(f"{address}close/", {}, format="json").status_code == 403
    assert client.get("/api/v1/alert-channels/").status_code == 403
    assert client.get("/api/v1/alert-rules/").status_code == 200
    assert client.post("/api/v1/maintenance/", {}, format="json").status_code == 403


@pytest.fixture
def bound() -> None:
    for secret in ("file:hook", "file:hook-key"):
        bind(secret, "pager", "hooks.example.org", "*", kind="channel")


def test_an_admin_sets_channels_up(admin: User, bound: None) -> None:
    client = api(admin)
    answer = client.post("/api/v1/alert-channels/", CHANNEL, format="json")
    assert answer.status_code == 201
    assert answer["Location"] == "/api/v1/alert-channels/pager/"
    assert client.post("/api/v1/alert-channels/", CHANNEL, format="json").status_code == 200
    taken = {**CHANNEL, "enabled": False}
    assert client.post("/api/v1/alert-channels/", taken, format="json").status_code == 422
    got = client.get("/api/v1/alert-channels/pager/").json()
    answer = client.put("/api/v1/alert-channels/pager/", {**got, "enabled": False}, format="json")
    assert answer.json()["enabled"] is False
    client.post("/api/v1/alert-channels/pager/test/", {}, format="json")
    assert Delivery.objects.get().channel.name == "pager"
    assert client.delete("/api/v1/alert-channels/pager/").status_code == 204
    assert not Channel.objects.exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"settings": {"url": "https://example.org/t0ken", "secret": "file:k"}}, "settings.url"),
        ({"settings": {"url": "file:u"}}, "settings.secret"),
        ({"settings": {"url": "file:u", "secret": "file:k", "odd": "x"}}, "settings.odd"),
        ({"settings": {"url": {"a": 1}, "secret": "file:k"}}, "settings.url"),
        ({"kind": "pigeon"}, "kind"),
        ({"name": ""}, "name"),
    ],
)
def test_a_channel_that_cannot_work_is_refused_by_its_field(
    admin: User, change: dict[str, Any], field: str
) -> None:
    answer = api(admin).post("/api/v1/alert-channels/", {**CHANNEL, **change}, format="json")
    assert answer.status_code == 422
    assert any(one["field"].startswith(field) for one in answer.json()["problems"])
    assert "t0ken" not in answer.content.decode()


def test_an_admin_sets_rules_up_and_a_channel_that_a_rule_needs_stays(
    admin: User, bound: None
) -> None:
    client = api(admin)
    client.post("/api/v1/alert-channels/", CHANNEL, format="json")
    rule = {
        "name": "night",
        "channels": ["pager"],
        "selector": {"labels": {"team": "a"}, "severities": ["critical"]},
        "quiet_hours": {"zone": "Europe/Berlin", "from": "22:00", "until": "07:00"},
        "remind_every_hours": 4,
        "thresholds": [{"figure": "late_rows", "value": 5}],
    }
    answer = client.post("/api/v1/alert-rules/", rule, format="json")
    assert answer.status_code == 201, answer.json()
    got = client.get("/api/v1/alert-rules/night/").json()
    assert got["channels"] == ["pager"]
    assert got["selector"] == rule["selector"]
    assert client.put("/api/v1/alert-rules/night/", got, format="json").json() == got
    refused = client.delete("/api/v1/alert-channels/pager/")
    assert refused.status_code == 409
    assert "night" in refused.content.decode()
    assert client.delete("/api/v1/alert-rules/night/").status_code == 204
    assert not AlertRule.objects.exists()


@pytest.mark.sql("queries.selectors.access.of_selectors")
def test_an_operator_begins_and_ends_maintenance(operator: User) -> None:
    client = api(operator)
    now = datetime.now(UTC)
    window = {
        "name": "upgrade",
        "starts_at": (now - timedelta(minutes=1)).isoformat(),
        "ends_at": (now + timedelta(hours=1)).isoformat(),
    }
    answer = client.post("/api/v1/maintenance/", window, format="json")
    assert answer.status_code == 201
    assert client.delete(answer["Location"]).status_code == 204
    assert Maintenance.objects.get().ends_at < now + timedelta(minutes=30)
    window["ends_at"] = window["starts_at"]
    answer = client.post("/api/v1/maintenance/", window, format="json")
    assert answer.json()["problems"][0]["field"] == "ends_at"


def test_a_querys_thresholds_have_a_state_and_one_can_be_previewed(viewer: User) -> None:
    stage = Stage()
    query = stage.query("delays")
    Query.objects.filter(pk=query.pk).update(thresholds=[{"figure": "late_rows", "value": 5}])
    client = api(viewer)
    (one,) = client.get("/api/v1/queries/delays/thresholds/").json()["thresholds"]
    assert (one["figure"], one["state"], one["seen_at"]) == ("late_rows", "unknown", None)
    address = "/api/v1/queries/delays/thresholds/preview/"
    found = client.post(address, {"figure": "late_rows", "value": 5}, format="json").json()
    assert (found["crossed_at"], found["known_minutes"], found["minutes"]) == ([], 0, 7 * 24 * 60)
    assert "There are no figures for the last 7 days" in found["text"]
    refused = client.post(address, {"figure": "late_rows"}, format="json")
    assert refused.status_code == 422
    assert "Set a value above 0." in refused.content.decode()
