"""What people write to set up alerts: what is taken, and what is said of the rest."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from queries.channels import mail as mail_channel
from queries.channels import webhook
from queries.domain.alerts.forms import (
    IncidentKind,
    Severity,
    parse_channel,
    parse_maintenance,
    parse_rule,
)
from queries.domain.errors import Invalid

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
KINDS = {"mail": mail_channel.KIND.form, "webhook": webhook.KIND.form}
MAIL = {
    "name": "people",
    "kind": "mail",
    "settings": {"host": "mail.example.org", "sender": "a@example.org", "recipients": ["b@c.org"]},
}
WINDOW = {"name": "night", "starts_at": "2026-01-05T22:00:00Z", "ends_at": "2026-01-06T02:00:00Z"}


def said(parse: Callable[..., Any], *arguments: Any, **more: Any) -> dict[str, str]:
    """Return what is said of each field."""
    with pytest.raises(Invalid) as refused:
        parse(*arguments, **more)
    return {problem.field: problem.message for problem in refused.value.problems}


def rule(**fields: Any) -> dict[str, Any]:
    return {"name": "nights", "channels": ["people"], **fields}


def mail(**settings: Any) -> dict[str, Any]:
    return MAIL | {"settings": MAIL["settings"] | settings}  # type: ignore[operator]


def test_a_rule_is_read_with_all_that_it_can_say() -> None:
    form = parse_rule(
        rule(
            selector={"labels": {"team": "data"}, "kinds": ["failed"], "severities": ["critical"]},
            quiet_hours={"zone": "Europe/Berlin", "from": "22:00", "until": "07:00", "days": [5]},
            escalate_after_minutes=15,
            escalate_to=["boss"],
            remind_every_hours=4,
        )
    )
    assert form.selector.kinds == [IncidentKind.FAILED]
    assert form.selector.severities == [Severity.CRITICAL]
    assert form.quiet_hours is not None
    assert (form.quiet_hours.start, form.quiet_hours.until) == ("22:00", "07:00")
    assert (form.escalate_after_minutes, form.escalate_to) == (15, ["boss"])


def quiet(**fields: Any) -> dict[str, Any]:
    return rule(quiet_hours={"zone": "UTC", "from": "22:00", "until": "07:00", **fields})


@pytest.mark.parametrize(
    ("raw", "field", "message"),
    [
        (rule(name="?"), "name", "is not a valid name."),
        (rule(channels=[]), "channels", "has no channels."),
        (rule(escalate_to=["boss"]), "escalate_after_minutes", "is missing."),
        (rule(escalate_after_minutes=5), "escalate_to", "has no channels."),
        (
            rule(selector={"labels": {"Team": "x"}}),
            "selector.labels.Team",
            "is not a valid label.",
        ),
        (quiet(**{"from": "24:00"}), "quiet_hours.from", "is not a valid time."),
        (quiet(until="7"), "quiet_hours.until", "is not a valid time."),
        (quiet(until="22:00"), "quiet_hours.until", "is the same as the start."),
        (quiet(zone="Nowhere/Here"), "quiet_hours.zone", "is not an IANA time zone."),
        (quiet(zone="../etc"), "quiet_hours.zone", "is not an IANA time zone."),
    ],
)
def test_a_rule_that_could_not_work_is_refused_by_its_field(
    raw: dict[str, Any], field: str, message: str
) -> None:
    assert said(parse_rule, raw) == {field: message}


def test_a_field_that_no_rule_has_is_named() -> None:
    assert "colour" in said(parse_rule, rule(colour="red"))


def test_a_window_is_read() -> None:
    form = parse_maintenance(WINDOW, now=NOW)
    assert form.ends_at == datetime(2026, 1, 6, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"starts_at": "2026-01-05T22:00:00"}, "starts_at", "has no time zone."),
        ({"ends_at": "2026-01-06T02:00:00"}, "ends_at", "has no time zone."),
        ({"ends_at": "2026-01-05T21:00:00Z"}, "ends_at", "is already over."),
        (
            {"starts_at": "2026-01-05T01:00:00Z", "ends_at": "2026-01-05T11:00:00Z"},
            "ends_at",
            "is already over.",
        ),
    ],
)
def test_a_window_that_would_never_be_open_is_refused(
    change: dict[str, str], field: str, message: str
) -> None:
    assert said(parse_maintenance, WINDOW | change, now=NOW) == {field: message}


def test_a_channel_is_read_with_its_settings() -> None:
    form = parse_channel(mail(port=465, security="tls", password="env:MAIL_PASSWORD"), KINDS)
    assert form.settings["port"] == 465
    assert form.enabled
    assert parse_channel(mail(password=""), KINDS).settings["password"] == ""


@pytest.mark.parametrize(
    ("raw", "field", "message"),
    [
        (mail(host=""), "settings.host", "is missing."),
        (mail(hots="x"), "settings.hots", "is not a setting of mail."),
        (mail(password="hunter2"), "settings.password", "is a plain-text secret."),
        (mail(password=["env:A"]), "settings.password", "is a plain-text secret."),
        (mail(recipients="b@c.org"), "settings.recipients", "is not a list."),
        (mail(recipients=["b"]), "settings.recipients", "is not a valid email address."),
        (mail(sender="a b@c"), "settings.sender", "is not a valid email address."),
        (mail(security="none"), "settings.security", "is not known."),
        (mail(port=0), "settings.port", "is not a valid port."),
        (mail(port=65536), "settings.port", "is not a valid port."),
        (mail(port="smtp"), "settings.port", "is not a valid port."),
        (
            {"name": "hook", "kind": "webhook", "settings": {"url": "file:U", "secret": "s3cret"}},
            "settings.secret",
            "is a plain-text secret.",
        ),
    ],
)
def test_a_channel_that_could_not_tell_anybody_is_refused(
    raw: dict[str, Any], field: str, message: str
) -> None:
    assert said(parse_channel, raw, KINDS) == {field: message}


@pytest.mark.parametrize("kind", ["fax", 5, None, ["mail"]])
def test_a_kind_that_is_not_registered_is_refused_with_those_that_are(kind: Any) -> None:
    for kinds, known in ((KINDS, "'mail' or 'webhook'"), ({"mail": KINDS["mail"]}, "'mail'")):
        with pytest.raises(Invalid) as refused:
            parse_channel({**MAIL, "kind": kind, "size": 1}, kinds)
        assert [(one.field, one.message) for one in refused.value.problems] == [
            ("kind", "is not an allowed value."),
            ("size", "is not a field of a definition."),
        ]
        assert refused.value.problems[0].way_out == f"Use {known}."


def test_a_secret_in_plain_text_is_not_said_again() -> None:
    with pytest.raises(Invalid) as refused:
        parse_channel(mail(password="hunter2"), KINDS)
    assert "hunter2" not in str(refused.value)
