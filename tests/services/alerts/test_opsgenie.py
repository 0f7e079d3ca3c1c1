"""A channel to Opsgenie is disabled by the migration, and can be replaced without its rules."""

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from queries.models.alerts import AlertRule, Channel, Delivery
from queries.selectors.alerts.own_routes import own_routes
from queries.selectors.secrets import secrets
from tests.services.secrets.binding import bind
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db
PAGERDUTY = {"routing_key": "file:key"}


@pytest.fixture
def pager() -> Channel:
    """A channel to Opsgenie with a rule and a waiting message, as the migration leaves them."""
    now = timezone.now()
    made = {"created_at": now, "created_by": "ada"}
    pager, other = (
        Channel.objects.create(name=name, kind=kind, settings={"api_key": "file:key"}, **made)
        for name, kind in (("pager", "opsgenie"), ("other", "pagerduty"))
    )
    AlertRule.objects.create(name="nights", **made).channels.set([pager])
    for channel in (pager, other):
        waiting = {"occurrence": 1, "step": "opened", "created_at": now, "attempt_after": now}
        Delivery.objects.create(channel=channel, message={"title": "x"}, **waiting)
    import_module("queries.migrations.0015_opsgenie").disable(apps, None)
    pager.refresh_from_db()
    return pager


def test_it_is_disabled_with_a_reason_and_sends_nothing_more(pager: Channel) -> None:
    assert not pager.enabled
    assert "no longer sends to Opsgenie" in pager.last_error
    assert Channel.objects.get(name="other").enabled
    states = dict(Delivery.objects.values_list("channel__name", "state"))
    assert states == {"pager": "GIVEN_UP", "other": "WAITING"}
    assert all(routes == [] for routes in own_routes().values())


def test_its_secret_is_still_listed(pager: Channel) -> None:
    (key,) = secrets()
    assert [one.about for one in key.namings if one.holder.name == "pager"] == ["channel pager"]


def test_its_page_offers_the_other_kinds_and_its_rules_keep_it(
    client: Client, admin: User, pager: Channel
) -> None:
    client.force_login(admin)
    assert "no longer sends to Opsgenie" in Page(client, "/alerts/channels/").text
    page = Page(client, "/alerts/channels/pager/?kind=pagerduty").text
    assert "no longer sends to Opsgenie" in page
    assert "Show settings" in page
    bind("file:key", "pager", "events.pagerduty.com:443", kind="channel")
    form = {f"settings.{name}": value for name, value in PAGERDUTY.items()}
    client.post("/alerts/channels/pager/", {"name": "pager", "kind": "pagerduty", **form})
    pager.refresh_from_db()
    assert (pager.kind, pager.settings, pager.last_error) == ("pagerduty", PAGERDUTY, "")
    assert AlertRule.objects.get().channels.get() == pager
    assert "Show settings" not in Page(client, "/alerts/channels/pager/?kind=mail").text


def test_over_rest_it_is_shown_and_cannot_be_enabled(admin: User, pager: Channel) -> None:
    rest = APIClient()
    rest.force_authenticate(admin)
    shown = rest.get("/api/v1/alert-channels/pager/").json()
    assert (shown["kind"], shown["enabled"]) == ("opsgenie", False)
    form = {"name": "pager", "kind": "opsgenie", "settings": {"api_key": "file:key"}}
    assert rest.put("/api/v1/alert-channels/pager/", form, format="json").status_code == 422
    bind("file:key", "pager", "events.pagerduty.com:443", kind="channel")
    other = {"name": "pager", "kind": "pagerduty", "settings": PAGERDUTY}
    assert rest.put("/api/v1/alert-channels/pager/", other, format="json").status_code == 200
