"""Admins set up who is told, everybody sees by which rules, operators begin maintenance."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.models.alerts import AlertRule, Channel, Delivery, Incident, Maintenance
from tests.services.secrets.binding import bind
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db

MAIL = {
    "kind": "mail",
    "name": "ops",
    "settings.host": "mail.example.org",
    "settings.sender": "headgate@example.org",
    "settings.recipients": "ada@example.org\nben@example.org",
    "settings.username": "headgate",
    "settings.password": "file:smtp-password",
    "enabled": "1",
}


@pytest.mark.sql("queries.views.alerts.setup_pages.channel")
def test_a_channel_is_made_tried_changed_and_deleted(client: Client, admin: User) -> None:
    client.force_login(admin)
    assert "No channels" in Page(client, "/alerts/channels/").text
    form = Page(client, "/alerts/channels/new/?kind=mail").text
    assert "Mail server" in form
    bind("file:smtp-password", "ops", "*.example.org:587", kind="channel")
    client.post("/alerts/channels/new/", MAIL)
    row = Channel.objects.get()
    assert row.settings["recipients"] == ["ada@example.org", "ben@example.org"]
    assert row.settings["password"] == "file:smtp-password"
    assert "ops" in Page(client, "/alerts/channels/").text
    client.post("/alerts/channels/ops/test/")
    assert Delivery.objects.get().incident is None
    page = Page(client, "/alerts/channels/ops/").text
    assert "Headgate test message" in page
    assert "Notifying ops" in page
    client.post("/alerts/channels/ops/", {**MAIL, "settings.host": "mx.example.org"})
    assert Channel.objects.get().settings["host"] == "mx.example.org"
    client.post("/alerts/channels/ops/delete/")
    assert not Channel.objects.exists()


@pytest.mark.sql("queries.views.alerts.setup_pages.channel")
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("settings.password", "hunter2", "is a plain-text secret"),
        ("settings.host", "", "is missing"),
        ("settings.recipients", "nobody", "is not a valid email address"),
        ("settings.security", "none", "is not known"),
        ("settings.port", "99999", "is not a valid port"),
        ("name", "/etc", "is not a valid name"),
    ],
)
def test_what_cannot_work_is_said_beside_its_field(
    client: Client, admin: User, field: str, value: str, said: str
) -> None:
    client.force_login(admin)
    answer = client.post("/alerts/channels/new/", {**MAIL, field: value})
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert not Channel.objects.exists()


def test_only_admins_see_and_change_channels(client: Client, author: User) -> None:
    client.force_login(author)
    assert client.get("/alerts/channels/").status_code == 403
    assert client.post("/alerts/channels/new/", MAIL).status_code == 403
    assert client.post("/alerts/rules/new/", {}).status_code == 403
    assert "Channels" not in Page(client, "/alerts/rules/").html.partition("<main")[2]


def _channel(name: str = "pager") -> Channel:
    return Channel.objects.create(
        name=name, kind="webhook", created_at=timezone.now(), created_by="ada"
    )


RULE = {
    "name": "night",
    "enabled": "1",
    "labels": "team=a, tier=1",
    "applications": "flights",
    "kinds": ["failed", "stalled"],
    "severities": ["critical"],
    "channels": ["pager"],
    "escalate_after_minutes": "15",
    "escalate_to": ["pager"],
    "remind_every_hours": "4",
    "zone": "Europe/Berlin",
    "from": "22:00",
    "until": "07:00",
}


def test_a_rule_is_made_shown_changed_and_deleted(client: Client, admin: User) -> None:
    _channel()
    client.force_login(admin)
    client.post("/alerts/rules/new/", RULE)
    row = AlertRule.objects.get()
    assert row.selector == {
        "labels": {"team": "a", "tier": "1"},
        "kinds": ["failed", "stalled"],
        "severities": ["critical"],
        "applications": ["flights"],
    }
    text = Page(client, "/alerts/rules/").text
    for words in ("night", "team=a", "after 15 min", "every 4 h", "22:00–07:00 Europe/Berlin"):
        assert words in text
    form = Page(client, "/alerts/rules/night/").html
    assert 'value="team=a tier=1"' in form
    client.post("/alerts/rules/night/", {**RULE, "labels": "", "kinds": []})
    assert AlertRule.objects.get().selector == {
        "severities": ["critical"],
        "applications": ["flights"],
    }
    client.post("/alerts/rules/night/delete/")
    assert not AlertRule.objects.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"channels": []}, "has no channels"),
        ({"channels": ["nobody"]}, "is not an existing channel"),
        ({"labels": "Team=A"}, "is not a valid label"),
        ({"zone": "Mars/North"}, "is not an IANA time zone"),
        ({"from": "25:00"}, "is not a valid time"),
        ({"until": "22:00"}, "is the same as the start"),
        ({"escalate_to": []}, "has no channels"),
        ({"escalate_after_minutes": ""}, "is missing"),
        ({"remind_every_hours": "often"}, "remind_every_hours"),
        ({"kinds": ["odd"]}, "selector"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_and_what_was_typed_stays(
    client: Client, admin: User, change: dict[str, object], said: str
) -> None:
    _channel()
    client.force_login(admin)
    answer = client.post("/alerts/rules/new/", {**RULE, **change})
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert 'value="night"' in answer.content.decode()
    assert not AlertRule.objects.exists()


def test_a_rules_thresholds_are_edited_one_a_line_and_kept(client: Client, admin: User) -> None:
    _channel()
    client.force_login(admin)
    client.post("/alerts/rules/new/", {**RULE, "thresholds": "records_behind 1000000\n"})
    assert AlertRule.objects.get().thresholds == [
        {"figure": "records_behind", "value": 1e6, "factor": 0.0, "window_minutes": 10}
    ]
    form = Page(client, "/alerts/rules/night/").html
    assert "records_behind 1000000 10" in form
    for wrong in ("moon 5", "late_rows", "late_rows many"):
        answer = client.post("/alerts/rules/night/", {**RULE, "thresholds": wrong})
        assert answer.status_code == 422
        assert wrong in answer.content.decode()


def test_the_dry_view_says_who_would_have_heard(client: Client, admin: User) -> None:
    now = timezone.now()
    _channel()
    for number, severity in enumerate(("critical", "warning")):
        Incident.objects.create(
            kind="failed",
            fingerprint=f"f{number}",
            severity=severity,
            title=f"trouble {severity}",
            opened_at=now - timedelta(days=number),
            first_opened_at=now,
            seen_at=now,
        )
    client.force_login(admin)
    client.post(
        "/alerts/rules/new/",
        {
            "name": "c",
            "enabled": "1",
            "severities": ["critical"],
            "channels": ["pager"],
            "zone": "UTC",
        },
    )
    rows = Page(client, "/alerts/rules/").text.partition("Last week’s incidents")[2]
    critical, warning = rows.partition("trouble warning")[::2]
    assert "pager" in critical
    assert "nobody" in warning


def test_an_operator_begins_and_ends_maintenance(client: Client, operator: User) -> None:
    client.force_login(operator)
    client.post("/alerts/maintenance/new/", {"name": "upgrade", "labels": "team=a", "hours": "2"})
    window = Maintenance.objects.get()
    assert window.ends_at - window.starts_at == timedelta(hours=2)
    assert window.selector == {"labels": {"team": "a"}}
    page = Page(client, "/alerts/maintenance/").text
    assert "upgrade" in page
    assert "End now" in page
    client.post(f"/alerts/maintenance/{window.pk}/end/")
    window.refresh_from_db()
    assert window.ends_at <= timezone.now()


@pytest.mark.parametrize(
    ("change", "said"),
    [({"hours": "0"}, "is already over"), ({"name": ""}, "name"), ({"labels": "X"}, "label")],
)
def test_maintenance_that_cannot_be_is_refused(
    client: Client, operator: User, change: dict[str, str], said: str
) -> None:
    client.force_login(operator)
    sent = {"name": "upgrade", "labels": "", "hours": "2", **change}
    answer = client.post("/alerts/maintenance/new/", sent)
    assert answer.status_code == 422
    assert said in answer.content.decode()
    assert not Maintenance.objects.exists()


def test_a_viewer_reads_rules_and_maintenance(client: Client, viewer: User) -> None:
    client.force_login(viewer)
    assert "All matching rules apply" in Page(client, "/alerts/rules/").text
    assert "New rule" not in Page(client, "/alerts/rules/").text
    assert 'name="hours"' not in Page(client, "/alerts/maintenance/").html
    assert client.post("/alerts/maintenance/new/", {}).status_code == 403
